"""Replication between brokers: appends reach the followers, acknowledgement, elections, truncation, deletion."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import pytest

from backend.engine.apis.fetch.fetch_session_cache import FetchSession, FetchSessionCache
from backend.engine.controller.commands.topic_commands import delete_topics
from backend.engine.controller.image.metadata_image import TOPIC_RESOURCE
from backend.engine.ports import tasks
from backend.engine.replica.role_changes import REPLICAS_PER_TURN
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.tiering.follower_phase import FollowerPhase
from tests.effort import effort
from tests.unit.engine.replica.nodes import Nodes, play

NOW_MS = 1_700_000_000_000


def test_an_acknowledged_record_is_on_every_in_sync_replica(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2, 3])
            for number in range(5):
                row = await nodes.produce(1, "orders", b"v%d" % number)
                assert (row.error_code, row.base_offset) == (0, number)
                assert all(nodes[node].offsets("orders")[3] == number + 1 for node in (1, 2, 3))
            await nodes.until(
                "the high watermark everywhere", lambda: all(nodes[n].offsets("orders")[2] == 5 for n in (1, 2, 3))
            )
            expected = [(number, b"v%d" % number) for number in range(5)]
            assert all(nodes[node].values("orders") == expected for node in (1, 2, 3))

    play(run)


def test_followers_learn_the_high_watermark_without_another_append(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, replica_fetch_wait_max_ms="20000") as nodes:
            nodes.create("orders", [1, 2])
            await nodes.produce(1, "orders", b"a")
            await nodes.until("high watermark 1 on the follower", lambda: nodes[2].offsets("orders")[2] == 1, 5)

    play(run)


def test_partitions_of_which_a_follower_has_all_cost_its_fetches_nothing_until_they_change(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, count=2, replica_fetch_wait_max_ms="100") as nodes:
            nodes.create("many", *([1, 2] for _ in range(30)))
            nodes.create("orders", [1, 2])
            row = await nodes.produce(1, "orders", b"a", timeout_ms=5000)
            assert row.error_code == 0

            def all_quiet() -> bool:
                return [(len(session.entries), len(session.idle)) for session in sessions_of(nodes)] == [(0, 31)]

            await nodes.until("all partitions quiet", all_quiet, 5)
            assert (await nodes.produce(1, "orders", b"b", timeout_ms=5000)).error_code == 0
            await nodes.until("the high watermark", lambda: nodes[2].offsets("orders")[2] == 2, 5)
            await nodes.until("all partitions quiet again", all_quiet, 5)
            # A log start that moves by itself is news too, and so is a topic that goes.
            nodes[1].partition("orders").log.maybe_increment_log_start_offset(1)
            await nodes.until("the log start", lambda: nodes[2].offsets("orders")[0] == 1, 5)
            nodes.delete("many")
            await nodes.until("only one left", lambda: [len(session.idle) for session in sessions_of(nodes)] == [1], 5)

    play(run)


def test_a_follower_that_had_all_for_long_is_not_late_when_a_record_comes(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, count=2, replica_fetch_wait_max_ms="50", replica_lag_time_max_ms="400") as nodes:
            nodes.create("orders", [1, 2])
            assert (await nodes.produce(1, "orders", b"a", timeout_ms=5000)).error_code == 0
            await nodes.until("the partition quiet", lambda: any(session.idle for session in sessions_of(nodes)), 5)
            await asyncio.sleep(0.6)
            leader = nodes[1].partition("orders")
            leader.append(memoryview(build_batch([RecordData(NOW_MS, None, b"b")])), acks=1)
            leader.shrink_isr()
            assert not leader.isr.in_flight, "it asked for all there was a moment ago"
            # One that asks no more has the lag time from its last fetch.
            nodes.cut.add((2, 1))
            leader.append(memoryview(build_batch([RecordData(NOW_MS, None, b"c")])), acks=1)
            await nodes.until("the ISR without it", lambda: leader.isr.committed == {1}, 5)

    play(run)


@pytest.mark.parametrize("with_another_delay", [False, True], ids=["alone", "while another partition is delayed"])
def test_a_follower_that_hears_of_a_topic_before_its_leader_follows_soon(
    tmp_path: Path, *, with_another_delay: bool
) -> None:
    """The back-off is 20 s here: neither it nor another partition's may pass before the record is acknowledged."""

    async def run() -> None:
        async with Nodes(tmp_path, replica_fetch_backoff_ms="20000", replica_lag_time_max_ms="60000") as nodes:
            if with_another_delay:
                nodes.create("broken", [1, 2])
                await nodes.in_sync("broken", 1, 2)
                nodes[1].partition("broken").log.mark_offline("as a test wants it")
                await nodes.until("a delay", lambda: nodes[2].events.phases("broken")[-1:] == ["DELAYED"])
            created = nodes.play.create("orders", [[1, 2]])
            assert created.error_code == 0
            nodes.publish(2)
            await nodes.until("a refusal", lambda: "DELAYED" in nodes[2].events.phases("orders"))
            nodes.publish(1)
            assert (await nodes.produce(1, "orders", b"a", timeout_ms=5000)).error_code == 0

    play(run)


