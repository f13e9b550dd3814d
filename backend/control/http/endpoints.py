"""The table: every endpoint of the API. Routes, `/openapi.json` and the authorisation tests are made from it."""

from __future__ import annotations

from typing import Any, Final

from backend.control.alerts.prometheus_rules import MEDIA_TYPE
from backend.control.http import alert_models, api_models
from backend.control.http.call import Access, ApiEndpoint, EndpointGroup, HandlerMethod
from backend.control.http.handlers.alert_handlers import AlertHandlers
from backend.control.http.handlers.finding_handlers import FindingHandlers
from backend.control.http.handlers.lab_handlers import LabHandlers
from backend.control.http.handlers.maintenance_handlers import MaintenanceHandlers
from backend.control.http.handlers.plan_handlers import IDEMPOTENCY_KEY, IF_MATCH, PlanHandlers
from backend.control.http.handlers.read_handlers import ReadHandlers
from backend.control.http.handlers.system_handlers import SystemHandlers


def _open(path: str, name: str, summary: str, handler: HandlerMethod, response_type: Any, **more: Any) -> ApiEndpoint:
    """Anyone on this machine may read it."""
    return ApiEndpoint("GET", path, name, summary, Access.OPEN, handler, response_type, **more)


def _read(path: str, name: str, summary: str, handler: HandlerMethod, response_type: Any, **more: Any) -> ApiEndpoint:
    """A viewer may read it."""
    return ApiEndpoint("GET", path, name, summary, Access.VIEWER, handler, response_type, **more)


def _change(path: str, name: str, summary: str, handler: HandlerMethod, response_type: Any, **more: Any) -> ApiEndpoint:
    """Only an operator may do it."""
    return ApiEndpoint("POST", path, name, summary, Access.OPERATOR, handler, response_type, **more)


