"""For every offset, on either tier, a fetch returns its record or an error that passes: under random copies, deletions,
rolled segments, restarts, changes of leader and faults of the store, with readers at work all the time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import RecordData, build_batch, iter_batches, iter_records
from tests.effort import effort
from tests.unit.engine.remote.faulty_store import with_faults
from tests.unit.engine.replica.nodes import SMALL_SEGMENTS, Nodes

TOPIC = "orders"
STEPS = 14
NODES = (1, 2)
# Errors after which a consumer tries again by itself. -1 is Kafka's code for a remote read that failed.
PASSING = {
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
}
SETTINGS = {
    "replica_lag_time_max_ms": "300",
    # A read of a store that answers is never cut off, so that "no records" would be an error of ours.
    "remote_fetch_max_wait_ms": "20000",
}


class Life:
    """One partition's random life, and what its readers see."""

    def __init__(self, nodes: Nodes, seed: int) -> None:
        self.nodes = nodes
        self.random = random.Random(seed)
        # Acknowledged by every in-sync replica, so never lost again.
        self.written: dict[int, bytes] = {}
        self.seen: Counter[str] = Counter()
        self.stopped: int | None = None
        # The offset of the last DeleteRecords.
        self.deleted_to = 0

    @property
    def up(self) -> list[int]:
        return [node for node in NODES if self.nodes[node].up]

    @property
    def leader(self) -> int:
        return self.nodes.play.partition(TOPIC).leader

    def begin_alike(self) -> bool:
        """A follower hears of a new log start by an answer to its fetch."""
        return {self.nodes[node].offsets(TOPIC)[0] for node in self.up} == {self.nodes[self.leader].offsets(TOPIC)[0]}

    # Reading

    async def read(self, node: int, offset: int) -> None:
        """One consumer's fetch; AssertionError for an answer that it could not live with."""
        before = self.nodes[node].offsets(TOPIC)
        try:
            row = await self.nodes.fetch(
                node, TOPIC, offset, partition_max_bytes=self.random.choice((10, 100, 1 << 20))
            )
            after = self.nodes[node].offsets(TOPIC)
        except KafkaError:
            assert not self.nodes[node].up or not self.hosted(node)
            return
        where = f"offset {offset} of node {node}, which had (start, local start, HW, end) {before}, then {after}"
        error = ErrorCode(row.error_code)
        self.seen[error.name] += 1
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower may not have heard yet that the leader's log start has passed it.
            gone = offset < max(after[0], self.deleted_to)
            assert gone or not before[0] <= offset < before[3], f"{where}: out of range"
        elif error is not ErrorCode.NONE:
            assert error in PASSING, f"{where}: {error.name}"
        elif not row.records:
            # A node that stops answers what waits.
            assert offset >= before[2] or not self.nodes[node].up, f"{where}: no records"
        else:
            data = bytes(cast(Any, row.records))
            values = {record.offset: record.value for record in iter_records(data, next(iter_batches(data))[0])}
            assert offset in values, f"{where}: {sorted(values)} came"
            assert values[offset] == self.written.get(offset, values[offset]), where
            self.seen["from the remote tier"] += offset < before[1]

    def hosted(self, node: int) -> bool:
        try:
            self.nodes[node].partition(TOPIC)
        except KafkaError:
            return False
        return True

    async def keep_reading(self) -> None:
        while True:
            node = self.random.choice(NODES)
            if self.nodes[node].up and self.hosted(node):
                start, _, _, end = self.nodes[node].offsets(TOPIC)
                if start < end:
                    await self.read(node, self.random.randrange(start, end))
            await asyncio.sleep(0)

    async def read_all(self) -> None:
        """Every offset from every replica that is up, one passing error at most each."""
        for node in self.up:
            start, _, high_watermark, _ = self.nodes[node].offsets(TOPIC)
            for offset in range(start, high_watermark):
                await self.read(node, offset)

    # Steps

    async def produce(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            end = self.nodes[self.leader].offsets(TOPIC)[3]
            count = self.random.randint(1, 3)
            values = [b"%d" % (end + at) for at in range(count)]
            records = build_batch([RecordData(1_700_000_000_000, None, value) for value in values])
            answer = await self.nodes.produce_raw(self.leader, TOPIC, records)
            assert (answer.error_code, answer.base_offset) == (0, end)
            self.written.update(enumerate(values, end))

    async def retain(self) -> None:
        await self.nodes.retain(*self.up)

    async def tier(self) -> None:
        """Gives copies some time, and drops what is copied."""
        await asyncio.sleep(0.03)
        await self.retain()

    async def roll(self) -> None:
        log = self.nodes[self.leader].partition(TOPIC).log
        if log.active_segment.size_bytes:
            log.roll()

    async def delete_records(self) -> None:
        start, _, high_watermark, _ = self.nodes[self.leader].offsets(TOPIC)
        to = self.random.randint(start, min(high_watermark, start + 3))
        self.deleted_to = max(self.deleted_to, to)
        topics = m.DeleteRecordsRequest.Topics
        topic = topics(name=TOPIC, partitions=[topics.Partitions(partition_index=0, offset=to)])
        await self.nodes[self.leader].ask(m.DeleteRecordsRequest(topics=[topic], timeout_ms=1), 2)

    async def stop_one(self) -> None:
        """A follower or the leader: then the other one leads."""
        if self.stopped is None:
            await self.nodes.in_sync(TOPIC, *NODES)
            self.stopped = self.random.choice(NODES)
            await self.nodes.stop(self.stopped)
            await self.nodes.until("there is a leader", lambda: self.leader in self.up)

    async def start_it(self) -> None:
        if self.stopped is not None:
            await self.nodes.restart(self.stopped)
            self.stopped = None
            await self.nodes.in_sync(TOPIC, *NODES)

    async def disturb_the_store(self) -> None:
        for node in self.up:
            remote = self.nodes[node].remote
            assert remote is not None
            store = with_faults(remote.storage)
            store.fail(OSError("503 Slow Down"), times=self.random.randint(1, 5))

    async def run(self) -> None:
        steps: list[Callable[[], Awaitable[None]]] = [
            self.produce, self.produce, self.retain, self.tier, self.tier, self.roll, self.delete_records,
            self.stop_one, self.start_it, self.disturb_the_store,
        ]  # fmt: skip
        while self.nodes[self.leader].offsets(TOPIC)[3] < 10:
            await self.produce()
        for node in NODES:
            await self.nodes.tiered_up_to(node, TOPIC, 0)
        await self.retain()
        await self.read_all()
        for _ in range(STEPS):
            await self.random.choice(steps)()
            await self.read_all()
        await self.start_it()
        for node in NODES:
            remote = self.nodes[node].remote
            assert remote is not None
            with_faults(remote.storage).heal()


def live(folder: Path, seed: int) -> Counter[str]:
    async def run() -> Counter[str]:
        async with Nodes(folder, 2, tiered=True, **SETTINGS) as nodes:
            nodes.create(TOPIC, list(NODES), **SMALL_SEGMENTS, local_retention_bytes="1")
            life = Life(nodes, seed)
            readers = [asyncio.ensure_future(life.keep_reading()) for _ in range(3)]
            living = asyncio.ensure_future(life.run())
            done, _ = await asyncio.wait([living, *readers], return_when=asyncio.FIRST_COMPLETED)
            for reader in readers:
                reader.cancel()
            living.cancel()
            await asyncio.gather(living, *readers, return_exceptions=True)
            for task in done:
                task.result()
            # Left alone, everything is there without an error, once both know what was deleted.
            await nodes.until("both begin where the leader does", life.begin_alike)
            before = life.seen.copy()
            life.seen.clear()
            await life.read_all()
            assert life.seen.total() == life.seen["NONE"] + life.seen["from the remote tier"], life.seen
            return before + life.seen

    return asyncio.run(run())


@pytest.mark.parametrize("seed", range(effort(4, 150)))
def test_a_fetch_returns_the_offsets_record_or_an_error_that_passes(tmp_path: Path, seed: int) -> None:
    seen = live(tmp_path, seed)
    assert seen["NONE"] > STEPS
    assert seen["from the remote tier"] > 0
