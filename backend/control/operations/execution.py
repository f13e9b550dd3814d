"""Carries out a plan that was requested: ask Kafka, store that it accepted, look until it is in effect, store the end.

Runs as a task of its own: a browser that goes away does not stop it. After a crash `recover` finds the plan in the
state that was stored last and looks at the cluster, which knows best what happened.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Connection

from backend.control.clock import now_ms
from backend.control.database import DatabaseAway
from backend.control.gateway.client import sentence
from backend.control.gateway.errors import GatewayError
from backend.control.operations.audit import Actor, AuditEntry, AuditResult, Role, record
from backend.control.operations.kinds import Kind, Site
from backend.control.operations.plan import Json, Verification
from backend.control.operations.states import OPEN, PlanState, sources
from backend.protocol.errors import KafkaError
from backend.store.queries import audit as queries
from backend.store.queries.audit import OperationRow
from backend.store.writes_operations import advance_operation

VERIFY_TIMEOUT_S: Final = 15.0
VERIFY_INTERVAL_S: Final = 0.2
STORE_RETRY_S: Final = 1.0
# How long a stop of this process waits for executions; what is left is recovered at the next start.
CLOSE_TIMEOUT_S: Final = 5.0
_log = logging.getLogger(__name__)


class Execution:
    """The executions in progress in this process."""

    def __init__(self, site: Site, kinds: Mapping[str, Kind[Any]], after_change: Callable[[], None]) -> None:
        self._site = site
        self._kinds = kinds
        self._after_change = after_change
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, row: OperationRow, actor: Actor) -> None:
        """Begins the execution of a plan that was taken for it (REQUESTED)."""
        task = asyncio.create_task(self._run(row, actor), name=f"plan-{row.id}")
        self._tasks[row.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(row.id, None))

    async def wait(self, plan_id: int, timeout_s: float) -> None:
        """Until the plan's execution has ended, if it is running here, or the time is up."""
        task = self._tasks.get(plan_id)
        if task is not None:
            await asyncio.wait({task}, timeout=timeout_s)

    async def close(self) -> None:
        """Gives running executions a moment."""
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=CLOSE_TIMEOUT_S)
        for task in list(self._tasks.values()):
            task.cancel()

    async def recover(self, before_ms: int) -> int:
        """Ends plans requested before `before_ms` that are still open; how many. Raises DatabaseAway."""
        states = [state.value for state in OPEN]
        cluster_id = self._site.cluster_id
        left = await self._site.database.read(lambda c: queries.operations(c, cluster_id, states=states))
        stopped = [row for row in left if row.id not in self._tasks and (row.requested_ms or 0) < before_ms]
        for row in stopped:
            await self._recover(row)
        return len(stopped)

    async def _run(self, row: OperationRow, actor: Actor) -> None:
        kind = self._kinds[row.kind]
        inputs = kind.inputs.model_validate(row.inputs)
        steps: list[Json] = []
        try:
            await kind.apply(self._site, inputs, row.snapshot)
        except KafkaError as error:
            await self._end(row, actor, PlanState.FAILED, f"Kafka refused the change. {sentence(error)}", steps)
            return
        except GatewayError as error:
            # Whether Kafka took it is not known: the cluster itself tells.
            steps.append(_step("unanswered", sentence(error)))
        except Exception:
            _log.exception("Plan %d (%s) failed while it was sent", row.id, row.kind)
            await self._end(row, actor, PlanState.FAILED, "A fault of this program; see the backend's log.", steps)
            return
        else:
            steps.append(_step(PlanState.ACCEPTED, "Kafka accepted the change."))
            await self._store(row, PlanState.ACCEPTED, actor, steps, None)
        self._after_change()
        verification = await self._verify(row, kind, inputs)
        self._after_change()
        state = PlanState.VERIFIED if verification.done else PlanState.FAILED
        await self._end(row, actor, state, verification.sentence, steps, verification.detail)

    async def _recover(self, row: OperationRow) -> None:
        """One look at the cluster decides. An unfinished plan is never sent again: a person plans anew."""
        kind = self._kinds.get(row.kind)
        who = Actor(str((row.result or {}).get("executed_by", row.author)), Role.OPERATOR)
        steps = list((row.result or {}).get("steps", []))
        steps.append(_step("recovered", "The backend was stopped in the middle; it looked at the cluster again."))
        if kind is None:
            await self._end(row, who, PlanState.FAILED, f"This version does not know the kind {row.kind}.", steps)
            return
        verification = await self._verify(row, kind, kind.inputs.model_validate(row.inputs))
        state = PlanState.VERIFIED if verification.done else PlanState.FAILED
        text = verification.sentence
        if not verification.done:
            text = f"The backend was stopped in the middle. {text} Make a new plan to go on, or revert this one."
        await self._end(row, who, state, text, steps, verification.detail)

    async def _verify(self, row: OperationRow, kind: Kind[Any], inputs: Any) -> Verification:
        """Looks until the change is in effect everywhere, at most VERIFY_TIMEOUT_S."""
        deadline_s = time.monotonic() + VERIFY_TIMEOUT_S
        while True:
            try:
                found = await kind.verify(self._site, inputs, row.snapshot)
            except (GatewayError, KafkaError) as error:
                found = Verification(False, f"The cluster cannot be asked whether it is in effect. {sentence(error)}")
            if found.done or time.monotonic() + VERIFY_INTERVAL_S > deadline_s:
                return found
            await asyncio.sleep(VERIFY_INTERVAL_S)

    async def _end(
        self,
        row: OperationRow,
        actor: Actor,
        state: PlanState,
        text: str,
        steps: list[Json],
        detail: Json | None = None,
    ) -> None:
        steps.append(_step(state, text))
        _log.info("Plan %d (%s): %s", row.id, row.kind, text)
        await self._store(row, state, actor, steps, detail)

    async def _store(
        self, row: OperationRow, state: PlanState, actor: Actor, steps: list[Json], detail: Json | None
    ) -> None:
        """Stores a step and its audit together; waits for a database that is away: the change has been made."""
        at_ms = now_ms()
        sentence_ = str(steps[-1]["sentence"])
        result = {"executed_by": actor.name, "sentence": sentence_, "steps": list(steps), "verification": detail}
        values: Json = {"state": state.value, "updated_ms": at_ms, "result": result}
        if state is not PlanState.ACCEPTED:
            values["finished_ms"] = at_ms

        def job(connection: Connection) -> None:
            cluster_id = self._site.cluster_id
            from_states = {source.value for source in sources(state)}
            if not advance_operation(connection, cluster_id, row.id, from_states, values):
                _log.error("Plan %d (%s) was not in a state that leads to %s", row.id, row.kind, state.value)
                return
            if state is PlanState.VERIFIED and row.reverts_id is not None:
                reverted = {"state": PlanState.REVERTED.value, "updated_ms": at_ms}
                before = {source.value for source in sources(PlanState.REVERTED)}
                advance_operation(connection, cluster_id, row.reverts_id, before, reverted)
            record(connection, cluster_id, _audit(row, actor, state, sentence_))

        while True:
            try:
                await self._site.database.write(job)
                return
            except DatabaseAway as error:
                _log.warning("Plan %d waits to be stored as %s: %s", row.id, state.value, error)
                await asyncio.sleep(STORE_RETRY_S)


def _step(state: str, text: str) -> Json:
    return {"at_ms": now_ms(), "state": str(state), "sentence": text}


def _audit(row: OperationRow, actor: Actor, state: PlanState, detail: str) -> AuditEntry:
    results = {PlanState.ACCEPTED: AuditResult.ACCEPTED, PlanState.VERIFIED: AuditResult.VERIFIED}
    action = f"{'revert' if row.reverts_id is not None else 'execute'} {row.kind}"
    object_ = str((row.diff or {}).get("object", row.kind))
    result = results.get(state, AuditResult.FAILED)
    return AuditEntry(actor, action, object_, result, detail, row.reason, row.id, row.diff, row.cli)