def sessions_of(nodes: Nodes) -> list[FetchSession]:
    return list(nodes[1].services.fetch_sessions._sessions.values())


def test_a_new_partition_is_followed_at_once_while_a_fetch_waits(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, replica_fetch_wait_max_ms="20000") as nodes:
            nodes.create("first", [1, 2])
            await nodes.produce(1, "first", b"a")
            await asyncio.sleep(0.1)
            nodes.create("second", [1, 2])
            row = await nodes.produce(1, "second", b"b", timeout_ms=5000)
            assert row.error_code == 0
            assert (await nodes.produce(1, "first", b"c", timeout_ms=5000)).error_code == 0

    play(run)


@pytest.mark.parametrize("seed", range(effort(6, 60)))
def test_partitions_that_come_and_go_hold_up_no_other(tmp_path: Path, seed: int) -> None:
    """Each change sends a second Fetch of the session after the first, with all orders of what crosses on the way."""
    random = Random(seed)

    async def run() -> None:
        # A follower that lost its thread would wait until here.
        async with Nodes(tmp_path, count=2, replica_fetch_wait_max_ms="60000") as nodes:
            nodes.create("steady", [1, 2])
            others: list[str] = []
            names = count()

            async def change() -> None:
                for _ in range(random.randrange(1, 4)):
                    if others and random.random() < 0.5:
                        nodes.delete(others.pop(random.randrange(len(others))))
                    else:
                        others.append(f"other-{next(names)}")
                        nodes.create(others[-1], [1, 2])
                    for _ in range(random.randrange(6)):
                        await asyncio.sleep(0)

            for number in range(40):
                changing = asyncio.ensure_future(change())
                if random.random() < 0.1:
                    # As a leader that has room for few sessions would.
                    nodes[1].services.fetch_sessions = FetchSessionCache()
                row = await nodes.produce(1, "steady", b"v", timeout_ms=5000)
                assert (number, row.error_code) == (number, 0)
                await changing

    play(run)


