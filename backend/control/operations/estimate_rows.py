"""The estimate that a plan of the toggle carries, read from the samples and the ledger."""

from __future__ import annotations

from backend.control.operations.lifecycle.plan_draft import JsonObject
from backend.control.operations.operation_kind import OperationContext
from backend.control.wall_clock import now_ms
from backend.store.queries import operations


async def read_estimate(context: OperationContext, *, kafka_rules: bool) -> JsonObject:
    """One new replica for every tiered partition, with the age of the samples that this rests on."""
    return await context.database.read(
        lambda c: operations.bootstrap_estimate(c, context.cluster_id, kafka_rules=kafka_rules, now_ms=now_ms())
    )
