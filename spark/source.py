"""The streaming source over `__remote_log_metadata`: ``spark.readStream.format("rlmm")``.

Spark asks for offsets on the driver's side (in another Python process) and calls ``read()`` in
the tasks. As many input partitions as cores, each covering several topic partitions, because a
task and a new consumer per topic partition cost ten times the work itself; the consumer stays
in a global of the reused worker process. Records are decoded in ``read()``, where the cores are.

``spark.read.format("rlmm")`` reads what the topic holds at that moment, once.

Options: ``bootstrap.servers``, ``topic``, ``startingOffsets`` (JSON, topic partition to offset;
others start at the low watermark), ``maxRecords`` and ``maxBytes`` per batch, ``tasks``,
``packed`` (true: whole batches as values of one column, see `spark.packed`; false),
``kafka.<librdkafka name>``, so also ``kafka.security.protocol`` and all of TLS and SASL.
"""

from __future__ import annotations

import heapq
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark.kafka import BrokersAway, TopicOffsets
from spark.packed import PACKED, PACKED_SCHEMA, pack
from spark.reading import (
    RECORD_BYTES_MIN,
    SAMPLE_RECORDS,
    OffsetsWentBack,
    SourceConsumer,
    mean_bytes,
    open_consumer,
    read,
    start_offsets,
)
from spark.schemas import RECORD_SCHEMA
from spark.settings import SOURCE_TOPIC

log = logging.getLogger(__name__)

FORMAT: Final = "rlmm"
MAX_RECORDS: Final = 50_000
# Of keys and values. In Arrow, as Spark's values and as Python's rows a batch takes some three times that: 200 MB.
MAX_BYTES: Final = 64 << 20
TASKS: Final = 2
SAMPLE_EVERY_BATCHES: Final = 10


@dataclass(frozen=True)
class OffsetRanges(InputPartition):
    """The ranges that one task reads: (topic partition, from, to), half-open."""

    ranges: tuple[tuple[int, int, int], ...]


