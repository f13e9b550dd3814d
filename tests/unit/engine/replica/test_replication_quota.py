"""Throttles of a reassignment: which replicas wait, which never do, and that all arrive once the throttle is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from immutables import Map

from backend.engine.common.rates import Windows
from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage
from backend.engine.replica.replica_manager import EMPTY_FETCH_RESPONSE_BYTES
from backend.engine.replica.replication_quota import ReplicationQuota, Side, throttled_partitions
from tests.unit.engine.replica.nodes import Nodes

NOW_MS = 1_000_000.0
TOPIC, BROKER = 2, 4
BATCHES = 20
# One batch a fetch.
SMALL = "100"


def test_a_setting_names_partitions_by_broker_or_all_of_them() -> None:
    assert throttled_partitions("0:1,1:2, 3:1", 1) == frozenset({0, 3})
    assert throttled_partitions("", 1) == frozenset()
    assert throttled_partitions("*", 1) is None


def image(rate: str | None, **replicas: str) -> MetadataImage:
    configs = {(TOPIC, topic): Map({"leader.replication.throttled.replicas": text}) for topic, text in replicas.items()}
    if rate is not None:
        configs[(BROKER, "1")] = Map({"leader.replication.throttled.rate": rate})
    return replace(EMPTY_IMAGE, configs=Map(configs))


def test_only_named_replicas_wait_and_only_beyond_the_rate() -> None:
    quota = ReplicationQuota("leader", 1, Windows())
    quota.update(image("1000", orders="0:1", clicks="*", other="0:2"))
    assert [quota.is_throttled(*tp) for tp in (("orders", 0), ("orders", 1), ("clicks", 7), ("other", 0))] == [
        True, False, True, False,
    ]  # fmt: skip
    quota.record(1000, NOW_MS)
    assert not quota.throttles("orders", 0, NOW_MS)
    quota.record(1, NOW_MS)
    assert quota.throttles("orders", 0, NOW_MS)
    assert not quota.throttles("orders", 1, NOW_MS)
    assert not quota.throttles("orders", 0, NOW_MS + 2000)


def test_without_a_rate_nothing_waits_and_a_new_rate_counts_at_once() -> None:
    quota = ReplicationQuota("leader", 1, Windows())
    quota.update(image(None, orders="*"))
    quota.record(10**12, NOW_MS)
    assert not quota.throttles("orders", 0, NOW_MS)
    quota.update(image("5", orders="*"))
    assert quota.throttles("orders", 0, NOW_MS)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_new_replica_waits_for_the_throttle_and_members_of_the_isr_do_not(tmp_path: Path, side: Side) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, replica_fetch_max_bytes=SMALL, replica_fetch_response_max_bytes=SMALL) as nodes:
            nodes.create("orders", [1, 2])
            throttled = nodes[1].replicas.leader_quota if side == "leader" else nodes[3].replicas.follower_quota
            for _ in range(BATCHES):
                await nodes.produce(1, "orders", b"v")
            slow = {f"{side}_replication_throttled_rate": "1"}
            nodes.config(BROKER, "1" if side == "leader" else "3", **slow)
            nodes.config(TOPIC, "orders", **{f"{side}_replication_throttled_replicas": "*"})
            await nodes.reassign("orders", 1, 2, 3)
            now_ms = nodes[1].ports.clock.monotonic_ms
            await nodes.until("the throttle holds back", lambda: throttled.exceeded(now_ms()))
            # The other follower is in the ISR: what is acknowledged is acknowledged.
            row = await nodes.produce(1, "orders", b"w", timeout_ms=5000)
            assert row.error_code == 0
            assert nodes[3].offsets("orders")[3] < BATCHES
            fast = {f"{side}_replication_throttled_rate": "1000000000"}
            nodes.config(BROKER, "1" if side == "leader" else "3", **fast)
            await nodes.in_sync("orders", 1, 2, 3)
            assert nodes[3].offsets("orders")[3] == BATCHES + 1

    asyncio.run(run())


def test_a_response_without_records_counts_so_that_a_limit_of_a_byte_lets_nothing_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Kafka counts the frame of each response to a follower: played on 4.3.1, such a move stalls."""

    async def run() -> None:
        async with Nodes(tmp_path, replica_fetch_max_bytes=SMALL, replica_fetch_response_max_bytes=SMALL) as nodes:
            nodes.create("orders", [1, 2])
            nodes.config(BROKER, "1", leader_replication_throttled_rate="1")
            nodes.config(TOPIC, "orders", leader_replication_throttled_replicas="*")
            quota = nodes[1].replicas.leader_quota
            sizes: list[int] = []
            record = quota.record

            def recorded(size_bytes: int, now_ms: float) -> None:
                sizes.append(size_bytes)
                record(size_bytes, now_ms)

            monkeypatch.setattr(quota, "record", recorded)
            await nodes.until("an idle follower is counted", lambda: sizes.count(EMPTY_FETCH_RESPONSE_BYTES) >= 3)
            assert quota.exceeded(nodes[1].ports.clock.monotonic_ms())

    asyncio.run(run())
