"""Drives a plan that takes hours, step by step, until it is done, was stopped, or cannot go on; then cleans up.

Nothing but the cluster and the stored plan is remembered between steps. So a backend that was killed anywhere goes on
with the next step, and what only served the move (throttles) is removed before the plan ends, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import describe_failure
from backend.control.operations.lifecycle.plan_journal import PlanJournal
from backend.control.operations.lifecycle.plan_states import PlanState
from backend.control.operations.operation_kind import (
    ExecutionControl,
    LongRunningKind,
    OperationContext,
    StepResult,
)
from backend.protocol.errors import KafkaError
from backend.store.queries.audit import OperationRow

# A step costs the cluster a Metadata, a ListPartitionReassignments and a DescribeLogDirs for each broker that fills.
STEP_INTERVAL_S: Final = 0.5
RETRY_MAX_S: Final = 10.0
_log = logging.getLogger(__name__)


class LongRunningExecution:
    """One execution."""

    def __init__(
        self, context: OperationContext, kind: LongRunningKind[Any], journal: PlanJournal, on_change: Callable[[], None]
    ) -> None:
        self._context = context
        self._kind = kind
        self._journal = journal
        self._on_change = on_change
        self._row = journal.row
        self._inputs: Any = kind.inputs.model_validate(self._row.inputs)

    async def run(self) -> None:
        """Until the plan has ended. A cancelled run leaves a plan that another one goes on with."""
        if self._row.state in (PlanState.ACCEPTED, PlanState.RUNNING, PlanState.PAUSED):
            self._journal.note("recovered", "The backend was stopped in the middle; it goes on from what it finds.")
        try:
            state, text, detail = await self._steps()
        except Exception:
            # Throttles and leftovers of the plan are removed all the same, and it ends as failed.
            _log.exception("Plan %d (%s) failed", self._row.id, self._row.kind)
            state, text, detail = PlanState.FAILED, "A fault of this program; see the backend's log.", None
        clean, left = await self._clean()
        if left:
            state, text = state if clean else PlanState.FAILED, f"{text} {left}"
        await self._enter_running()
        await self._journal.move(state, text, detail)
        self._on_change()

    async def _steps(self) -> tuple[PlanState, str, Any]:
        pause_s = STEP_INTERVAL_S
        while True:
            self._row = await self._journal.now()
            control = _execution_control(self._row)
            try:
                step = await self._kind.step(self._context, self._inputs, self._row.snapshot, control)
            except KafkaError as error:
                if not error.retriable:
                    return PlanState.FAILED, f"Kafka refused the change. {describe_failure(error)}", control.progress
                step, pause_s = _waits(control, describe_failure(error)), min(RETRY_MAX_S, pause_s * 2)
            except GatewayError as error:
                step, pause_s = _waits(control, describe_failure(error)), min(RETRY_MAX_S, pause_s * 2)
            else:
                pause_s = STEP_INTERVAL_S
                await self._accepted(step)
            if step.progress != self._row.progress:
                await self._journal.progress(step.progress)
            if step.finished:
                if control.stopping:
                    return PlanState.STOPPED, step.sentence, step.progress
                return (PlanState.VERIFIED if step.done else PlanState.FAILED), step.sentence, step.progress
            await asyncio.sleep(pause_s)

    async def _accepted(self, step: StepResult) -> None:
        if self._row.state == PlanState.REQUESTED:
            await self._journal.move(PlanState.ACCEPTED, "Kafka accepted the change.")
            self._on_change()
        if self._row.state in (PlanState.REQUESTED, PlanState.ACCEPTED):
            await self._journal.move(PlanState.RUNNING, step.sentence)

    async def _enter_running(self) -> None:
        """From ACCEPTED there is no way to STOPPED: it ran."""
        if (await self._journal.now()).state == PlanState.ACCEPTED:
            await self._journal.move(PlanState.RUNNING, "It has run.")

    async def _clean(self) -> tuple[bool, str]:
        """Removes throttles; tries until the cluster answers. False: it cannot be done. And what stays."""
        pause_s = STEP_INTERVAL_S
        while True:
            try:
                return True, await self._kind.clean(self._context, self._inputs, self._row.snapshot)
            except KafkaError as error:
                if not error.retriable:
                    _log.error("Plan %d cannot clean up: %s", self._row.id, describe_failure(error))
                    text = f"Its limits could not be removed: {describe_failure(error)}"
                    return False, f"{text} Remove them with a plan of clear_throttle."
                reason = describe_failure(error)
            except GatewayError as error:
                reason = describe_failure(error)
            except Exception:  # a plan has an end, or no other move could ever begin
                _log.exception("Plan %d cannot clean up", self._row.id)
                text = "Its limits could not be removed by a fault of this program; see the backend's log."
                return False, f"{text} Remove them with a plan of clear_throttle."
            _log.warning("Plan %d waits to remove its limits: %s", self._row.id, reason)
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_MAX_S, pause_s * 2)


def _execution_control(row: OperationRow) -> ExecutionControl:
    return ExecutionControl(
        paused=row.state == PlanState.PAUSED,
        stopping=row.intent == "stop",
        throttle_bytes_per_s=row.throttle_bytes_per_s,
        progress=dict(row.progress or {}),
    )


def _waits(control: ExecutionControl, problem: str) -> StepResult:
    return StepResult({**control.progress, "problem": problem}, finished=False, done=False, sentence=problem)
