"""Makes plans, executes them once, proves the effect, takes them back. Every step is stored before the next one begins.

The role is checked here, on every call, whatever the page or the route in front of it did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from backend.control.operations.audit_entries import Actor, AuditEntry, AuditResult, append_entry
from backend.control.operations.lifecycle.execution_control import PlanCommand, refusal_of, store_command
from backend.control.operations.lifecycle.plan_claim import Confirmation, PlanClaim
from backend.control.operations.lifecycle.plan_draft import Draft, JsonObject, differences, first_refusal, lasting_part
from backend.control.operations.lifecycle.plan_execution import PlanExecutor
from backend.control.operations.lifecycle.plan_states import REVERTIBLE, PlanState
from backend.control.operations.lifecycle.plan_store import PlanStore, object_of
from backend.control.operations.lifecycle.planner import Planner, parse
from backend.control.operations.operation_errors import Conflict, OperationError
from backend.control.operations.operation_kind import AnyKind, OperationContext
from backend.control.operations.registry import KINDS
from backend.store.queries import audit as queries
from backend.store.queries.audit import OperationRow


class OperationService:
    """The operations of one cluster. Belongs to one event loop."""

    def __init__(
        self,
        context: OperationContext,
        *,
        kinds: Mapping[str, AnyKind] = KINDS,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._records = PlanStore(context)
        self._planner = Planner(context, kinds, self._records)
        self._plan_claim = PlanClaim(context, self._records)
        self._execution = PlanExecutor(context, kinds, on_change)
        # Held from reading the cluster to sending the request: the next plan must read what this one changes.
        self._execution_lock = asyncio.Lock()

    async def plan(self, actor: Actor, kind: str, inputs: Mapping[str, object], *, reason: str | None = None) -> int:
        """Stores a plan, checked or refused by its checks; its number. Changes nothing in the cluster.

        Raises OperationError.
        """
        await self._records.require_operator(actor, f"plan {kind}", kind)
        return await self._planner.plan(actor, kind, inputs, reason, reverts_id=None)

    async def dry_run(self, actor: Actor, kind: str, inputs: Mapping[str, object]) -> tuple[JsonObject, Draft]:
        """Snapshot and draft that a plan would have; stores nothing, so a viewer may. Raises OperationError."""
        del actor  # any role
        plan_kind = self._planner.kind(kind)
        _, snapshot, draft = await self._planner.inspect(plan_kind, parse(plan_kind, inputs))
        return snapshot, draft

    async def execute(self, actor: Actor, plan_id: int, confirmation: Confirmation, *, wait_s: float) -> OperationRow:
        """Executes a checked plan once; waits up to `wait_s` for its end and gives it as it is then.

        The same key again gives the same plan and does nothing. Raises OperationError: nothing was changed.
        """
        row = await self.get(plan_id)
        action = f"execute {row.kind}"
        await self._records.require_operator(actor, action, object_of(row), row)
        async with self._execution_lock:
            await self._begin(actor, action, plan_id, confirmation)
        await self._execution.wait(plan_id, wait_s)
        return await self.get(plan_id)

    async def _begin(self, actor: Actor, action: str, plan_id: int, confirmation: Confirmation) -> None:
        """Takes the plan and starts it; nothing when this very execution has been begun before."""
        row = await self.get(plan_id)
        if row.idempotency_key is not None and row.idempotency_key == confirmation.idempotency_key:
            return
        try:
            kind = self._planner.kind(row.kind)
            await self._plan_claim.check(row, confirmation, kind)
            if not await self._execution.requests_ended():
                raise Conflict("Another plan is still being carried out: try again when it has ended.")
            _, snapshot_now, draft_now = await self._planner.inspect(kind, parse(kind, row.inputs))
        except OperationError as error:
            await self._records.audit_refusal(actor, action, row, str(error), confirmation.reason)
            raise
        changed = differences(lasting_part(row.snapshot), lasting_part(snapshot_now))
        if changed:
            text = f"The cluster has changed since plan {row.id} was made ({'; '.join(changed[:3])}): make a new plan."
            await self._plan_claim.refuse_stale(actor, action, row, text, changed, confirmation)
        refusal = first_refusal(draft_now.checks)
        if refusal is not None:
            text = f"What plan {row.id} was checked for does not hold any more: {refusal}"
            await self._plan_claim.refuse_stale(actor, action, row, text, [refusal], confirmation)
        if not await self._plan_claim.claim(actor, row, confirmation, exclusive=kind.exclusive):
            text = f"Plan {row.id} is being executed by another request; look at its result."
            await self._records.audit_refusal(actor, action, row, text, confirmation.reason)
            raise Conflict(text)
        self._execution.start(replace(row, reason=confirmation.reason.strip()), actor)

    async def revert(self, actor: Actor, plan_id: int, *, reason: str | None = None) -> int:
        """A new plan that puts back what `plan_id` found; its number. It is executed like any other."""
        row = await self.get(plan_id)
        action = f"revert {row.kind}"
        await self._records.require_operator(actor, action, object_of(row), row)
        kind = self._planner.kind(row.kind)
        inputs = None
        problem = f"Plan {plan_id} is {row.state}; only a plan that has changed something can be reverted."
        if PlanState(row.state) in REVERTIBLE:
            inputs = kind.revert_inputs(parse(kind, row.inputs), row.snapshot)
            problem = f"What plan {plan_id} did cannot be taken back."
        if inputs is None:
            await self._records.audit_refusal(actor, action, row, problem, reason)
            raise Conflict(problem)
        return await self._planner.plan(actor, row.kind, inputs, reason, reverts_id=plan_id)

    async def send_command(
        self, actor: Actor, plan_id: int, command: PlanCommand, *, throttle_bytes_per_s: int | None = None
    ) -> OperationRow:
        """Pauses, resumes or stops a plan that is being carried out, or gives it another limit; the plan then.

        Raises OperationError: nothing was changed.
        """
        row = await self.get(plan_id)
        action = f"{command.value} {row.kind}"
        await self._records.require_operator(actor, action, object_of(row), row)
        problem = refusal_of(row, self._planner.kind(row.kind), command)
        if problem is not None:
            await self._records.audit_refusal(actor, action, row, problem, None)
            raise Conflict(problem)
        await store_command(self._context, self._records, actor, row, command, throttle_bytes_per_s)
        return await self.get(plan_id)

    async def get(self, plan_id: int) -> OperationRow:
        """A plan as it is now. Raises NotFound, ClusterAway when the database is away."""
        return await self._records.get(plan_id)

    async def recent(
        self, limit: int, kinds: list[str] | None, states: list[str] | None, before_id: int | None = None
    ) -> list[OperationRow]:
        """Plans, newest first; `before_id` continues below the last one of the page before."""
        cluster_id = self._context.cluster_id
        return await self._records.read(
            lambda c: queries.operations(c, cluster_id, kinds=kinds, states=states, limit=limit, before_id=before_id)
        )

    async def recover(self, before_ms: int) -> int:
        """Looks after plans that a process before left in the middle: verified, or failed with what is known.

        Raises DatabaseAway.
        """
        return await self._execution.recover(before_ms)

    async def refused(self, actor: Actor, action: str, object_: str, detail: str) -> None:
        """Audits a call that was turned away before it reached an operation."""
        entry = AuditEntry(actor, action, object_, AuditResult.REFUSED, detail=detail)
        await self._records.write(lambda c: append_entry(c, self._context.cluster_id, entry))

    async def close(self) -> None:
        """Waits a moment for running executions; they are stored step by step, so the next start goes on from there."""
        await self._execution.close()