GROUPS: Final = (
    EndpointGroup(
        SystemHandlers,
        (
            _open("/healthz", "health", "Is the process up?", SystemHandlers.healthz, api_models.HealthAnswer),
            _open(
                "/readyz",
                "ready",
                "Does the cluster answer, does the database take writes?",
                SystemHandlers.readyz,
                api_models.ReadyAnswer,
                other_successes=(503,),  # not ready
            ),
            _open("/metrics", "metrics", "Prometheus metrics", SystemHandlers.metrics, str, media_type="text/plain"),
            _open("/openapi.json", "openapi", "This document", SystemHandlers.openapi, dict[str, Any]),
        ),
    ),
    EndpointGroup(
        ReadHandlers,
        (
            _read(
                "/v1/cluster",
                "cluster",
                "The cluster, its totals and the processes around it",
                ReadHandlers.cluster,
                api_models.ClusterAnswer,
            ),
            _read("/v1/brokers", "brokers", "All registered brokers", ReadHandlers.brokers, api_models.BrokersAnswer),
            _read(
                "/v1/quorum",
                "quorum",
                "The metadata quorum: leader, epoch, lag of voters and observers, the last snapshot",
                ReadHandlers.quorum,
                api_models.QuorumAnswer,
            ),
            _read(
                "/v1/remote-readers",
                "remote readers",
                "Groups that read from the remote tier next",
                ReadHandlers.remote_readers,
                api_models.ReadersAnswer,
            ),
            _read(
                "/v1/alert-rules",
                "alert rules",
                "Rules file for Prometheus, one alert per incident",
                ReadHandlers.alert_rules,
                str,
                media_type=MEDIA_TYPE,
            ),
            _read(
                "/v1/partitions",
                "partitions",
                "Partitions with their leaders' offsets",
                ReadHandlers.list_partitions,
                api_models.PartitionsAnswer,
                query_model=api_models.PartitionsQuery,
            ),
            _read(
                "/v1/partitions/{topic}/{partition}",
                "partition",
                "One partition with replicas and remote segments",
                ReadHandlers.partition,
                api_models.PartitionAnswer,
                path_model=api_models.PartitionPath,
                problems=(404,),
            ),
            _read(
                "/v1/config",
                "config",
                "Settings in effect and where they come from",
                ReadHandlers.configs,
                api_models.ConfigAnswer,
                query_model=api_models.ConfigQuery,
            ),
            _read(
                "/v1/audit",
                "audit",
                "Who did what, refusals included",
                ReadHandlers.audit_entries,
                api_models.AuditAnswer,
                query_model=api_models.AuditQuery,
            ),
        ),
    ),
    EndpointGroup(
        PlanHandlers,
        (
            ApiEndpoint(
                "POST",
                "/v1/plans",
                "create plan",
                "Plan a change (or only try: dry_run); changes nothing",
                Access.VIEWER,
                PlanHandlers.create,
                api_models.PlanAnswer | api_models.DryRunAnswer,
                status=201,
                other_successes=(200,),  # a dry run
                body_model=api_models.PlanBody,
                problems=(403,),
            ),
            _read(
                "/v1/plans",
                "plans",
                "Plans, newest first",
                PlanHandlers.list_plans,
                api_models.PlansAnswer,
                query_model=api_models.PlansQuery,
            ),
            _read(
                "/v1/plans/{plan_id}",
                "plan",
                "One plan as it is now",
                PlanHandlers.get,
                api_models.PlanAnswer,
                path_model=api_models.PlanPath,
                problems=(404,),
            ),
            _change(
                "/v1/plans/{plan_id}/execute",
                "execute plan",
                "Execute a checked plan, once per Idempotency-Key",
                PlanHandlers.execute,
                api_models.PlanAnswer,
                other_successes=(202,),  # still running
                path_model=api_models.PlanPath,
                body_model=api_models.ExecuteBody,
                header_names=(IDEMPOTENCY_KEY,),
                optional_header_names=(IF_MATCH,),
                problems=(400, 404, 409, 412),
            ),
            _read(
                "/v1/plans/{plan_id}/events",
                "plan events",
                "The plan each time it changes",
                PlanHandlers.events,
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
                    ("pause", "Begin no further batch of a running plan", PlanHandlers.pause, api_models.EmptyBody),
                    ("resume", "Go on with a paused plan", PlanHandlers.resume, api_models.EmptyBody),
                    ("stop", "Stop a running plan and take back what moves", PlanHandlers.stop, api_models.EmptyBody),
                    ("limit", "Give a running plan another limit", PlanHandlers.limit, api_models.LimitBody),
                )
            ),
            _change(
                "/v1/plans/{plan_id}/revert",
                "revert plan",
                "Plan the way back",
                PlanHandlers.revert,
                api_models.PlanAnswer,
                status=201,
                path_model=api_models.PlanPath,
                body_model=api_models.RevertBody,
                problems=(404, 409),
            ),
        ),
    ),
    EndpointGroup(
        FindingHandlers,
        (
            _read(
                "/v1/findings",
                "findings",
                "What needs attention, and what did",
                FindingHandlers.list_findings,
                api_models.FindingsAnswer,
                query_model=api_models.FindingsQuery,
            ),
            _read(
                "/v1/findings/{finding_id}",
                "finding",
                "One finding with its runbook",
                FindingHandlers.get,
                api_models.FindingAnswer,
                path_model=api_models.FindingPath,
                problems=(404,),
            ),
            _change(
                "/v1/findings/{finding_id}/acknowledge",
                "acknowledge finding",
                "Say that somebody looks after an open finding",
                FindingHandlers.acknowledge,
                api_models.FindingAnswer,
                path_model=api_models.FindingPath,
                body_model=api_models.AcknowledgeBody,
                problems=(404, 409),
            ),
            _change(
                "/v1/findings/{finding_id}/mute",
                "mute finding",
                "Keep a finding out of sight for a while",
                FindingHandlers.mute,
                api_models.FindingAnswer,
                path_model=api_models.FindingPath,
                body_model=api_models.MuteBody,
                problems=(404,),
            ),
        ),
    ),
    EndpointGroup(
        MaintenanceHandlers,
        (
            _read(
                "/v1/maintenance",
                "maintenance",
                "Maintenance windows: findings in them send nothing",
                MaintenanceHandlers.list_windows,
                alert_models.MaintenanceListAnswer,
            ),
            _change(
                "/v1/maintenance",
                "add maintenance",
                "Begin or plan a maintenance window",
                MaintenanceHandlers.add,
                alert_models.MaintenanceAnswer,
                status=201,
                body_model=alert_models.MaintenanceBody,
                problems=(409,),
            ),
            ApiEndpoint(
                "DELETE",
                "/v1/maintenance/{window_id}",
                "end maintenance",
                "End a maintenance window now",
                Access.OPERATOR,
                MaintenanceHandlers.end,
                alert_models.MaintenanceAnswer,
                path_model=alert_models.MaintenancePath,
                problems=(404, 409),
            ),
        ),
    ),
    EndpointGroup(
        AlertHandlers,
        (
            _read(
                "/v1/alerts/receivers",
                "receivers",
                "Receivers of findings: what waits for each, and how it goes",
                AlertHandlers.receivers,
                alert_models.ReceiversAnswer,
            ),
            _change(
                "/v1/alerts/receivers/{receiver}/test",
                "test receiver",
                "Send a test message to a receiver",
                AlertHandlers.test,
                alert_models.ReceiverTestAnswer,
                path_model=alert_models.ReceiverPath,
                problems=(404,),
            ),
            _read(
                "/v1/alerts/rules",
                "rule settings",
                "The rules and what each explains, thresholds with the reason of each default, settings",
                AlertHandlers.rules,
                alert_models.RuleSettingsAnswer,
            ),
            _change(
                "/v1/alerts/rules/{slug}",
                "change rule",
                "Set thresholds, hold or severity of a rule, for all topics or a pattern; written to the alerts file",
                AlertHandlers.change_rule,
                alert_models.RuleSettingsAnswer,
                path_model=alert_models.RulePath,
                body_model=alert_models.RuleBody,
                problems=(404, 409),
            ),
        ),
    ),
    EndpointGroup(
        LabHandlers,
        (
            _change(
                "/v1/lab/bootstrap",
                "start bootstrap race",
                "Race a new replica with KIP-1023's flag off against one with it on; embedded cluster only",
                LabHandlers.start_bootstrap,
                api_models.BootstrapAnswer,
                status=202,
                body_model=api_models.BootstrapBody,
                problems=(409,),
            ),
            _read(
                "/v1/lab/bootstrap",
                "bootstrap race",
                "The bootstrap race that is going on, else the last one",
                LabHandlers.get_bootstrap,
                api_models.BootstrapAnswer,
            ),
            _change(
                "/v1/lab/bootstrap/cancel",
                "cancel bootstrap race",
                "End the bootstrap race; it cleans up after itself",
                LabHandlers.cancel_bootstrap,
                api_models.BootstrapAnswer,
                status=202,
                problems=(409,),
            ),
            _read(
                "/v1/lab/faults",
                "lab faults",
                "What the lab can break on the embedded cluster, and what it has broken",
                LabHandlers.get_faults,
                api_models.FaultsAnswer,
            ),
            _change(
                "/v1/lab/faults",
                "break",
                "Break the embedded cluster by a scenario; one at a time",
                LabHandlers.inject,
                api_models.FaultsAnswer,
                status=202,
                body_model=api_models.FaultBody,
                problems=(409,),
            ),
            _change(
                "/v1/lab/faults/heal",
                "heal",
                "Mend what the lab has broken",
                LabHandlers.clear,
                api_models.FaultsAnswer,
                status=202,
                problems=(409,),
            ),
        ),
    ),
)
ENDPOINTS: Final = tuple(endpoint for group in GROUPS for endpoint in group.endpoints)
