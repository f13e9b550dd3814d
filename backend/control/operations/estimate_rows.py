"""The estimate that a plan of the toggle carries, read from the samples and the ledger."""

from __future__ import annotations

from backend.control.operations.lifecycle.plan_draft import Json
from backend.control.operations.operation_kind import Site
from backend.control.wall_clock import now_ms
from backend.store.queries import operations


async def read_estimate(site: Site, *, kafka_rules: bool) -> Json:
    """One new replica for every tiered partition, with the age of the samples that this rests on."""
    return await site.database.read(
        lambda c: operations.bootstrap_estimate(c, site.cluster_id, kafka_rules=kafka_rules, now_ms=now_ms())
    )
