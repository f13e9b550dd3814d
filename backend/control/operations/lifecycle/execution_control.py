"""Commands for a plan that is being carried out: pause, resume, stop, another limit."""

from __future__ import annotations

from enum import Enum
from typing import Final

from sqlalchemy import Connection

from backend.control.formatting import in_bytes
from backend.control.operations.audit_entries import Actor, AuditResult, append_entry
from backend.control.operations.lifecycle.plan_draft import JsonObject
from backend.control.operations.lifecycle.plan_states import PlanState
from backend.control.operations.lifecycle.plan_store import PlanStore, entry_of
from backend.control.operations.operation_errors import Conflict
from backend.control.operations.operation_kind import AnyKind, LongRunningKind, OperationContext
from backend.control.wall_clock import now_ms
from backend.store.queries.audit import OperationRow
from backend.store.writes.operation_rows import advance_operation


class PlanCommand(Enum):
    """A command of a person for a plan that is being carried out."""

    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    LIMIT = "limit"


_UNDER_WAY: Final = frozenset({PlanState.ACCEPTED, PlanState.RUNNING, PlanState.PAUSED})
_ALLOWED: Final = {
    PlanCommand.PAUSE: frozenset({PlanState.RUNNING}),
    PlanCommand.RESUME: frozenset({PlanState.PAUSED}),
    PlanCommand.STOP: _UNDER_WAY,
    PlanCommand.LIMIT: _UNDER_WAY,
}


def refusal_of(row: OperationRow, kind: AnyKind, command: PlanCommand) -> str | None:
    """Why this cannot be asked of the plan now; None: it can."""
    if not isinstance(kind, LongRunningKind):
        return f"Plan {row.id} is one request to Kafka: there is nothing to {command.value}."
    if row.state not in _ALLOWED[command]:
        return f"Plan {row.id} is {row.state}; that is no state to {command.value} it in."
    if row.intent == "stop":
        return f"Plan {row.id} is being stopped already."
    return None


async def store_command(
    context: OperationContext,
    records: PlanStore,
    actor: Actor,
    row: OperationRow,
    command: PlanCommand,
    throttle_bytes_per_s: int | None,
) -> None:
    """Stores the command with its audit; the execution reads it there. Raises Conflict, ClusterAway."""
    detail = None if throttle_bytes_per_s is None else f"{in_bytes(throttle_bytes_per_s)}/s"

    def job(connection: Connection) -> bool:
        taken = advance_operation(
            connection, context.cluster_id, row.id, {row.state}, _values(command, throttle_bytes_per_s)
        )
        if taken:
            entry = entry_of(actor, f"{command.value} {row.kind}", row, AuditResult.ACCEPTED, detail, row.reason)
            append_entry(connection, context.cluster_id, entry)
        return taken

    if not await records.write(job):
        raise Conflict(f"Plan {row.id} has just changed; look at it again.")


def _values(command: PlanCommand, throttle_bytes_per_s: int | None) -> JsonObject:
    values: JsonObject = {"updated_ms": now_ms()}
    if command is PlanCommand.PAUSE:
        values["state"] = PlanState.PAUSED.value
    elif command is PlanCommand.RESUME:
        values["state"] = PlanState.RUNNING.value
    elif command is PlanCommand.STOP:
        values["intent"] = "stop"
    else:
        values["throttle_bytes_per_s"] = throttle_bytes_per_s
    return values
