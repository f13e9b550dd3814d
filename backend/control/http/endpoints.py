"""The table: every endpoint of the API. Routes, `/openapi.json` and the authorisation tests are made from it."""

from __future__ import annotations

from typing import Any, Final

from backend.control.alerts.prometheus_rules import MEDIA_TYPE
from backend.control.http import findings, lab, plans, reads, schemas, system
from backend.control.http.call import JSON, Access, Endpoint, Handler


def _open(path: str, name: str, summary: str, handler: Handler, answers: Any, media_type: str = JSON) -> Endpoint:
    """What anyone on this machine may read."""
    return Endpoint("GET", path, name, summary, Access.OPEN, handler, answers, media_type=media_type)


def _look(path: str, name: str, summary: str, handler: Handler, answers: Any, **more: Any) -> Endpoint:
    """What a viewer may read."""
    return Endpoint("GET", path, name, summary, Access.VIEWER, handler, answers, **more)


def _change(path: str, name: str, summary: str, handler: Handler, answers: Any, **more: Any) -> Endpoint:
    """What only an operator may do."""
    return Endpoint("POST", path, name, summary, Access.OPERATOR, handler, answers, **more)


ENDPOINTS: Final = (
    _open("/healthz", "health", "Is the process up?", system.healthz, schemas.HealthAnswer),
    _open(
        "/readyz",
        "ready",
        "Does the cluster answer, does the database take writes?",
        system.readyz,
        schemas.ReadyAnswer,
    ),
    _open("/metrics", "metrics", "Prometheus metrics", system.metrics, str, media_type="text/plain"),
    _open("/openapi.json", "openapi", "This document", system.openapi, dict[str, Any]),
    _look(
        "/v1/cluster",
        "cluster",
        "The cluster, its totals and the processes around it",
        reads.cluster,
        schemas.ClusterAnswer,
    ),
    _look("/v1/brokers", "brokers", "All registered brokers", reads.brokers, schemas.BrokersAnswer),
    _look(
        "/v1/quorum",
        "quorum",
        "The metadata quorum: leader, epoch, lag of voters and observers, the last snapshot",
        reads.quorum,
        schemas.QuorumAnswer,
    ),
    _look(
        "/v1/remote-readers",
        "remote readers",
        "Groups that read from the remote tier next",
        reads.remote_readers,
        schemas.ReadersAnswer,
    ),
    _look(
        "/v1/alert-rules",
        "alert rules",
        "Rules file for Prometheus, one alert per incident",
        reads.alert_rules,
        str,
        media_type=MEDIA_TYPE,
    ),
    _look(
        "/v1/partitions",
        "partitions",
        "Partitions with their leaders' offsets",
        reads.list_partitions,
        schemas.PartitionsAnswer,
        query_model=schemas.PartitionsQuery,
    ),
    _look(
        "/v1/partitions/{topic}/{partition}",
        "partition",
        "One partition with replicas and remote segments",
        reads.partition,
        schemas.PartitionAnswer,
        path_model=schemas.PartitionPath,
        problems=(404,),
    ),
    _look(
        "/v1/config",
        "config",
        "Settings in effect and where they come from",
        reads.configs,
        schemas.ConfigAnswer,
        query_model=schemas.ConfigQuery,
    ),
    Endpoint(
        "POST",
        "/v1/plans",
        "create plan",
        "Plan a change (or only try: dry_run); changes nothing",
        Access.VIEWER,
        plans.create,
        schemas.PlanAnswer | schemas.DryRunAnswer,
        status=201,
        body_model=schemas.PlanBody,
        problems=(403,),
    ),
    _look(
        "/v1/plans",
        "plans",
        "Plans, newest first",
        plans.list_plans,
        schemas.PlansAnswer,
        query_model=schemas.PlansQuery,
    ),
    _look(
        "/v1/plans/{plan_id}",
        "plan",
        "One plan as it is now",
        plans.get,
        schemas.PlanAnswer,
        path_model=schemas.PlanPath,
        problems=(404,),
    ),
    _change(
        "/v1/plans/{plan_id}/execute",
        "execute plan",
        "Execute a checked plan, once per Idempotency-Key",
        plans.execute,
        schemas.PlanAnswer,
        path_model=schemas.PlanPath,
        body_model=schemas.ExecuteBody,
        header_names=(plans.IDEMPOTENCY_KEY,),
        optional_header_names=(plans.IF_MATCH,),
        problems=(400, 404, 409, 412),
    ),
    _look(
        "/v1/plans/{plan_id}/events",
        "plan events",
        "The plan each time it changes",
        plans.events,
        str,
        path_model=schemas.PlanPath,
        problems=(404,),
        media_type="text/event-stream",
    ),
    *(
        _change(
            f"/v1/plans/{{plan_id}}/{verb}",
            f"{verb} plan",
            summary,
            handler,
            schemas.PlanAnswer,
            path_model=schemas.PlanPath,
            body_model=body,
            problems=(404, 409),
        )
        for verb, summary, handler, body in (
            ("pause", "Begin no further batch of a running plan", plans.pause, schemas.SteerBody),
            ("resume", "Go on with a paused plan", plans.resume, schemas.SteerBody),
            ("stop", "Stop a running plan and take back what moves", plans.stop, schemas.SteerBody),
            ("limit", "Give a running plan another limit", plans.limit, schemas.LimitBody),
        )
    ),
    _change(
        "/v1/plans/{plan_id}/revert",
        "revert plan",
        "Plan the way back",
        plans.revert,
        schemas.PlanAnswer,
        status=201,
        path_model=schemas.PlanPath,
        body_model=schemas.RevertBody,
        problems=(404, 409),
    ),
    _look(
        "/v1/findings",
        "findings",
        "What needs attention, and what did",
        findings.list_findings,
        schemas.FindingsAnswer,
        query_model=schemas.FindingsQuery,
    ),
    _look(
        "/v1/findings/{finding_id}",
        "finding",
        "One finding with its runbook",
        findings.get,
        schemas.FindingAnswer,
        path_model=schemas.FindingPath,
        problems=(404,),
    ),
    _change(
        "/v1/findings/{finding_id}/acknowledge",
        "acknowledge finding",
        "Say that somebody looks after an open finding",
        findings.acknowledge,
        schemas.FindingAnswer,
        path_model=schemas.FindingPath,
        body_model=schemas.AcknowledgeBody,
        problems=(404, 409),
    ),
    _change(
        "/v1/findings/{finding_id}/mute",
        "mute finding",
        "Keep a finding out of sight for a while",
        findings.mute,
        schemas.FindingAnswer,
        path_model=schemas.FindingPath,
        body_model=schemas.MuteBody,
        problems=(404,),
    ),
    _look(
        "/v1/audit",
        "audit",
        "Who did what, refusals included",
        reads.audit_entries,
        schemas.AuditAnswer,
        query_model=schemas.AuditQuery,
    ),
    _change(
        "/v1/lab/bootstrap",
        "start bootstrap race",
        "Race a new replica with KIP-1023's flag off against one with it on; embedded cluster only",
        lab.start_bootstrap,
        schemas.BootstrapAnswer,
        status=202,
        body_model=schemas.BootstrapBody,
        problems=(409,),
    ),
    _look(
        "/v1/lab/bootstrap",
        "bootstrap race",
        "The bootstrap race that is going on, else the last one",
        lab.get_bootstrap,
        schemas.BootstrapAnswer,
    ),
    _change(
        "/v1/lab/bootstrap/cancel",
        "cancel bootstrap race",
        "End the bootstrap race; it cleans up after itself",
        lab.cancel_bootstrap,
        schemas.BootstrapAnswer,
        status=202,
        problems=(409,),
    ),
    _look(
        "/v1/lab/faults",
        "lab faults",
        "What the lab can break on the embedded cluster, and what it has broken",
        lab.get_faults,
        schemas.FaultsAnswer,
    ),
    _change(
        "/v1/lab/faults",
        "break",
        "Break the embedded cluster by a scenario; one at a time",
        lab.break_it,
        schemas.FaultsAnswer,
        status=202,
        body_model=schemas.FaultBody,
        problems=(409,),
    ),
    _change(
        "/v1/lab/faults/heal",
        "heal",
        "Mend what the lab has broken",
        lab.heal,
        schemas.FaultsAnswer,
        status=202,
        problems=(409,),
    ),
)