def test_many_new_replicas_are_made_in_steps_between_which_the_first_ones_serve(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, count=1) as nodes:
            count = 4 * REPLICAS_PER_TURN
            node, old = nodes[1], nodes.play.image
            assert nodes.play.create("many", [[1]] * count).error_code == 0
            node.metadata.image = nodes.play.image
            steps = node.replicas.on_metadata(old, nodes.play.image)
            next(steps)
            assert (await nodes.produce(1, "many", b"a", acks=1)).error_code == 0
            assert node.replicas.find("many", count - 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert len(list(steps)) >= 2
            assert all(node.partition("many", index).is_leader for index in range(count))
            assert node.offsets("many")[3] == 1

    play(run)


def test_acks_1_and_0_do_not_wait_for_followers(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.cut = {(2, 1)}
            nodes.create("orders", [1, 2])
            assert (await nodes.produce(1, "orders", b"a", acks=1)).base_offset == 0
            await nodes.produce(1, "orders", b"b", acks=0)
            assert nodes[1].offsets("orders") == (0, 0, 0, 2)

    play(run)


def test_an_unacknowledged_append_times_out_and_keeps_its_offset(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.cut = {(2, 1)}
            nodes.create("orders", [1, 2])
            row = await nodes.produce(1, "orders", b"a", timeout_ms=30)
            assert (row.error_code, row.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)

    play(run)


def test_too_small_an_isr_refuses_and_a_shrunk_one_says_so_afterwards(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, replica_lag_time_max_ms="300") as nodes:
            nodes.create("orders", [1, 2, 3], min_insync_replicas="2")
            await nodes.produce(1, "orders", b"a")
            nodes.cut = {(2, 1), (3, 1)}
            waiting = asyncio.ensure_future(nodes.produce(1, "orders", b"b"))
            await nodes.in_sync("orders", 1)
            row = await nodes.produce(1, "orders", b"c")
            assert (row.error_code, row.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
            # Below min ISR the high watermark stands still, so what was appended is not acknowledged either.
            assert nodes[1].offsets("orders")[2:] == (1, 2)
            nodes.cut = set()
            await nodes.in_sync("orders", 1, 2, 3)
            assert (await waiting).error_code == 0

    play(run)


def test_a_lower_min_isr_moves_the_high_watermark_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, replica_lag_time_max_ms="300") as nodes:
            nodes.create("orders", [1, 2, 3], min_insync_replicas="2")
            nodes.cut = {(3, 1)}
            await nodes.in_sync("orders", 1, 2)
            # Larger than the ISR, which nobody has left since: metadata has nothing to say of the partition.
            nodes.config(TOPIC_RESOURCE, "orders", min_insync_replicas="3")
            await nodes.produce(1, "orders", b"a", acks=1)
            await nodes.until("broker 2 has it", lambda: nodes[2].offsets("orders")[3] == 1)
            assert nodes[1].offsets("orders")[2:] == (0, 1)
            # Nobody writes any more.
            nodes.config(TOPIC_RESOURCE, "orders", min_insync_replicas="2")
            await nodes.until("it can be read", lambda: nodes[1].offsets("orders")[2:] == (1, 1), 3)

    play(run)


def test_a_follower_that_catches_up_comes_back_into_the_isr(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, replica_lag_time_max_ms="300") as nodes:
            nodes.create("orders", [1, 2])
            nodes.cut = {(2, 1)}
            await nodes.produce(1, "orders", b"a", acks=1)
            await nodes.in_sync("orders", 1)
            await nodes.until("acknowledged alone", lambda: nodes[1].offsets("orders")[2] == 1)
            nodes.cut = set()
            await nodes.in_sync("orders", 1, 2)
            await nodes.until("IN_SYNC", lambda: "IN_SYNC" in nodes[2].events.phases("orders"))
            assert FollowerPhase.DELAYED in nodes[2].events.phases("orders")

    play(run)


def test_isr_changes_survive_a_controller_that_does_not_answer(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, replica_lag_time_max_ms="300") as nodes:
            nodes.create("orders", [1, 2])
            nodes.controller_errors = [
                ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH,
            ]  # fmt: skip
            nodes.cut = {(2, 1)}
            await nodes.produce(1, "orders", b"a", acks=1)
            await nodes.in_sync("orders", 1)
            assert nodes.controller_errors == []

    play(run)


def test_the_next_leader_has_every_acknowledged_record_and_the_old_one_drops_the_rest(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2, 3])
            for number in range(3):
                await nodes.produce(1, "orders", b"kept%d" % number)
            # The old leader writes two records that no follower gets.
            nodes.cut = {(2, 1), (3, 1)}
            await asyncio.sleep(0.01)
            await nodes[1].replicas.shutdown()
            log = nodes[1].partition("orders").log
            from backend.protocol.record_batches.record_batch import RecordData, build_batch

            lost = build_batch([RecordData(0, None, b"lost0"), RecordData(0, None, b"lost1")])
            log.append_as_leader(memoryview(lost), 0, now_ms=0)
            assert log.log_end_offset == 5
            nodes[1].up = False
            await nodes[1].logs.shutdown()
            from backend.engine.controller.commands.brokers import fence_broker

            nodes.apply(partial(fence_broker, broker_id=1, config=nodes.play.config))
            assert nodes.play.partition("orders").leader == 2
            nodes.cut = set()
            await nodes.in_sync("orders", 2, 3)
            assert (await nodes.produce(2, "orders", b"new")).base_offset == 3
            await nodes.restart(1)
            await nodes.in_sync("orders", 1, 2, 3)
            expected = [(0, b"kept0"), (1, b"kept1"), (2, b"kept2"), (3, b"new")]
            assert nodes[1].values("orders") == expected
            assert nodes[2].values("orders") == expected
            assert FollowerPhase.TRUNCATING in nodes[1].events.phases("orders")
            assert nodes[1].partition("orders").log.leader_epochs.entries == ((0, 0), (1, 3))

    play(run)


def test_a_restarted_broker_continues_with_its_log(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2, 3])
            await nodes.produce(1, "orders", b"a")
            await nodes.stop(3)
            await nodes.in_sync("orders", 1, 2)
            await nodes.produce(1, "orders", b"b")
            await nodes.restart(3)
            await nodes.in_sync("orders", 1, 2, 3)
            assert nodes[3].values("orders") == [(0, b"a"), (1, b"b")]

    play(run)


def test_requests_made_of_the_wrong_broker_or_epoch_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2])
            assert (await nodes.produce(2, "orders", b"a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await nodes.produce(3, "orders", b"a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await nodes.produce(1, "nothing", b"a")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await nodes.fetch(1, "orders", 0, current_epoch=9)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            await nodes.produce(1, "orders", b"a")
            await nodes.stop(1)
            await nodes.until("leadership of 2", lambda: nodes[2].partition("orders").is_leader)
            row = await nodes.fetch(2, "orders", 0, current_epoch=0, version=16)
            assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 1)

    play(run)


def test_a_deleted_topic_leaves_and_its_name_can_be_used_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2])
            await nodes.produce(1, "orders", b"old")
            waiting = asyncio.ensure_future(nodes.fetch(1, "orders", 1, wait_ms=20_000))
            await asyncio.sleep(0.01)
            request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topics(name="orders")])
            nodes.play.do(partial(delete_topics, request=request, config=nodes.play.config, version=6))
            nodes.publish()
            assert (await waiting).error_code != 0
            assert (await nodes.produce(1, "orders", b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            nodes.create("orders", [1, 2])
            assert (await nodes.produce(1, "orders", b"new")).base_offset == 0
            assert nodes[2].values("orders") == [(0, b"new")]

    play(run)


def test_a_topic_deleted_while_a_broker_was_down_is_removed_when_it_returns(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2])
            nodes.create("other", [1, 2])
            await nodes.produce(1, "orders", b"old")
            await nodes.stop(2)
            request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topics(name="orders")])
            nodes.play.do(partial(delete_topics, request=request, config=nodes.play.config, version=6))
            nodes.create("orders", [2, 1])
            await nodes.restart(2)
            assert nodes[2].offsets("orders") == (0, 0, 0, 0)
            await nodes.in_sync("other", 1, 2)

    play(run)


