"""Handlers of the write flow: plan, look, execute, revert."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from backend.control.http.api_models import (
    DryRunAnswer,
    EmptyBody,
    ExecuteBody,
    LimitBody,
    PlanAnswer,
    PlanBody,
    PlanPath,
    PlansAnswer,
    PlansQuery,
    RevertBody,
)
from backend.control.http.call import Call, HandlerResult
from backend.control.http.plan_events import PlanEventStream
from backend.control.operations.lifecycle.execution_control import PlanCommand
from backend.control.operations.lifecycle.plan_claim import Confirmation
from backend.control.operations.lifecycle.plan_states import FINISHED, PlanState
from backend.control.operations.lifecycle.plan_store import version_of
from backend.control.operations.service import OperationService
from backend.store.queries.audit import OperationRow

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
IF_MATCH: Final = "If-Match"


class PlanHandlers:
    """Plans of changes, made and executed by `operations`."""

    def __init__(self, operations: OperationService) -> None:
        self._operations = operations

    async def create(self, call: Call) -> HandlerResult:
        """Plans a change. 201 with the stored plan, also when its checks refuse it; 200 for a dry run."""
        body: PlanBody = call.body
        if body.dry_run:
            snapshot, draft = await self._operations.dry_run(call.actor, body.kind, body.inputs)
            return HandlerResult(
                DryRunAnswer(
                    kind=body.kind,
                    refused=draft.refused,
                    snapshot=snapshot,
                    diff=draft.diff(),
                    checks=draft.checks_json(),
                    cli=list(draft.cli),
                    estimate=draft.estimate,
                )
            )
        plan_id = await self._operations.plan(call.actor, body.kind, body.inputs, reason=body.reason)
        return await self._created(call, plan_id)

    async def list_plans(self, call: Call) -> PlansAnswer:
        """Plans, newest first."""
        query: PlansQuery = call.query
        kinds = None if query.kind is None else [query.kind]
        states = None if query.state is None else [query.state]
        # One more row shows whether there is a next page.
        rows = await self._operations.recent(query.limit + 1, kinds, states, query.before_id)
        items = rows[: query.limit]
        return PlansAnswer(items=items, next_before_id=items[-1].id if len(rows) > query.limit else None)

    async def get(self, call: Call) -> HandlerResult:
        """One plan as it is now; its ETag can be given with the execution."""
        path: PlanPath = call.path
        return _response(await self._operations.get(path.plan_id))

    async def events(self, call: Call) -> HandlerResult:
        """The plan each time it changes, as server-sent events `plan`, until it has ended or after ten minutes."""
        path: PlanPath = call.path
        first = await self._operations.get(path.plan_id)
        feed = PlanEventStream(lambda: self._operations.get(path.plan_id), first, call.actor)
        stream: AsyncIterator[bytes] = feed.stream()
        return HandlerResult(stream, media_type="text/event-stream")

    async def execute(self, call: Call) -> HandlerResult:
        """Executes a plan once. 200 when it has ended, 202 while it still runs; its end is in the plan's state."""
        path: PlanPath = call.path
        body: ExecuteBody = call.body
        key, seen = call.headers[IDEMPOTENCY_KEY], call.headers.get(IF_MATCH)
        confirmation = Confirmation(key, body.confirm, body.reason, seen)
        row = await self._operations.execute(call.actor, path.plan_id, confirmation, wait_s=body.wait_ms / 1000)
        return _response(row, 200 if PlanState(row.state) in FINISHED else 202)

    async def pause(self, call: Call) -> HandlerResult:
        """Begins no further batch; what moves comes to its end."""
        return await self._send(call, PlanCommand.PAUSE)

    async def resume(self, call: Call) -> HandlerResult:
        """Goes on with a paused plan."""
        return await self._send(call, PlanCommand.RESUME)

    async def stop(self, call: Call) -> HandlerResult:
        """Ends the plan: finished parts stay, what moves goes back, what waits is left as it is."""
        return await self._send(call, PlanCommand.STOP)

    async def limit(self, call: Call) -> HandlerResult:
        """Gives a plan that is being carried out another limit."""
        body: LimitBody = call.body
        path: PlanPath = call.path
        row = await self._operations.send_command(
            call.actor, path.plan_id, PlanCommand.LIMIT, throttle_bytes_per_s=body.throttle_bytes_per_s
        )
        return _response(row)

    async def _send(self, call: Call, command: PlanCommand) -> HandlerResult:
        path: PlanPath = call.path
        body: EmptyBody = call.body
        del body  # takes nothing
        return _response(await self._operations.send_command(call.actor, path.plan_id, command))

    async def revert(self, call: Call) -> HandlerResult:
        """Plans the way back; the new plan is executed like any other."""
        path: PlanPath = call.path
        body: RevertBody = call.body
        return await self._created(call, await self._operations.revert(call.actor, path.plan_id, reason=body.reason))

    async def _created(self, call: Call, plan_id: int) -> HandlerResult:
        plan = await self._operations.get(plan_id)
        response = _response(plan, 201)
        return HandlerResult(response.body, 201, {**response.headers, "Location": f"/v1/plans/{plan_id}"})


def _response(plan: OperationRow, status: int = 200) -> HandlerResult:
    return HandlerResult(PlanAnswer(plan=plan), status, {"ETag": f'"{version_of(plan)}"'})
