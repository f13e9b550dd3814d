"""Handlers of the write flow: plan, look, execute, revert."""

from __future__ import annotations

from backend.control.http.call import Answer, Call
from backend.control.http.schemas import (
    DryRunAnswer,
    ExecuteBody,
    PlanAnswer,
    PlanBody,
    PlanPath,
    PlansAnswer,
    PlansQuery,
    RevertBody,
)
from backend.control.operations.service import Confirmation
from backend.control.operations.states import FINISHED, PlanState

IDEMPOTENCY_KEY = "Idempotency-Key"


async def create(call: Call) -> Answer:
    """Plans a change. 201 with the stored plan, also when its checks refuse it; 200 for a dry run."""
    body: PlanBody = call.body
    operations = call.control.operations
    if body.dry_run:
        snapshot, draft = await operations.dry_run(call.actor, body.kind, body.inputs)
        return Answer(
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
    plan_id = await operations.plan(call.actor, body.kind, body.inputs, reason=body.reason)
    return await _created(call, plan_id)


async def list_plans(call: Call) -> PlansAnswer:
    """Plans, newest first."""
    query: PlansQuery = call.query
    kinds = None if query.kind is None else [query.kind]
    states = None if query.state is None else [query.state]
    return PlansAnswer(items=await call.control.operations.recent(query.limit, kinds, states))


async def get(call: Call) -> PlanAnswer:
    """One plan as it is now."""
    path: PlanPath = call.path
    return PlanAnswer(plan=await call.control.operations.get(path.plan_id))


async def execute(call: Call) -> Answer:
    """Executes a plan once. 200 when it has ended, 202 while it still runs; the plan's state tells how."""
    path: PlanPath = call.path
    body: ExecuteBody = call.body
    confirmation = Confirmation(call.headers[IDEMPOTENCY_KEY], body.confirm, body.reason)
    row = await call.control.operations.execute(call.actor, path.plan_id, confirmation, wait_s=body.wait_ms / 1000)
    return Answer(PlanAnswer(plan=row), 200 if PlanState(row.state) in FINISHED else 202)


async def revert(call: Call) -> Answer:
    """Plans the way back; the new plan is executed like any other."""
    path: PlanPath = call.path
    body: RevertBody = call.body
    return await _created(call, await call.control.operations.revert(call.actor, path.plan_id, reason=body.reason))


async def _created(call: Call, plan_id: int) -> Answer:
    plan = await call.control.operations.get(plan_id)
    return Answer(PlanAnswer(plan=plan), 201, {"Location": f"/v1/plans/{plan_id}"})