async def delete_records(
    nodes: Nodes, topic: str, offset: int, node: int = 1, timeout_ms: int = 5000
) -> tuple[int, int]:
    """Error code and low watermark."""
    topics = m.DeleteRecordsRequest.Topics
    parts = [topics.Partitions(partition_index=0, offset=offset)]
    request = m.DeleteRecordsRequest(topics=[topics(name=topic, partitions=parts)], timeout_ms=timeout_ms)
    row = (await nodes[node].ask(request, 2)).topics[0].partitions[0]
    return row.error_code, row.low_watermark


def test_a_replica_is_added_to_a_partition_whose_log_starts_inside_a_batch(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2])
            await nodes.produce(1, "orders", *(b"%d" % number for number in range(8)))
            assert await delete_records(nodes, "orders", 5) == (0, 5)
            await nodes.reassign("orders", 1, 3)
            await nodes.in_sync("orders", 1, 3)
            await nodes.produce(1, "orders", b"8")
            await nodes.until("everything on broker 3", lambda: nodes[3].offsets("orders")[2] == 9)
            assert nodes[3].offsets("orders")[0] == 5
            assert nodes[3].values("orders") == nodes[1].values("orders")

    play(run)


def test_delete_records_raises_log_start_everywhere_before_it_is_answered(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, replica_fetch_wait_max_ms="20000") as nodes:
            nodes.create("orders", [1, 2, 3])
            for number in range(4):
                await nodes.produce(1, "orders", b"%d" % number)

            delete = partial(delete_records, nodes, "orders")
            assert await delete(3) == (0, 3)
            assert [nodes[node].offsets("orders")[0] for node in (1, 2, 3)] == [3, 3, 3]
            assert await delete(-1) == (0, 4)
            assert await delete(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
            assert await delete(5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
            assert await delete(1, node=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            await nodes.produce(1, "orders", b"last")
            nodes.cut = {(3, 1)}
            assert await delete(5, timeout_ms=700) == (ErrorCode.REQUEST_TIMED_OUT, 4)

    play(run)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_consumer_that_waits_is_answered_when_it_may_see_the_record(tmp_path: Path, acks: int) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2])
            waiting = asyncio.ensure_future(nodes.fetch(1, "orders", 0, wait_ms=20_000))
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await nodes.produce(1, "orders", b"a", acks=acks)
            row = await waiting
            assert (row.error_code, row.high_watermark, bool(row.records)) == (0, 1, True)

    play(run)


def test_a_waiting_fetch_is_answered_as_soon_as_its_wait_is_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, count=1) as nodes:
            topic_id = nodes.create("orders", [1])
            topics, heard = m.FetchRequest.Topics, list[tasks.Future[m.FetchResponse]]()
            partitions = [topics.Partitions(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
            request = m.FetchRequest(
                max_wait_ms=20_000,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[topics(topic_id=topic_id, partitions=partitions)],
            )
            waiting = nodes[1].begin(request, 17)
            waiting.add_callback(heard.append)
            assert heard == []
            nodes[1].partition("orders").end_delayed_requests()
            assert heard == [waiting]

    play(run)


def test_a_consumer_waits_for_as_many_bytes_as_it_asks_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, count=1) as nodes:
            nodes.create("orders", [1])
            waiting = asyncio.ensure_future(nodes.fetch(1, "orders", 0, wait_ms=20_000, min_bytes=200))
            await nodes.produce(1, "orders", b"x" * 50)
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await nodes.produce(1, "orders", b"x" * 50)
            assert len((await waiting).records or b"") >= 200
            late = await nodes.fetch(1, "orders", 0, wait_ms=30, min_bytes=100_000)
            assert len(late.records or b"") >= 200

    play(run)


def test_followers_wait_for_nothing_when_the_isr_is_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, count=1) as nodes:
            nodes.create("orders", [1])
            assert (await nodes.produce(1, "orders", b"a")).error_code == 0
            assert nodes[1].offsets("orders") == (0, 0, 1, 1)

    play(run)


def test_unknown_replica_ids_are_told_apart_by_the_epoch_they_know(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2])
            row = await nodes.fetch(1, "orders", 0, replica_id=3, current_epoch=0)
            assert row.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            row = await nodes.fetch(1, "orders", 0, replica_id=3)
            assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await nodes.fetch(2, "orders", 0, replica_id=3)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await nodes.fetch(2, "orders", 0, version=11)).error_code == 0
            assert (await nodes.fetch(2, "orders", 0, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(run)
