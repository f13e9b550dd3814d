"""Requests that wait for the remote tier, while its store hangs, fails, or the partition goes elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from backend.engine.controller.image.metadata_image import BROKER_RESOURCE
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.record_batches.record_batch import RecordData, build_batch, iter_batches, iter_records
from tests.unit.engine.log.logs import FIXTURES
from tests.unit.engine.remote.faulty_store import FaultyStore, with_faults
from tests.unit.engine.replica.nodes import SMALL_SEGMENTS, Nodes

START_MS = 1_700_000_000_000
TIERED_ONLY = {**SMALL_SEGMENTS, "local_retention_bytes": "1"}
UNAVAILABLE = OSError("503 Slow Down: please reduce your request rate")


class Stage:
    """Topic `orders`: 7 records a partition, 0-5 only remote, all partitions led by node 1; faults in its store."""

    def __init__(self, nodes: Nodes, store: FaultyStore, partitions: int) -> None:
        self.nodes, self.store, self.partitions = nodes, store, partitions

    async def fetch(self, offsets: Sequence[int], *, node: int = 1, **fields: Any) -> list[tuple[int, list[Any]]]:
        """One request for partitions 0, 1, …; (error, values from the offset on) of each."""
        topics = m.FetchRequest.Topics
        each = fields.pop("each", 1 << 20)
        parts = [
            topics.Partitions(partition=index, fetch_offset=offset, partition_max_bytes=each)
            for index, offset in enumerate(offsets)
        ]
        settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 8 << 20, **fields}
        request = m.FetchRequest(replica_id=-1, session_epoch=-1, topics=[topics(topic="orders", partitions=parts)])
        for name, value in settings.items():
            setattr(request, name, value)
        answer: m.FetchResponse = await self.nodes[node].ask(request, 12)
        rows = answer.responses[0].partitions
        assert [row.partition_index for row in rows] == list(range(len(offsets)))
        return [(row.error_code, values(row.records, offset)) for row, offset in zip(rows, offsets, strict=True)]

    async def times(self, *since_start_ms: int, timeout_ms: int = 0, version: int = 10) -> list[tuple[int, int]]:
        """One ListOffsets for partitions 0, 1, …; (error, offset) of each."""
        topics = m.ListOffsetsRequest.Topics
        parts = [topics.Partitions(partition_index=i, timestamp=START_MS + at) for i, at in enumerate(since_start_ms)]
        request = m.ListOffsetsRequest(
            replica_id=-1, timeout_ms=timeout_ms, topics=[topics(name="orders", partitions=parts)]
        )
        answer: m.ListOffsetsResponse = await self.nodes[1].ask(request, version)
        return [(row.error_code, row.offset) for row in answer.topics[0].partitions]

    def metric(self, name: str, **labels: str) -> float:
        metrics = self.nodes[1].metrics
        [pulled] = [
            scraped_metric for scraped_metric in (*metrics.gauges, *metrics.counters) if scraped_metric.name == name
        ]
        reading = pulled.read()
        if isinstance(reading, int | float):
            return reading
        return sum(value for sample_labels, value in reading if dict(sample_labels) == labels)

    @property
    def waiting(self) -> tuple[float, float]:
        """Fetches and look-ups in the purgatory."""
        name = "kafka_server_delayedoperationpurgatory_purgatorysize"
        return tuple(self.metric(name, delayedoperation=kind) for kind in ("RemoteFetch", "RemoteListOffsets"))  # type: ignore[return-value]  # two

    async def blocked(self, count: int) -> None:
        await self.nodes.until(f"{count} reads hang in the store", lambda: self.store.blocked >= count)


def values(records: Any, offset: int) -> list[Any]:
    data = bytes(records or b"")
    decoded = [record for position, _ in iter_batches(data) for record in iter_records(data, position)]
    return [record.value for record in decoded if record.offset >= offset]


def played(
    folder: Path, scene: Callable[[Stage], Coroutine[Any, Any, None]], *, partitions: int = 1, **settings: str
) -> None:
    async def run() -> None:
        async with Nodes(folder, 2, tiered=True, **settings) as nodes:
            nodes.create("orders", *[[1, 2]] * partitions, **TIERED_ONLY)
            for index in range(partitions):
                for at in range(7):
                    records = build_batch([RecordData(START_MS + at, None, b"%d-%d" % (index, at))])
                    assert (await nodes.produce_raw(1, "orders", records, index=index)).error_code == 0
            for index in range(partitions):
                for node in (1, 2):
                    await nodes.tiered_up_to(node, "orders", 5, index)
            await nodes.retain(1, 2)
            assert nodes.nodes[1].offsets("orders", partitions - 1)[:2] == (0, 6)
            remote = nodes[1].remote
            assert remote is not None
            store = with_faults(remote.storage)
            try:
                await scene(Stage(nodes, store, partitions))
            finally:
                store.heal()

    asyncio.run(run())


def set_brokers(nodes: Nodes, **settings: str) -> None:
    nodes.config(BROKER_RESOURCE, "", **settings)


# Fetch


def test_all_remote_partitions_of_a_request_are_read_at_once_and_answered_in_its_order(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.store.block()
        task = asyncio.ensure_future(stage.fetch([0, 6, 3, 4]))
        await stage.blocked(3)
        assert stage.waiting == (1, 0)
        stage.store.unblock()
        assert await task == [
            (0, [b"0-0", b"0-1"]),
            (0, [b"1-6"]),
            (0, [b"2-3"]),
            (0, [b"3-4", b"3-5"]),
        ]
        assert stage.waiting == (0, 0)

    played(tmp_path, scene, partitions=4, remote_fetch_max_wait_ms="20000")


def test_a_hanging_store_is_waited_for_no_longer_than_the_brokers_setting_which_is_dynamic(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        set_brokers(stage.nodes, remote_fetch_max_wait_ms="30")
        stage.store.block()
        # The client's own wait and bytes count for nothing; its local partition is held up by the remote one.
        assert await stage.fetch([0, 6], max_wait_ms=600_000, min_bytes=1 << 20) == [(0, []), (0, [b"1-6"])]
        assert stage.metric("kafka_server_delayedremotefetchmetrics_expires") == 1
        assert stage.waiting == (0, 0)
        # The read goes on to its end, and what it learned of the segment serves the next one.
        stage.store.unblock()
        indexes = stage.nodes[1].remote
        assert indexes is not None
        await stage.nodes.until("the reader is idle", lambda: indexes.reader_idle_fraction == 1.0)
        set_brokers(stage.nodes, remote_fetch_max_wait_ms="20000")
        reads = stage.store.reads
        assert await stage.fetch([0]) == [(0, [b"0-0", b"0-1"])]
        assert stage.store.reads == reads + 1

    played(tmp_path, scene, partitions=2)


def test_a_read_that_nobody_waits_for_any_more_keeps_its_reader_and_queued_ones_go(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        remote = stage.nodes[1].remote
        assert remote is not None
        stage.store.block()
        assert await stage.fetch([0, 0, 0]) == [(0, [])] * 3
        assert (remote.reader_idle_fraction, remote.reader_queue_size) == (0.0, 0)
        assert stage.store.blocked_max <= 2, "one reader: one segment's first index is being read"
        stage.store.unblock()
        await stage.nodes.until("the reader is idle", lambda: remote.reader_idle_fraction == 1.0)
        set_brokers(stage.nodes, remote_fetch_max_wait_ms="20000")
        assert await stage.fetch([2, 2, 2]) == [(0, [b"%d-2" % at, b"%d-3" % at]) for at in range(3)]

    played(tmp_path, scene, partitions=3, remote_log_reader_threads="1", remote_fetch_max_wait_ms="30")


def test_a_full_queue_of_readers_is_an_error_of_that_partition_only(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.store.block()
        task = asyncio.ensure_future(stage.fetch([0, 0, 0, 6]))
        await stage.blocked(1)
        stage.store.unblock()
        assert await task == [
            (0, [b"0-0", b"0-1"]),
            (0, [b"1-0", b"1-1"]),
            (ErrorCode.UNKNOWN_SERVER_ERROR, []),
            (0, [b"3-6"]),
        ]
        assert stage.metric("kafka_server_brokertopicmetrics_remotefetcherrors", topic="orders") == 1

    settings = {"remote_log_reader_threads": "1", "remote_log_reader_max_pending_tasks": "1"}
    played(tmp_path, scene, partitions=4, remote_fetch_max_wait_ms="20000", **settings)


def test_a_burst_of_503_costs_errors_a_metric_and_a_log_line_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(stage: Stage) -> None:
        stage.store.fail(UNAVAILABLE, times=3)
        answers = [await stage.fetch([2]) for _ in range(4)]
        assert answers == [[(ErrorCode.UNKNOWN_SERVER_ERROR, [])]] * 3 + [[(0, [b"0-2", b"0-3"])]]
        assert stage.metric("kafka_server_brokertopicmetrics_remotefetcherrors", topic="orders") == 3

    played(tmp_path, scene, remote_fetch_max_wait_ms="20000")
    lines = [record.getMessage() for record in caplog.records if "Remote read of" in record.getMessage()]
    assert lines
    assert all("orders-0" in line and "segment" in line and "503" in line for line in lines)


def test_produce_and_local_reads_go_on_while_every_reader_hangs(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        remote = stage.nodes[1].remote
        assert remote is not None
        stage.store.block()
        cold = [asyncio.ensure_future(stage.fetch([at % 6])) for at in range(50)]
        searches = [asyncio.ensure_future(stage.times(at % 6)) for at in range(50)]
        await stage.blocked(1)
        await stage.nodes.until("the readers are busy", lambda: remote.reader_queue_size == 98)
        for at in range(7, 20):
            answer = await stage.nodes.produce(1, "orders", b"0-%d" % at)
            assert (answer.error_code, answer.base_offset) == (0, at)
        assert await stage.fetch([19]) == [(0, [b"0-19"])]
        stage.nodes.create("later", [1], remote_storage_enable="true")
        made = await stage.nodes.produce(1, "later", b"first")
        assert (made.error_code, made.base_offset) == (0, 0), "new tiered topics need no answer of the store"
        assert stage.waiting == (50, 50)
        stage.store.unblock()
        for at, answers in enumerate(await asyncio.gather(*cold)):
            assert answers[0][0] == 0
            assert answers[0][1][0] == b"0-%d" % (at % 6)
        assert await asyncio.gather(*searches) == [[(0, at % 6)] for at in range(50)]

    played(tmp_path, scene, remote_fetch_max_wait_ms="20000", remote_log_reader_threads="2")


def test_a_partition_that_leaves_the_broker_ends_the_wait_of_its_requests(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.store.block()
        task = asyncio.ensure_future(stage.fetch([0, 0]))
        times = asyncio.ensure_future(stage.times(0, 0, timeout_ms=600_000))
        await stage.blocked(2)
        stage.nodes.delete("orders")
        assert await task == [(0, []), (0, [])]
        assert {error for error, _ in await times} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert stage.waiting == (0, 0)
        assert stage.metric("kafka_server_delayedremotefetchmetrics_expires") == 0

    played(tmp_path, scene, partitions=2, remote_fetch_max_wait_ms="20000")


def test_the_first_remote_partition_takes_the_budget_it_may_fill(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        # 150 bytes of 69 a batch: two whole batches for the first; the others get nothing, not even one batch.
        [first, *others] = await stage.fetch([0, 0, 6], max_bytes=150)
        assert first == (0, [b"0-0", b"0-1"])
        assert others == [(0, []), (0, [])]
        # Each by its own limit, which is less than a batch: only the first returns one all the same.
        assert await stage.fetch([2, 2, 6], each=10) == [(0, [b"0-2"]), (0, []), (0, [])]

    played(tmp_path, scene, partitions=3, remote_fetch_max_wait_ms="20000")


def test_a_follower_serves_old_offsets_from_its_own_cache(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.store.fail(UNAVAILABLE)
        assert await stage.fetch([0], node=1) == [(ErrorCode.UNKNOWN_SERVER_ERROR, [])]
        assert await stage.fetch([1], node=2) == [(0, [b"0-1"])]
        cached = {
            node: sorted(path.suffix for path in (tmp_path / str(node) / "remote-log-index-cache").iterdir())
            for node in (1, 2)
        }
        assert cached == {1: [], 2: [".index", ".timeindex", ".txnindex"]}

    played(tmp_path, scene, remote_fetch_max_wait_ms="20000")


def test_the_metrics_of_waiting_requests_have_the_names_of_kafkas_mbeans(tmp_path: Path) -> None:
    mbeans = json.loads((FIXTURES / "mbeans.json").read_text())["all_kafka_mbean_names"]
    of_the_tier = [name for name in mbeans if "Delayed" in name and "Remote" in name]
    assert len(of_the_tier) == 6

    async def scene(stage: Stage) -> None:
        metrics = stage.nodes[1].metrics
        scraped_metrics = {metric.name: metric for metric in (*metrics.gauges, *metrics.counters)}
        for mbean in of_the_tier:
            tags = dict(pair.split("=") for pair in mbean.partition(":")[2].split(","))
            reading = scraped_metrics[
                f"kafka_server_{tags['type']}_{tags['name'].removesuffix('PerSec')}".lower()
            ].read()
            if "delayedOperation" in tags:
                assert not isinstance(reading, int | float)
                assert (tags["delayedOperation"], 0) in [(row["delayedoperation"], value) for row, value in reading]

    played(tmp_path, scene)


# ListOffsets


def test_every_partition_is_searched_by_a_task_of_its_own(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.store.block()
        task = asyncio.ensure_future(stage.times(0, 3, 6, 7))
        await stage.blocked(2)
        assert stage.waiting == (0, 1)
        stage.store.unblock()
        assert await task == [(0, 0), (0, 3), (0, 6), (0, -1)]
        assert stage.waiting == (0, 0)

    played(tmp_path, scene, partitions=4)


@pytest.mark.parametrize(("version", "timeout_ms"), [(10, 30), (9, 0), (10, 0)])
def test_what_is_not_found_in_time_is_answered_as_timed_out_and_counted(
    tmp_path: Path, version: int, timeout_ms: int
) -> None:
    async def scene(stage: Stage) -> None:
        # The other of the two limits would not let this test end.
        setting = "600000" if timeout_ms else "30"
        set_brokers(stage.nodes, remote_list_offsets_request_timeout_ms=setting)
        stage.store.block()
        # Newer than everything remote: found without the store, but answered with the rest.
        assert await stage.times(0, 6, timeout_ms=timeout_ms, version=version) == [
            (ErrorCode.REQUEST_TIMED_OUT, -1),
            (0, 6),
        ]
        name = "kafka_server_delayedremotelistoffsetsmetrics_expires"
        assert stage.metric(name, topic="", partition="") == 1
        assert stage.metric(name, topic="orders", partition="0") == 1
        assert stage.waiting == (0, 0)
        stage.store.unblock()
        set_brokers(stage.nodes, remote_list_offsets_request_timeout_ms="20000")
        assert await stage.times(0, 0) == [(0, 0), (0, 0)]

    played(tmp_path, scene, partitions=2)


def test_a_full_queue_of_readers_is_an_error_of_that_partitions_look_up_only(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.store.block()
        task = asyncio.ensure_future(stage.times(0, 0, 0, 6))
        await stage.blocked(1)
        stage.store.unblock()
        refused = (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        # One is searched, one waits; whether the last needs the store is known only to who searches.
        assert await task == [(0, 0), (0, 0), refused, refused]
        assert stage.metric("ebbline_remote_look_up_errors") == 2
        assert await stage.times(6) == [(0, 6)]

    settings = {"remote_log_reader_threads": "1", "remote_log_reader_max_pending_tasks": "1"}
    played(tmp_path, scene, partitions=4, **settings)


def test_a_reader_under_another_leader_epoch_is_told_so_before_anything_is_searched(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        nodes = stage.nodes
        await nodes.reassign("orders", 2)
        await nodes.reassign("orders", 2, 1)
        await nodes.in_sync("orders", 1, 2)
        epoch = nodes.play.partition("orders").leader_epoch
        assert epoch > 0
        remote = nodes[2].remote
        assert remote is not None
        store = with_faults(remote.storage)
        reads = store.reads
        codes = {epoch - 1: ErrorCode.FENCED_LEADER_EPOCH, epoch + 1: ErrorCode.UNKNOWN_LEADER_EPOCH}
        for timestamp in (START_MS, -1, -2, -3, -4, -5, -6):
            for current, code in codes.items():
                row = await nodes.list_offset(2, "orders", timestamp, current_epoch=current)
                assert (row.error_code, row.offset, row.timestamp, row.leader_epoch) == (code, -1, -1, -1)
                # A debug reader may ask any replica, but under the same epochs.
                debug = await nodes.list_offset(1, "orders", timestamp, current_epoch=current, replica_id=-2)
                assert debug.error_code == code
            stranger = await nodes.list_offset(1, "orders", timestamp, current_epoch=epoch)
            assert stranger.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert store.reads == reads
        assert (await nodes.list_offset(2, "orders", START_MS, current_epoch=epoch)).offset == 0
        assert store.reads > reads

    played(tmp_path, scene)


def test_an_expired_search_leaves_the_queue_and_stops_after_the_call_it_was_at(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        remote = stage.nodes[1].remote
        assert remote is not None
        stage.store.block()
        assert await stage.times(0, 0, 0, timeout_ms=30) == [(ErrorCode.REQUEST_TIMED_OUT, -1)] * 3
        assert (remote.reader_queue_size, remote.reader_idle_fraction) == (0, 0.0)
        stage.store.unblock()
        await stage.nodes.until("the reader is idle", lambda: remote.reader_idle_fraction == 1.0)
        logs = [event for event in remote.storage.history if event.type.value == "FETCH_SEGMENT"]  # type: ignore[attr-defined]  # the built-in one
        assert logs == [], "the search had come as far as the indexes"

    played(tmp_path, scene, partitions=3, remote_log_reader_threads="1")


def test_a_look_up_ends_with_the_leadership_of_its_partition(tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.store.block()
        task = asyncio.ensure_future(stage.times(0, timeout_ms=600_000))
        await stage.blocked(1)
        await stage.nodes.reassign("orders", 2)
        # The store still hangs.
        assert await task == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
        assert stage.waiting == (0, 0)

    played(tmp_path, scene)


def test_a_failing_store_fails_the_look_up_with_a_metric_and_a_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(stage: Stage) -> None:
        stage.store.fail(UNAVAILABLE, times=1)
        assert await stage.times(0) == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1)]
        assert stage.metric("ebbline_remote_look_up_errors") == 1
        assert await stage.times(0) == [(0, 0)]

    played(tmp_path, scene)
    [line] = [record.getMessage() for record in caplog.records if "Look-up by time" in record.getMessage()]
    assert "orders-0" in line
    assert "segment" in line
    assert "503" in line
