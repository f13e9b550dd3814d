"""The table: every endpoint of the API. Routes, `/openapi.json` and the authorisation tests are made from it."""

from __future__ import annotations

from typing import Any, Final

from backend.control.alerts.prometheus_rules import MEDIA_TYPE
from backend.control.http import api_models
from backend.control.http.call import JSON, Access, ApiEndpoint, EndpointHandler
from backend.control.http.handlers import finding_handlers, lab_handlers, plan_handlers, read_handlers, system_handlers


def _open(
    path: str, name: str, summary: str, handler: EndpointHandler, answers: Any, media_type: str = JSON
) -> ApiEndpoint:
    """What anyone on this machine may read."""
    return ApiEndpoint("GET", path, name, summary, Access.OPEN, handler, answers, media_type=media_type)


def _look(path: str, name: str, summary: str, handler: EndpointHandler, answers: Any, **more: Any) -> ApiEndpoint:
    """What a viewer may read."""
    return ApiEndpoint("GET", path, name, summary, Access.VIEWER, handler, answers, **more)


def _change(path: str, name: str, summary: str, handler: EndpointHandler, answers: Any, **more: Any) -> ApiEndpoint:
    """What only an operator may do."""
    return ApiEndpoint("POST", path, name, summary, Access.OPERATOR, handler, answers, **more)


