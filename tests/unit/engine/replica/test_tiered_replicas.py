"""Replicas of tiered partitions: where new ones start, with KIP-1023's flag off and on, and what each then holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.image.metadata_image import BROKER_RESOURCE
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message
from tests.unit.engine.replica.nodes import SMALL_SEGMENTS, Nodes, play

FLAG = {"follower_fetch_last_tiered_offset_enable": "true"}
# Retention that drops every tiered segment but the active one, or nothing at all.
DROP_LOCAL = {**SMALL_SEGMENTS, "local_retention_bytes": "1"}


async def seven_records(nodes: Nodes, *, local: bool) -> None:
    """0-5 tiered in segments of two, 6 in the active segment, replicas 1 and 2."""
    settings = SMALL_SEGMENTS if local else DROP_LOCAL
    nodes.create("orders", [1, 2], **settings)
    for number in range(7):
        assert (await nodes.produce(1, "orders", b"v%d" % number)).error_code == 0
    await nodes.tiered_up_to(1, "orders", 5)
    await nodes.tiered_up_to(2, "orders", 5)
    if not local:
        await nodes.retain(1, 2)
        assert nodes[1].offsets("orders") == (0, 6, 7, 7)


@pytest.mark.parametrize(
    ("local", "flag", "start"),
    [(True, False, 0), (True, True, 0), (False, False, 6), (False, True, 6)],
    ids=["all local", "all local, flag on: no effect", "local start", "pending upload"],
)
def test_where_a_new_replica_starts(tmp_path: Path, local: bool, flag: bool, start: int) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            await seven_records(nodes, local=local)
            if flag:
                nodes.config(BROKER_RESOURCE, "", **FLAG)
            await nodes.reassign("orders", 1, 2, 3)
            await nodes.in_sync("orders", 1, 2, 3)
            assert nodes[3].offsets("orders") == (0, start, 7, 7)
            assert nodes[3].values("orders") == [(number, b"v%d" % number) for number in range(start, 7)]
            row = await nodes.fetch(3, "orders", 0)
            assert (row.error_code, bool(row.records), row.high_watermark) == (0, True, 7)

    play(run)


async def local_start_below_pending(nodes: Nodes) -> None:
    """Local from 2, tiered up to 5: only the flag makes a difference."""
    nodes.create("orders", [1, 2], **SMALL_SEGMENTS)
    for number in range(2):
        await nodes.produce(1, "orders", b"v%d" % number)
    await nodes.produce(1, "orders", b"v2")
    await nodes.tiered_up_to(1, "orders", 1)
    log = nodes[1].partition("orders").log
    from dataclasses import replace

    log.config = replace(log.config, local_retention_bytes=1)
    await nodes.retain(1)
    assert nodes[1].offsets("orders")[1] == 2
    log.config = replace(log.config, local_retention_bytes=-2)
    for number in range(3, 7):
        await nodes.produce(1, "orders", b"v%d" % number)
    await nodes.tiered_up_to(1, "orders", 5)


@pytest.mark.parametrize(("flag", "start"), [(False, 2), (True, 6)])
def test_the_flag_skips_what_is_tiered_though_still_local(tmp_path: Path, flag: bool, start: int) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            await local_start_below_pending(nodes)
            if flag:
                nodes.config(BROKER_RESOURCE, "3", **FLAG)
            await nodes.reassign("orders", 1, 2, 3)
            await nodes.in_sync("orders", 1, 2, 3)
            assert nodes[3].offsets("orders") == (0, start, 7, 7)
            leader = nodes[1].partition("orders").log
            follower = nodes[3].partition("orders").log
            assert follower.leader_epochs.entries == leader.leader_epochs.entries
            phases = nodes[3].events.phases("orders")
            assert phases[0] == "TRUNCATING"
            assert "BUILDING_REMOTE_AUX" in phases
            await nodes.until("IN_SYNC", lambda: nodes[3].events.phases("orders")[-1] == "IN_SYNC")

    play(run)


def test_only_the_new_replicas_own_broker_counts(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            await local_start_below_pending(nodes)
            nodes.config(BROKER_RESOURCE, "1", **FLAG)
            nodes.config(BROKER_RESOURCE, "2", **FLAG)
            await nodes.reassign("orders", 1, 2, 3)
            await nodes.in_sync("orders", 1, 2, 3)
            assert nodes[3].offsets("orders")[1] == 2

    play(run)


def test_a_brokers_own_false_overrides_the_clusters_true(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            await local_start_below_pending(nodes)
            nodes.config(BROKER_RESOURCE, "", **FLAG)
            nodes.config(BROKER_RESOURCE, "3", follower_fetch_last_tiered_offset_enable="false")
            await nodes.reassign("orders", 1, 2, 3)
            await nodes.in_sync("orders", 1, 2, 3)
            assert nodes[3].offsets("orders")[1] == 2

    play(run)


async def everything_tiered(nodes: Nodes) -> None:
    """0-5 tiered, local log empty at 6."""
    nodes.create("orders", [1, 2], **DROP_LOCAL, local_retention_ms="1")
    for number in range(6):
        await nodes.produce(1, "orders", b"v%d" % number)
    await nodes.tiered_up_to(1, "orders", 3)
    # The last segment is old and full: retention rolls it, so that it can be tiered and dropped as well.
    await nodes.until("the high watermark on 2", lambda: nodes[2].offsets("orders")[2] == 6)
    await nodes.retain(1, 2)
    await nodes.tiered_up_to(1, "orders", 5)
    await nodes.tiered_up_to(2, "orders", 5)
    await nodes.retain(1, 2)
    assert nodes[1].offsets("orders") == (0, 6, 6, 6)


@pytest.mark.parametrize("flag", [False, True])
def test_a_replica_joins_though_everything_is_tiered(tmp_path: Path, flag: bool) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            await everything_tiered(nodes)
            if flag:
                nodes.config(BROKER_RESOURCE, "", **FLAG)
            await nodes.reassign("orders", 1, 2, 3)
            await nodes.in_sync("orders", 1, 2, 3)
            assert nodes[3].offsets("orders") == (0, 6, 6, 6)
            assert (await nodes.produce(1, "orders", b"new")).base_offset == 6
            row = await nodes.fetch(3, "orders", 0)
            assert row.records

    play(run)


def test_kafkas_way_keeps_a_replica_out_while_everything_is_tiered(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True, follower_fetch_tiered_compat="kafka") as nodes:
            await everything_tiered(nodes)
            nodes.config(BROKER_RESOURCE, "", **FLAG)
            await nodes.reassign("orders", 1, 2, 3)
            await nodes.until("three attempts", lambda: attempts(nodes, 3) >= 3)
            assert nodes[3].offsets("orders") == (0, 0, 0, 0)
            nodes.config(BROKER_RESOURCE, "", follower_fetch_last_tiered_offset_enable="false")
            await nodes.in_sync("orders", 1, 2, 3)
            assert nodes[3].offsets("orders") == (0, 6, 6, 6)

    play(run)


def attempts(nodes: Nodes, node: int, topic: str = "orders") -> int:
    counts = [seen["attempts"] for kind, seen in nodes[node].events.seen if kind == "phase" and seen["topic"] == topic]
    return max(counts, default=0)


async def delete_before(nodes: Nodes, offset: int) -> None:
    topics = m.DeleteRecordsRequest.Topics
    parts = [topics.Partitions(partition_index=0, offset=offset)]
    request = m.DeleteRecordsRequest(topics=[topics(name="orders", partitions=parts)], timeout_ms=5000)
    answer = await nodes[1].ask(request, 2)
    assert answer.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize(
    ("delete", "start"), [(3, (3, 6, 7, 7)), (6, (6, 6, 7, 7)), (7, (7, 7, 7, 7))], ids=["in remote", "to local", "all"]
)
def test_a_replica_joins_after_records_were_deleted(
    tmp_path: Path, delete: int, start: tuple[int, int, int, int]
) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            await seven_records(nodes, local=False)
            nodes.config(BROKER_RESOURCE, "", **FLAG)
            await delete_before(nodes, delete)
            await nodes.reassign("orders", 1, 2, 3)
            await nodes.in_sync("orders", 1, 2, 3)
            assert nodes[3].offsets("orders") == start

    play(run)


def test_a_follower_that_fell_behind_the_local_log_rebuilds(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True, replica_lag_time_max_ms="300") as nodes:
            nodes.create("orders", [1, 2], **DROP_LOCAL)
            for number in range(2):
                await nodes.produce(1, "orders", b"v%d" % number)
            await nodes.stop(2)
            await nodes.in_sync("orders", 1)
            for number in range(2, 7):
                await nodes.produce(1, "orders", b"v%d" % number)
            await nodes.tiered_up_to(1, "orders", 5)
            await nodes.retain(1)
            await nodes.restart(2)
            await nodes.in_sync("orders", 1, 2)
            assert nodes[2].offsets("orders") == (0, 6, 7, 7)
            leader, follower = (nodes[node].partition("orders").log for node in (1, 2))
            assert follower.leader_epochs.entries == leader.leader_epochs.entries
            reads = [await nodes.fetch(2, "orders", offset) for offset in range(7)]
            assert all(row.error_code == 0 and row.records for row in reads)

    play(run)


# Kafka's TierStateMachineTest, with its numbers.


ROLLED_BY_HAND = {"remote_storage_enable": "true", "retention_ms": "-1", "local_retention_bytes": "1"}


async def produce(nodes: Nodes, first: int, end: int, *, roll_at: int) -> None:
    """One record a batch, to broker 1; a segment ends before `roll_at`."""
    for number in range(first, end):
        if number == roll_at:
            nodes[1].partition("orders").log.roll()
        assert (await nodes.produce(1, "orders", b"v%d" % number)).base_offset == number


def fetched_at(nodes: Nodes, node: int) -> list[tuple[int, ErrorCode]]:
    """(offset, error) of each Fetch of a follower with a new position; filled while the cluster runs."""
    fetches: list[tuple[int, ErrorCode]] = []

    def listen(sender: int, _: int, request: Message, answer: Message) -> None:
        if sender != node or not isinstance(request, m.FetchRequest) or not isinstance(answer, m.FetchResponse):
            return
        requested = [part.fetch_offset for topic in request.topics for part in topic.partitions]
        error_codes = [ErrorCode(part.error_code) for topic in answer.responses for part in topic.partitions]
        for row in zip(requested, error_codes, strict=False):
            if row not in fetches:
                fetches.append(row)

    nodes.listen = listen
    return fetches


def test_a_follower_with_records_behind_the_leaders_local_start_goes_on_there(tmp_path: Path) -> None:
    """Follower 0-2; leader 0-4 remote only, 5-8 local."""

    async def run() -> None:
        async with Nodes(tmp_path, 2, tiered=True, replica_lag_time_max_ms="300") as nodes:
            nodes.create("orders", [1, 2], **ROLLED_BY_HAND)
            await produce(nodes, 0, 3, roll_at=5)
            await nodes.stop(2)
            await nodes.in_sync("orders", 1)
            await produce(nodes, 3, 9, roll_at=5)
            await nodes.tiered_up_to(1, "orders", 4)
            await nodes.retain(1)
            assert nodes[1].offsets("orders") == (0, 5, 9, 9)
            fetched = fetched_at(nodes, 2)
            await nodes.restart(2)
            await nodes.in_sync("orders", 1, 2)
            assert fetched[:2] == [(3, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE), (5, ErrorCode.NONE)]
            assert nodes[2].offsets("orders") == (0, 5, 9, 9)
            assert nodes[2].values("orders") == [(number, b"v%d" % number) for number in range(5, 9)]

    play(run)


def test_an_empty_follower_goes_to_the_leaders_log_start_first_and_to_its_local_start_from_there(
    tmp_path: Path,
) -> None:
    """Leader 0-6 remote only, 7-10 local, log start 5."""

    async def run() -> None:
        async with Nodes(tmp_path, 2, tiered=True) as nodes:
            nodes.create("orders", [1], **ROLLED_BY_HAND)
            await produce(nodes, 0, 11, roll_at=7)
            await nodes.tiered_up_to(1, "orders", 6)
            await nodes.retain(1)
            await delete_before(nodes, 5)
            assert nodes[1].offsets("orders") == (5, 7, 11, 11)
            fetched = fetched_at(nodes, 2)
            await nodes.reassign("orders", 1, 2)
            await nodes.in_sync("orders", 1, 2)
            assert [row for row in fetched if row[0] < 11] == [
                (0, ErrorCode.OFFSET_OUT_OF_RANGE),
                (5, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE),
                (7, ErrorCode.NONE),
            ]
            assert nodes[2].offsets("orders") == (5, 7, 11, 11)
            assert nodes[2].values("orders") == [(number, b"v%d" % number) for number in range(7, 11)]

    play(run)


def test_a_follower_that_is_fenced_while_it_builds_asks_no_more_until_the_next_leader_epoch(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            await seven_records(nodes, local=False)
            messages: list[Message] = []

            def fence(sender: int, _: int, request: Message) -> ErrorCode | None:
                if sender != 3:
                    return None
                messages.append(request)
                return ErrorCode.FENCED_LEADER_EPOCH if isinstance(request, m.ListOffsetsRequest) else None

            nodes.refuse = fence
            await nodes.reassign("orders", 1, 2, 3)
            await nodes.until("it has failed", lambda: nodes[3].events.phases("orders")[-1:] == ["FAILED"])
            messages.clear()
            await asyncio.sleep(4 * nodes[3].config.replica_fetch_backoff_ms / 1000)
            about = [message for message in messages if isinstance(message, m.ListOffsetsRequest)]
            fetches = [message.topics for message in messages if isinstance(message, m.FetchRequest)]
            assert (about, [topics for topics in fetches if topics]) == ([], [])
            assert nodes[3].offsets("orders") == (0, 0, 0, 0)
            nodes.refuse = lambda *_: None
            topic_id = nodes.play.image.topic_ids["orders"]
            elected = m.PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1)
            nodes.apply(lambda _: ControllerResult((elected,), None))
            await nodes.in_sync("orders", 1, 2, 3)
            assert nodes[3].offsets("orders") == (0, 6, 7, 7)

    play(run)


def test_producer_state_of_a_rebuilt_replica_is_the_leaders(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, tiered=True) as nodes:
            nodes.create("orders", [1, 2], **DROP_LOCAL)
            idempotent = {"producer_id": 2001, "producer_epoch": 0}
            for number in range(7):
                await nodes.produce(1, "orders", b"v%d" % number, base_sequence=number, **idempotent)
            await nodes.tiered_up_to(1, "orders", 5)
            await nodes.retain(1)
            await nodes.reassign("orders", 3, 1, 2)
            await nodes.in_sync("orders", 1, 2, 3)
            state = nodes[3].partition("orders").log.producer_state
            assert state.snapshot_bytes(6) == nodes[1].partition("orders").log.producer_state.snapshot_bytes(6)
            assert len(state.snapshot_bytes(6) or b"") == 56
            await nodes.stop(1)
            await nodes.until("leadership", lambda: nodes.play.partition("orders").leader == 3)
            again = await nodes.produce(3, "orders", b"v6", base_sequence=6, **idempotent)
            assert (again.error_code, again.base_offset) == (0, 6), "the retried batch is known to the new leader"
            gap = await nodes.produce(3, "orders", b"v9", base_sequence=9, **idempotent)
            assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    play(run)


def test_kafkas_way_forgets_the_producers_of_a_rebuilt_replica(tmp_path: Path) -> None:
    """The file that a real Kafka was left with (`new_replica_snapshots` of bootstrap.json)."""

    async def run() -> None:
        async with Nodes(tmp_path, tiered=True, follower_fetch_tiered_compat="kafka") as nodes:
            nodes.create("orders", [1, 2], **DROP_LOCAL)
            for number in range(7):
                identity = {"producer_id": 2001, "producer_epoch": 0, "base_sequence": number}
                await nodes.produce(1, "orders", b"v%d" % number, **identity)
            await nodes.tiered_up_to(1, "orders", 5)
            await nodes.retain(1)
            await nodes.reassign("orders", 1, 2, 3)
            await nodes.in_sync("orders", 1, 2, 3)
            assert nodes[3].offsets("orders") == (0, 6, 7, 7)
            state = nodes[3].partition("orders").log.producer_state
            assert (state.snapshot_bytes(6) or b"").hex() == "000148674bc700000000"

    play(run)
