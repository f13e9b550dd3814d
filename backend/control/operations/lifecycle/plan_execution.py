"""Carries out a plan that was requested: ask Kafka, store that it accepted, look until it is in effect, store the end.

Runs as an own task: a browser that goes away does not stop it. After a crash `recover` finds the plan in the
state that was stored last and looks at the cluster, which knows best what happened. A lasting plan goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import describe_failure
from backend.control.operations.audit_entries import Actor, ActorRole
from backend.control.operations.lifecycle.long_running import LongRunningExecution
from backend.control.operations.lifecycle.plan_draft import PlanVerification
from backend.control.operations.lifecycle.plan_journal import PlanJournal
from backend.control.operations.lifecycle.plan_states import OPEN, PlanState
from backend.control.operations.operation_errors import OperationError
from backend.control.operations.operation_kind import AnyKind, LongRunningKind, OperationContext, SingleRequestKind
from backend.protocol.errors import KafkaError
from backend.store.queries import audit as queries
from backend.store.queries.audit import OperationRow

VERIFY_TIMEOUT_S: Final = 15.0
VERIFY_INTERVAL_S: Final = 0.2
# A request, its verification, and a database that is slow to take the end.
REQUEST_TIMEOUT_S: Final = 30.0
# Time that a stop of this process gives executions; the rest is recovered at the next start.
CLOSE_TIMEOUT_S: Final = 5.0
_log = logging.getLogger(__name__)


class PlanExecutor:
    """The executions in progress in this process."""

    def __init__(self, context: OperationContext, kinds: Mapping[str, AnyKind], on_change: Callable[[], None]) -> None:
        self._context = context
        self._kinds = kinds
        self._on_change = on_change
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._long_running: set[int] = set()

    def start(self, row: OperationRow, actor: Actor) -> None:
        """Begins, or goes on with, the execution of a plan that was taken for it."""
        journal = PlanJournal(self._context, row, actor)
        kind = self._kinds[row.kind]
        if isinstance(kind, LongRunningKind):
            run = LongRunningExecution(self._context, kind, journal, self._on_change).run()
            self._long_running.add(row.id)
        else:
            run = self._run(row, kind, journal)
        task = asyncio.create_task(run, name=f"plan-{row.id}")
        self._tasks[row.id] = task
        task.add_done_callback(lambda _: self._forget(row.id))

    def _forget(self, plan_id: int) -> None:
        self._tasks.pop(plan_id, None)
        self._long_running.discard(plan_id)

    async def wait(self, plan_id: int, timeout_s: float) -> None:
        """Until the plan's execution has ended, if it is running here, or the time is up."""
        task = self._tasks.get(plan_id)
        if task is not None:
            await asyncio.wait({task}, timeout=timeout_s)

    async def requests_ended(self) -> bool:
        """Waits for executions that are one request, until their effect was seen; False: one takes too long."""
        running = {task for plan_id, task in self._tasks.items() if plan_id not in self._long_running}
        if running:
            _, running = await asyncio.wait(running, timeout=REQUEST_TIMEOUT_S)
        return not running

    async def close(self) -> None:
        """Gives running executions a moment; those that take hours anyway go on at the next start."""
        for plan_id in list(self._long_running):
            self._tasks[plan_id].cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=CLOSE_TIMEOUT_S)
        for task in list(self._tasks.values()):
            task.cancel()

    async def recover(self, before_ms: int) -> int:
        """Looks after plans requested before `before_ms` that are still open; how many. Raises DatabaseAway."""
        states = [state.value for state in OPEN]
        cluster_id = self._context.cluster_id
        left = await self._context.database.read(lambda c: queries.operations(c, cluster_id, states=states))
        stopped = [row for row in left if row.id not in self._tasks and (row.requested_ms or 0) < before_ms]
        for row in stopped:
            await self._recover(row)
        return len(stopped)

    async def _run(self, row: OperationRow, kind: SingleRequestKind[Any], journal: PlanJournal) -> None:
        try:
            await kind.apply(self._context, kind.inputs.model_validate(row.inputs), row.snapshot)
        except KafkaError as error:
            await journal.move(PlanState.FAILED, f"Kafka refused the change. {describe_failure(error)}")
            return
        except OperationError as error:  # a topic or a leader that went after the checks
            await journal.move(PlanState.FAILED, str(error))
            return
        except GatewayError as error:
            # It is not known whether Kafka accepted it: `_verify` reads the cluster.
            journal.note("unanswered", describe_failure(error))
        except Exception:
            # A plan that stayed as it is would hold up all later ones: it ends as failed.
            _log.exception("Plan %d (%s) failed while it was sent", row.id, row.kind)
            await journal.move(PlanState.FAILED, "A fault of this program; see the backend's log.")
            return
        else:
            await journal.move(PlanState.ACCEPTED, "Kafka accepted the change.")
        self._on_change()
        verification = await self._verify(row, kind)
        self._on_change()
        state = PlanState.VERIFIED if verification.done else PlanState.FAILED
        await journal.move(state, verification.sentence, verification.detail)

    async def _recover(self, row: OperationRow) -> None:
        """One reading of the cluster decides. A single request is never sent again: a person makes a new plan."""
        kind = self._kinds.get(row.kind)
        who = Actor(str((row.result or {}).get("executed_by", row.author)), ActorRole.OPERATOR)
        journal = PlanJournal(self._context, row, who)
        if kind is None:
            await journal.move(PlanState.FAILED, f"This version does not know the kind {row.kind}.")
            return
        if isinstance(kind, LongRunningKind):
            _log.warning("Plan %d (%s) goes on where the backend was stopped", row.id, row.kind)
            self.start(row, who)
            return
        journal.note("recovered", "The backend was stopped in the middle; it looked at the cluster again.")
        verification = await self._verify(row, kind)
        state = PlanState.VERIFIED if verification.done else PlanState.FAILED
        text = verification.sentence
        if not verification.done:
            text = f"The backend was stopped in the middle. {text} Make a new plan to go on, or revert this one."
        await journal.move(state, text, verification.detail)

    async def _verify(self, row: OperationRow, kind: AnyKind) -> PlanVerification:
        """Looks until the change is in effect everywhere, at most VERIFY_TIMEOUT_S. Never raises: a plan has an end."""
        deadline_s = time.monotonic() + VERIFY_TIMEOUT_S
        while True:
            try:
                verification = await kind.verify(self._context, kind.inputs.model_validate(row.inputs), row.snapshot)
            except (GatewayError, KafkaError) as error:
                verification = PlanVerification(
                    False, f"The cluster cannot be asked whether it is in effect. {describe_failure(error)}"
                )
            except OperationError as error:  # what it is about is gone
                verification = PlanVerification(False, str(error))
            except Exception:
                # Likewise: the plan ends, unverified.
                _log.exception("Plan %d (%s) cannot be verified", row.id, row.kind)
                return PlanVerification(False, "A fault of this program; see the backend's log.")
            if verification.done or time.monotonic() + VERIFY_INTERVAL_S > deadline_s:
                return verification
            await asyncio.sleep(VERIFY_INTERVAL_S)