ENDPOINTS: Final = (
    _open("/healthz", "health", "Is the process up?", system_handlers.healthz, api_models.HealthAnswer),
    _open(
        "/readyz",
        "ready",
        "Does the cluster answer, does the database take writes?",
        system_handlers.readyz,
        api_models.ReadyAnswer,
    ),
    _open("/metrics", "metrics", "Prometheus metrics", system_handlers.metrics, str, media_type="text/plain"),
    _open("/openapi.json", "openapi", "This document", system_handlers.openapi, dict[str, Any]),
    _look(
        "/v1/cluster",
        "cluster",
        "The cluster, its totals and the processes around it",
        read_handlers.cluster,
        api_models.ClusterAnswer,
    ),
    _look("/v1/brokers", "brokers", "All registered brokers", read_handlers.brokers, api_models.BrokersAnswer),
    _look(
        "/v1/quorum",
        "quorum",
        "The metadata quorum: leader, epoch, lag of voters and observers, the last snapshot",
        read_handlers.quorum,
        api_models.QuorumAnswer,
    ),
    _look(
        "/v1/remote-readers",
        "remote readers",
        "Groups that read from the remote tier next",
        read_handlers.remote_readers,
        api_models.ReadersAnswer,
    ),
    _look(
        "/v1/alert-rules",
        "alert rules",
        "Rules file for Prometheus, one alert per incident",
        read_handlers.alert_rules,
        str,
        media_type=MEDIA_TYPE,
    ),
    _look(
        "/v1/partitions",
        "partitions",
        "Partitions with their leaders' offsets",
        read_handlers.list_partitions,
        api_models.PartitionsAnswer,
        query_model=api_models.PartitionsQuery,
    ),
    _look(
        "/v1/partitions/{topic}/{partition}",
        "partition",
        "One partition with replicas and remote segments",
        read_handlers.partition,
        api_models.PartitionAnswer,
        path_model=api_models.PartitionPath,
        problems=(404,),
    ),
    _look(
        "/v1/config",
        "config",
        "Settings in effect and where they come from",
        read_handlers.configs,
        api_models.ConfigAnswer,
        query_model=api_models.ConfigQuery,
    ),
    ApiEndpoint(
        "POST",
        "/v1/plans",
        "create plan",
        "Plan a change (or only try: dry_run); changes nothing",
        Access.VIEWER,
        plan_handlers.create,
        api_models.PlanAnswer | api_models.DryRunAnswer,
        status=201,
        body_model=api_models.PlanBody,
        problems=(403,),
    ),
    _look(
        "/v1/plans",
        "plans",
        "Plans, newest first",
        plan_handlers.list_plans,
        api_models.PlansAnswer,
        query_model=api_models.PlansQuery,
    ),
    _look(
        "/v1/plans/{plan_id}",
        "plan",
        "One plan as it is now",
        plan_handlers.get,
        api_models.PlanAnswer,
        path_model=api_models.PlanPath,
        problems=(404,),
    ),
    _change(
        "/v1/plans/{plan_id}/execute",
        "execute plan",
        "Execute a checked plan, once per Idempotency-Key",
        plan_handlers.execute,
        api_models.PlanAnswer,
        path_model=api_models.PlanPath,
        body_model=api_models.ExecuteBody,
        header_names=(plan_handlers.IDEMPOTENCY_KEY,),
        optional_header_names=(plan_handlers.IF_MATCH,),
        problems=(400, 404, 409, 412),
    ),
    _look(
        "/v1/plans/{plan_id}/events",
        "plan events",
        "The plan each time it changes",
        plan_handlers.events,
        str,
        path_model=api_models.PlanPath,
        problems=(404,),
        media_type="text/event-stream",
    ),
    *(
        _change(
            f"/v1/plans/{{plan_id}}/{verb}",
            f"{verb} plan",
            summary,
            handler,
            api_models.PlanAnswer,
            path_model=api_models.PlanPath,
            body_model=body,
            problems=(404, 409),
        )
        for verb, summary, handler, body in (
            ("pause", "Begin no further batch of a running plan", plan_handlers.pause, api_models.EmptyBody),
            ("resume", "Go on with a paused plan", plan_handlers.resume, api_models.EmptyBody),
            ("stop", "Stop a running plan and take back what moves", plan_handlers.stop, api_models.EmptyBody),
            ("limit", "Give a running plan another limit", plan_handlers.limit, api_models.LimitBody),
        )
    ),
    _change(
        "/v1/plans/{plan_id}/revert",
        "revert plan",
        "Plan the way back",
        plan_handlers.revert,
        api_models.PlanAnswer,
        status=201,
        path_model=api_models.PlanPath,
        body_model=api_models.RevertBody,
        problems=(404, 409),
    ),
    _look(
        "/v1/findings",
        "findings",
        "What needs attention, and what did",
        finding_handlers.list_findings,
        api_models.FindingsAnswer,
        query_model=api_models.FindingsQuery,
    ),
    _look(
        "/v1/findings/{finding_id}",
        "finding",
        "One finding with its runbook",
        finding_handlers.get,
        api_models.FindingAnswer,
        path_model=api_models.FindingPath,
        problems=(404,),
    ),
    _change(
        "/v1/findings/{finding_id}/acknowledge",
        "acknowledge finding",
        "Say that somebody looks after an open finding",
        finding_handlers.acknowledge,
        api_models.FindingAnswer,
        path_model=api_models.FindingPath,
        body_model=api_models.AcknowledgeBody,
        problems=(404, 409),
    ),
    _change(
        "/v1/findings/{finding_id}/mute",
        "mute finding",
        "Keep a finding out of sight for a while",
        finding_handlers.mute,
        api_models.FindingAnswer,
        path_model=api_models.FindingPath,
        body_model=api_models.MuteBody,
        problems=(404,),
    ),
    _look(
        "/v1/audit",
        "audit",
        "Who did what, refusals included",
        read_handlers.audit_entries,
        api_models.AuditAnswer,
        query_model=api_models.AuditQuery,
    ),
    _change(
        "/v1/lab/bootstrap",
        "start bootstrap race",
        "Race a new replica with KIP-1023's flag off against one with it on; embedded cluster only",
        lab_handlers.start_bootstrap,
        api_models.BootstrapAnswer,
        status=202,
        body_model=api_models.BootstrapBody,
        problems=(409,),
    ),
    _look(
        "/v1/lab/bootstrap",
        "bootstrap race",
        "The bootstrap race that is going on, else the last one",
        lab_handlers.get_bootstrap,
        api_models.BootstrapAnswer,
    ),
    _change(
        "/v1/lab/bootstrap/cancel",
        "cancel bootstrap race",
        "End the bootstrap race; it cleans up after itself",
        lab_handlers.cancel_bootstrap,
        api_models.BootstrapAnswer,
        status=202,
        problems=(409,),
    ),
    _look(
        "/v1/lab/faults",
        "lab faults",
        "What the lab can break on the embedded cluster, and what it has broken",
        lab_handlers.get_faults,
        api_models.FaultsAnswer,
    ),
    _change(
        "/v1/lab/faults",
        "break",
        "Break the embedded cluster by a scenario; one at a time",
        lab_handlers.inject,
        api_models.FaultsAnswer,
        status=202,
        body_model=api_models.FaultBody,
        problems=(409,),
    ),
    _change(
        "/v1/lab/faults/heal",
        "heal",
        "Mend what the lab has broken",
        lab_handlers.clear,
        api_models.FaultsAnswer,
        status=202,
        problems=(409,),
    ),
)
