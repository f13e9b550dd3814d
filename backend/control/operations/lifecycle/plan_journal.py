"""Stores the course of an execution: the plan's state, steps and progress, and the audit that goes with them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from sqlalchemy import Connection

from backend.control.control_database import DatabaseAway
from backend.control.operations.audit_entries import Actor, AuditEntry, AuditResult, append_entry
from backend.control.operations.lifecycle.plan_draft import JsonObject
from backend.control.operations.lifecycle.plan_states import FINISHED, PlanState, sources
from backend.control.operations.operation_kind import OperationContext
from backend.control.wall_clock import now_ms
from backend.store.queries import audit as queries
from backend.store.queries.audit import OperationRow
from backend.store.writes.operation_rows import advance_operation, note_progress

STORE_RETRY_S: Final = 1.0
_RESULTS: Final = {
    PlanState.ACCEPTED: AuditResult.ACCEPTED,
    PlanState.VERIFIED: AuditResult.VERIFIED,
    PlanState.STOPPED: AuditResult.STOPPED,
}
T = TypeVar("T")
_log = logging.getLogger(__name__)


class PlanJournal:
    """One plan's record. Everything waits for a database that is away: what was done in the cluster is done."""

    def __init__(self, context: OperationContext, row: OperationRow, actor: Actor) -> None:
        self.row = row
        self._context = context
        self._actor = actor
        self._steps: list[JsonObject] = list((row.result or {}).get("steps", []))

    def note(self, state: str, text: str) -> None:
        """A step that is stored with the next move."""
        self._steps.append({"at_ms": now_ms(), "state": str(state), "sentence": text})

    async def move(self, state: PlanState, text: str, detail: JsonObject | None = None) -> None:
        """Stores the new state and its audit together. Does nothing when the plan is not where that leads from."""
        self.note(state, text)
        _log.info("Plan %d (%s): %s", self.row.id, self.row.kind, text)
        at_ms = now_ms()
        result = {
            "executed_by": self._actor.name,
            "sentence": text,
            "steps": list(self._steps),
            "verification": detail,
        }
        values: JsonObject = {"state": state.value, "updated_ms": at_ms, "result": result}
        if state in FINISHED:
            values["finished_ms"] = at_ms

        def job(connection: Connection) -> None:
            row, cluster_id = self.row, self._context.cluster_id
            from_states = {source.value for source in sources(state)}
            if not advance_operation(connection, cluster_id, row.id, from_states, values):
                _log.error("Plan %d (%s) was not in a state that leads to %s", row.id, row.kind, state.value)
                return
            if state is PlanState.VERIFIED and row.reverts_id is not None:
                reverted = {"state": PlanState.REVERTED.value, "updated_ms": at_ms}
                before = {source.value for source in sources(PlanState.REVERTED)}
                advance_operation(connection, cluster_id, row.reverts_id, before, reverted)
            if state is not PlanState.RUNNING:
                append_entry(connection, cluster_id, self._audit(state, text))

        await self._until_stored(job, state.value)

    async def progress(self, progress: JsonObject) -> None:
        """Stores the progress; no audit."""
        values = {"progress": progress, "updated_ms": now_ms()}
        await self._until_stored(
            lambda c: note_progress(c, self._context.cluster_id, self.row.id, values), "how far it is"
        )

    async def now(self) -> OperationRow:
        """The plan as people may have changed it meanwhile."""
        cluster_id, plan_id = self._context.cluster_id, self.row.id
        while True:
            try:
                row = await self._context.database.read(lambda c: queries.operation(c, cluster_id, plan_id))
            except DatabaseAway as error:
                _log.warning("Plan %d waits to be read: %s", plan_id, error)
                await asyncio.sleep(STORE_RETRY_S)
                continue
            if row is None:
                raise LookupError(f"Plan {plan_id} is not in the database any more.")
            return row

    async def _until_stored(self, job: Callable[[Connection], T], what: str) -> None:
        while True:
            try:
                await self._context.database.write(job)
                return
            except DatabaseAway as error:
                _log.warning("Plan %d waits to be stored as %s: %s", self.row.id, what, error)
                await asyncio.sleep(STORE_RETRY_S)

    def _audit(self, state: PlanState, detail: str) -> AuditEntry:
        row = self.row
        action = f"{'revert' if row.reverts_id is not None else 'execute'} {row.kind}"
        object_ = str((row.diff or {}).get("object", row.kind))
        result = _RESULTS.get(state, AuditResult.FAILED)
        return AuditEntry(self._actor, action, object_, result, detail, row.reason, row.id, row.diff, row.cli)