class RemoteLogMetadataSource(DataSource):
    """Registered by `register`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return PACKED_SCHEMA if _packed(self.options) else RECORD_SCHEMA

    def streamReader(self, schema: StructType) -> RemoteLogMetadataReader:
        return RemoteLogMetadataReader(dict(self.options))

    def reader(self, schema: StructType) -> RemoteLogMetadataBatchReader:
        return RemoteLogMetadataBatchReader(dict(self.options))


def register(session: SparkSession) -> None:
    """Make ``format("rlmm")`` known to the session."""
    session.dataSource.register(RemoteLogMetadataSource)


def load(session: SparkSession) -> None:
    """Has Spark start what it needs to know the source, so that a stream need not wait for it: Python twice, 1 s."""
    session.readStream.format(FORMAT).option("bootstrap.servers", "").load()


class RemoteLogMetadataReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets on the planning side, records in the tasks. An offset is ``{"<topic partition>": next offset}``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        by_name = {name.lower(): value for name, value in options.items()}
        self._servers = by_name["bootstrap.servers"]
        self._topic = by_name.get("topic", SOURCE_TOPIC)
        self._starting = {int(p): int(o) for p, o in json.loads(by_name.get("startingoffsets", "{}")).items()}
        self._max_records = int(by_name.get("maxrecords", MAX_RECORDS))
        self._max_bytes = int(by_name.get("maxbytes", MAX_BYTES))
        self._bytes_per_record: float | None = None
        self._planned = 0
        self._tasks = int(by_name.get("tasks", TASKS))
        self._packed = _packed(options)
        self._properties = {name[6:]: value for name, value in by_name.items() if name.startswith("kafka.")}
        self._available_now: dict[str, int] | None = None

    # --- planning side ---

    def initialOffset(self) -> dict[str, int]:
        start = start_offsets(self._topic, _offsets_of(self).offsets_held(), self._starting)
        return {str(partition): offset for partition, offset in start.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = self._high()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        try:
            high = self._available_now or self._high()
        except BrokersAway as error:
            log.warning("source %s: %s; nothing new to read until they answer", self._topic, error)
            return start
        for partition, offset in start.items():
            if high.get(partition, 0) < offset and self._available_now is None:
                raise OffsetsWentBack(f"{self._topic}-{partition}", high.get(partition, 0), offset)
        if isinstance(limit, ReadMaxRows):
            return admit(start, high, min(limit.max_rows, self._records_in_bytes(start, high)))
        return {**start, **high}

    def _records_in_bytes(self, start: Mapping[str, int], high: Mapping[str, int]) -> int:
        """How many records make about ``maxBytes``, by the size of some that come next.

        Kafka tells offsets, not sizes. So it is a mean, looked at again every ten batches; what is far off makes a
        batch that Spark refuses to collect, and the job tries a smaller one.
        """
        waiting = {int(p): start.get(p, 0) for p, end in high.items() if end > start.get(p, 0)}
        if sum(end - start.get(p, 0) for p, end in high.items()) <= SAMPLE_RECORDS:
            return self._max_records
        if self._planned % SAMPLE_EVERY_BATCHES == 0:
            self._bytes_per_record = mean_bytes(_source_of(self), self._topic, waiting) or self._bytes_per_record
        self._planned += 1
        return max(1, int(self._max_bytes / (self._bytes_per_record or RECORD_BYTES_MIN)))

    def reportLatestOffset(self) -> dict[str, int] | None:
        try:
            return self._high()
        except BrokersAway:
            return None

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        # A topic partition that appeared later starts at 0; were that gone, reading it fails loudly.
        ranges = [(int(p), start.get(p, 0), offset) for p, offset in end.items() if offset > start.get(p, 0)]
        return [OffsetRanges(tuple(part)) for part in spread(ranges, self._tasks)]

    def stop(self) -> None:
        """Spark calls it last in the process that plans; it has hung up by then, as a stream does that is stopped.

        pyspark would still try to answer, and tell of that with a traceback in the log.
        """
        if isinstance(sys.exception(), EOFError):
            os._exit(0)

    def _high(self) -> dict[str, int]:
        return {str(partition): offset for partition, offset in _offsets_of(self).high().items()}

    # --- tasks ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRanges)
        batches = read(_source_of(self), self._topic, partition.ranges)
        return pack(batches) if self._packed else batches


class RemoteLogMetadataBatchReader(DataSourceReader):
    """The records that the topic holds when the plan is made, read by the same tasks as the stream's."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._stream = RemoteLogMetadataReader(options)

    def partitions(self) -> Sequence[InputPartition]:
        start = self._stream.initialOffset()
        end = {**start, **self._stream._high()}
        # A plan without any would be a plan of one that reads nothing of this topic.
        return self._stream.partitions(start, end) or [OffsetRanges(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._stream.read(partition)


def _packed(options: Mapping[str, str]) -> bool:
    value = {name.lower(): value for name, value in options.items()}.get(PACKED, "false").lower()
    if value not in ("true", "false"):
        raise ValueError(f"The option {PACKED} of format({FORMAT!r}) is {value!r}: set it to true or false.")
    return value == "true"


def admit(start: Mapping[str, int], high: Mapping[str, int], max_records: int) -> dict[str, int]:
    """The end of the next batch: at most about ``max_records``, shared in proportion to what waits.

    Every topic partition with records gets at least one, so none starves.
    """
    waiting = {p: offset - start.get(p, 0) for p, offset in high.items() if offset > start.get(p, 0)}
    total = sum(waiting.values())
    if total <= max_records:
        return {**start, **high}
    end = dict(start)
    for partition, count in waiting.items():
        end[partition] = start.get(partition, 0) + max(1, count * max_records // total)
    return end


def spread(ranges: Sequence[tuple[int, int, int]], tasks: int) -> list[list[tuple[int, int, int]]]:
    """Ranges dealt to at most ``tasks`` tasks so that they have about the same number of records; none is empty."""
    heap: list[tuple[int, int]] = [(0, task) for task in range(tasks)]
    dealt: list[list[tuple[int, int, int]]] = [[] for _ in range(tasks)]
    for longest in sorted(ranges, key=lambda r: (r[1] - r[2], r[0])):
        records, task = heapq.heappop(heap)
        dealt[task].append(longest)
        heapq.heappush(heap, (records + longest[2] - longest[1], task))
    return [part for part in dealt if part]


# Clients of this worker process, by reader settings. Spark runs one task at a time in a worker
# and keeps it between batches; a reader is pickled again for each, so it cannot hold them.
_sources: dict[str, SourceConsumer] = {}
_offsets: dict[str, TopicOffsets] = {}


def _settings_key(reader: RemoteLogMetadataReader) -> str:
    return json.dumps([reader._servers, reader._topic, sorted(reader._properties.items())])


def _offsets_of(reader: RemoteLogMetadataReader) -> TopicOffsets:
    key = _settings_key(reader)
    if key not in _offsets:
        _offsets[key] = TopicOffsets(reader._servers, reader._topic, reader._properties, "offsets")
    return _offsets[key]


def _source_of(reader: RemoteLogMetadataReader) -> SourceConsumer:
    key = _settings_key(reader)
    if key not in _sources:
        _sources[key] = open_consumer(reader._servers, reader._properties)
    return _sources[key]


def close_clients() -> None:
    """Give back the connections of this process; a read that follows opens new ones."""
    for source in _sources.values():
        source.consumer.close()
    for offsets in _offsets.values():
        offsets.close()
    _sources.clear()
    _offsets.clear()
