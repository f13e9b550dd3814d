"""The time at which delayed requests are answered: a newer high watermark alone lingers, records go before
acknowledgements."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from backend.engine.replica.deadlines import Deadlines
from backend.engine.replica.partition import Partition
from backend.engine.replica.purgatory import HIGH_WATERMARK_LINGER_MS, DelayedFetch, Purgatory
from backend.protocol import messages as m
from backend.protocol.record_batches.record_batch import build_batch
from backend.protocol.record_batches.record_codec import RecordData
from tests.unit.engine.replica.nodes import Nodes, play
from tests.unit.engine.virtual_time import clock_here, run_virtual


class LingeringFetch:
    """Notes when it was tried."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def complete_if_watermarks_old(self) -> None:
        self.at_s.append(asyncio.get_running_loop().time())


def test_each_fetch_lingers_its_own_time_and_is_tried_once() -> None:
    async def run() -> None:
        purgatory = Purgatory(Deadlines(clock_here()))
        fetches: list[Any] = [LingeringFetch() for _ in range(4)]
        began_s = []
        for fetch in fetches:
            began_s.append(asyncio.get_running_loop().time())
            purgatory.schedule_watermark_update(fetch)
            await asyncio.sleep(HIGH_WATERMARK_LINGER_MS * 0.6 / 1000)
        deadline_s = asyncio.get_running_loop().time() + 10
        while not all(fetch.at_s for fetch in fetches) and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(0.001)
        assert [len(fetch.at_s) for fetch in fetches] == [1] * 4
        # The loop's clock may be a part of a millisecond early.
        waited_ms = [(fetch.at_s[0] - begin_s) * 1000 for fetch, begin_s in zip(fetches, began_s, strict=True)]
        assert min(waited_ms) >= HIGH_WATERMARK_LINGER_MS - 0.5

    run_virtual(run())


def test_records_go_to_their_reader_before_their_producer_is_answered(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            nodes.create("orders", [1, 2, 3])
            await nodes.produce(1, "orders", b"first")
            reading = asyncio.create_task(nodes.fetch(1, "orders", 1, wait_ms=5000))
            waiting = nodes[1].partition("orders").delayed.fetches
            await nodes.until(
                "the reader waits",
                lambda: any(not cast("DelayedFetch", fetch)._params.from_follower for fetch in waiting),
            )
            order: list[str] = []
            reading.add_done_callback(lambda _: order.append("reader"))
            producing = asyncio.create_task(nodes.produce(1, "orders", b"second"))
            producing.add_done_callback(lambda _: order.append("producer"))
            await asyncio.gather(reading, producing)
            await asyncio.sleep(0)
            assert order == ["reader", "producer"]

    play(run)


def test_requests_that_wait_for_a_follower_are_answered_before_the_follower_itself_waits(tmp_path: Path) -> None:

    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            topic_id = nodes.create("orders", [1, 2])
            leader = nodes[1]
            waiting = leader.partition("orders").delayed.fetches
            await nodes.until("the follower waits", lambda: len(waiting) == 1)
            reading = leader.begin(fetch_of(topic_id, 0), 17)
            assert len(waiting) == 2
            producing = leader.begin(produce_of(topic_id, b"value"), 13)
            assert not reading.done()
            assert not producing.done()
            epoch = nodes.play.image.brokers[2].epoch
            following = leader.begin(fetch_of(topic_id, 1, replica=(2, epoch)), 17)
            assert reading.done()
            assert producing.done()
            assert not following.done()
            assert len(reading.result().responses[0].partitions[0].records) > 0
            assert producing.result().responses[0].partition_responses[0].error_code == 0

    play(run)


def test_a_partition_that_fails_to_answer_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, count=1) as nodes:
            topic_id = nodes.create("orders", [1], [1])
            leader = nodes[1]
            reading = [leader.begin(fetch_of(topic_id, 0, index=index), 17) for index in (0, 1)]
            broken = leader.partition("orders", 0)
            settle = Partition.complete_delayed_requests

            def complete_delayed_requests(partition: Partition) -> None:
                if partition is broken:
                    raise RuntimeError("the partition's own trouble")
                settle(partition)

            monkeypatch.setattr(Partition, "complete_delayed_requests", complete_delayed_requests)
            for index in (0, 1):
                leader.begin(produce_of(topic_id, b"value", index=index), 13)
            await asyncio.sleep(0)
            assert [future.done() for future in reading] == [False, True]
            assert "orders-0 could not answer the requests that wait for it" in caplog.text

    play(run)


def fetch_of(topic_id: bytes, offset: int, *, index: int = 0, replica: tuple[int, int] = (-1, -1)) -> m.FetchRequest:
    topics = m.FetchRequest.Topics
    partitions = [topics.Partitions(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)]
    return m.FetchRequest(
        max_wait_ms=20_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[topics(topic_id=topic_id, partitions=partitions)],
        replica_state=m.FetchRequest.ReplicaState(replica_id=replica[0], replica_epoch=replica[1]),
    )


def produce_of(topic_id: bytes, value: bytes, *, index: int = 0) -> m.ProduceRequest:
    data = m.ProduceRequest.TopicData
    part = data.PartitionData(index=index, records=build_batch([RecordData(1_700_000_000_000, None, value)]))
    return m.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data(topic_id=topic_id, partition_data=[part])])
