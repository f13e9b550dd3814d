"""The metadata topic as lists in memory, for tests of what reads and writes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import cycle

from backend.engine.net.metadata_topic_client import records_of
from backend.engine.ports import tasks
from backend.engine.remote.metadata.metadata_record import MetadataRecord
from backend.engine.remote.metadata.metadata_topic import FetchedPartition, MetadataTopicSettings
from backend.engine.remote.metadata.record_runs import read_canonical
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.tiering.ids import OffsetRange


class MemoryTopicLog:
    """The topic's partitions; shared by the clients of one test cluster."""

    def __init__(self) -> None:
        self.partitions: list[list[bytes | None]] = []
        self.starts: list[int] = []
        self.grown = tasks.Event()

    def append(self, partition: int, value: bytes | None) -> int:
        self.partitions[partition].append(value)
        self.grown.set()
        return self.starts[partition] + len(self.partitions[partition]) - 1

    def delete_before(self, partition: int, offset: int) -> None:
        """Deletes as retention does."""
        del self.partitions[partition][: offset - self.starts[partition]]
        self.starts[partition] = offset

    def range(self, partition: int) -> OffsetRange:
        start = self.starts[partition]
        return OffsetRange(start, start + len(self.partitions[partition]))


class MemoryMetadataTopic:
    """One client of it. `failures` are raised by the next calls, one each; while `down` every call fails."""

    def __init__(self, log: MemoryTopicLog | None = None) -> None:
        self.log = log or MemoryTopicLog()
        self.failures: list[Exception] = []
        self.down = False
        self.records_max = 500
        self.closed = False
        # Awaited before each append with its value: a test holds it up there.
        self.before_produce: Callable[[bytes], Awaitable[None]] | None = None
        # A fetch that finds nothing waits at least so long: virtual hours would be spent on empty answers.
        self.idle_wait_ms = 0
        # Records come in batches of these sizes, round and round, as a broker gives them; without, they come bare.
        self.batch_sizes: Sequence[int] = ()

    def _maybe_fail(self) -> None:
        if self.down:
            raise unavailable()
        if self.failures:
            raise self.failures.pop(0)

    async def ensure_created(self, settings: MetadataTopicSettings) -> int:
        self._maybe_fail()
        if not self.log.partitions:
            self.log.partitions = [[] for _ in range(settings.partitions)]
            self.log.starts = [0] * settings.partitions
        return len(self.log.partitions)

    async def produce(self, partition: int, value: bytes) -> int:
        self._maybe_fail()
        if self.before_produce is not None:
            await self.before_produce(value)
        await tasks.sleep_ms(0)
        return self.log.append(partition, value)

    async def offsets(self, partitions: Iterable[int]) -> dict[int, OffsetRange]:
        self._maybe_fail()
        return {partition: self.log.range(partition) for partition in partitions}

    async def fetch(self, positions: Mapping[int, int], *, max_wait_ms: int) -> Sequence[FetchedPartition]:
        self._maybe_fail()
        self.log.grown.clear()
        fetched = self._read(positions)
        if not fetched:
            try:
                await tasks.wait_for(self.log.grown.wait(), max(max_wait_ms, self.idle_wait_ms))
            except tasks.Timeout:
                return []
            fetched = self._read(positions)
        return fetched

    def _read(self, positions: Mapping[int, int]) -> list[FetchedPartition]:
        fetched: list[FetchedPartition] = []
        for partition, position in positions.items():
            held = self.log.range(partition)
            if not held.start <= position <= held.end:
                fetched.append(FetchedPartition(partition, position, error=ErrorCode.OFFSET_OUT_OF_RANGE))
            elif position < held.end:
                end = min(held.end, position + self.records_max)
                values = self.log.partitions[partition][position - held.start : end - held.start]
                fetched.append(self._fetched(partition, position, values))
        return fetched

    def _fetched(self, partition: int, position: int, values: Sequence[bytes | None]) -> FetchedPartition:
        if not self.batch_sizes:
            records = [MetadataRecord(position + at, 0, value) for at, value in enumerate(values)]
            return FetchedPartition(partition, position + len(values), records)
        data, taken, sizes = bytearray(), 0, cycle(self.batch_sizes)
        while taken < len(values):
            batch = [RecordData(0, None, value) for value in values[taken : taken + next(sizes)]]
            data += build_batch(batch, base_offset=position + taken)
            taken += len(batch)
        usual = read_canonical(bytes(data), position)
        if usual is None:
            return records_of(partition, memoryview(data), position)
        next_offset, lazy_records, plan = usual
        return FetchedPartition(partition, next_offset, lazy_records, plan=plan)

    async def close(self) -> None:
        self.closed = True


def unavailable() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader is elsewhere")
