"""Claims a stored plan for one execution: every check that needs no cluster, then the row itself, durably, once.

Two operators who execute the same plan meet in the database: one claims it, the other gets Conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from backend.control.operations.audit_entries import Actor, AuditResult, append_entry
from backend.control.operations.lifecycle.plan_draft import JsonObject
from backend.control.operations.lifecycle.plan_states import OPEN, PlanState, sources
from backend.control.operations.lifecycle.plan_store import PlanStore, entry_of, version_of
from backend.control.operations.operation_errors import (
    Conflict,
    InvalidInput,
    NotConfirmed,
    PlanChanged,
    ReadOnly,
    StalePlan,
)
from backend.control.operations.operation_kind import AnyKind, OperationContext
from backend.control.wall_clock import now_ms
from backend.store.queries.audit import OperationRow
from backend.store.writes.operation_rows import (
    KeyInUse,
    advance_operation,
    lock_cluster,
    open_operation,
    operation_of_key,
)

REASON_CHARS_MAX: Final = 500
KEY_CHARS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Confirmation of a person that a plan is to be executed."""

    idempotency_key: str
    cluster_name: str
    reason: str
    if_match: str | None = None
    """Version of the plan that the person has seen; None: whichever it is."""


class PlanClaim:
    """Guards the step from a plan to its execution."""

    def __init__(self, context: OperationContext, records: PlanStore) -> None:
        self._context = context
        self._records = records

    async def check(self, row: OperationRow, confirmation: Confirmation, kind: AnyKind) -> None:
        """Raises OperationError for what cannot be executed so; asks only the database."""
        self._check_allowed()
        self._check_confirmation(confirmation)
        await self._check_key(confirmation.idempotency_key, row.id)
        self._check_executable(row, confirmation)
        if kind.exclusive:
            await self._check_alone(row)

    def _check_confirmation(self, confirmation: Confirmation) -> None:
        if confirmation.cluster_name != self._context.cluster_name:
            raise NotConfirmed(f"Type the cluster's name, {self._context.cluster_name}, to confirm.")
        if not confirmation.reason.strip():
            raise NotConfirmed("Give a reason: it stands in the audit.")
        if len(confirmation.reason) > REASON_CHARS_MAX:
            raise NotConfirmed(f"The reason may have {REASON_CHARS_MAX} characters.")
        if not 0 < len(confirmation.idempotency_key) <= KEY_CHARS_MAX:
            raise InvalidInput(f"Give an Idempotency-Key of 1 to {KEY_CHARS_MAX} characters.")

    async def _check_key(self, key: str, plan_id: int) -> None:
        other = await self._records.read(lambda c: operation_of_key(c, self._context.cluster_id, key))
        if other is not None and other != plan_id:
            raise Conflict(f"This Idempotency-Key was used for plan {other}; give each execution its own key.")

    def _check_allowed(self) -> None:
        if not self._context.changes_allowed:
            raise ReadOnly("This ebbline only looks at the cluster: start it with --allow-changes to change something.")

    def _check_executable(self, row: OperationRow, confirmation: Confirmation) -> None:
        if confirmation.if_match is not None and confirmation.if_match.strip('"') != version_of(row):
            raise PlanChanged(f"Plan {row.id} is not what you have seen any more: look at it again.")
        if row.state != PlanState.CHECKED:
            raise Conflict(f"Plan {row.id} is {row.state} already; make a new plan to change something again.")

    async def refuse_stale(
        self,
        actor: Actor,
        action: str,
        row: OperationRow,
        text: str,
        changed: list[str],
        confirmation: Confirmation,
    ) -> None:
        """Ends a plan that does not fit the cluster any more. Raises StalePlan."""
        values = _moved(PlanState.REFUSED) | {"result": {"refused": text, "changed": changed[:50]}}

        def store(connection: Connection) -> None:
            cluster_id = self._context.cluster_id
            if advance_operation(connection, cluster_id, row.id, {PlanState.CHECKED.value}, values):
                append_entry(
                    connection, cluster_id, entry_of(actor, action, row, AuditResult.REFUSED, text, confirmation.reason)
                )

        await self._records.write(store)
        raise StalePlan(text)

    async def claim(self, actor: Actor, row: OperationRow, confirmation: Confirmation, *, exclusive: bool) -> bool:
        """Takes the plan for this execution, durably, before anything is sent; False when another was faster."""
        values = {
            "state": PlanState.REQUESTED.value,
            "updated_ms": now_ms(),
            "requested_ms": now_ms(),
            "idempotency_key": confirmation.idempotency_key,
            "reason": confirmation.reason.strip(),
            "result": {"executed_by": actor.name},
        }
        states = {state.value for state in sources(PlanState.REQUESTED)}
        cluster_id = self._context.cluster_id

        def job(connection: Connection) -> bool | int:
            if exclusive:
                lock_cluster(connection, cluster_id)
                other = open_operation(connection, cluster_id, row.kind, {state.value for state in OPEN})
                if other is not None and other != row.id:
                    return other
            return advance_operation(connection, cluster_id, row.id, states, values)

        try:
            taken = await self._records.write(job)
        except KeyInUse as error:
            text = "This Idempotency-Key was used for another plan; give each execution its own key."
            await self._records.audit_refusal(actor, f"execute {row.kind}", row, text, confirmation.reason)
            raise Conflict(text) from error
        if taken is True or taken is False:
            return taken
        text = _busy(taken)
        await self._records.audit_refusal(actor, f"execute {row.kind}", row, text, confirmation.reason)
        raise Conflict(text)

    async def _check_alone(self, row: OperationRow) -> None:
        """Asked before the cluster is: what another plan of the kind changes there would make this one stale."""
        states = {state.value for state in OPEN}
        other = await self._records.read(lambda c: open_operation(c, self._context.cluster_id, row.kind, states))
        if other is not None and other != row.id:
            raise Conflict(_busy(other))


def _busy(plan_id: int) -> str:
    return f"Plan {plan_id} of the same kind is being carried out: wait for its end, or stop it."


def _moved(state: PlanState) -> JsonObject:
    at_ms = now_ms()
    return {"state": state.value, "updated_ms": at_ms, "finished_ms": at_ms}
