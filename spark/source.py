"""The streaming source over `__remote_log_metadata`: ``spark.readStream.format("rlmm")``.

Spark asks for offsets on the driver's side (a Python process of its own) and calls ``read()`` in
the tasks. As many input partitions as cores, each covering several topic partitions, because a
task and a new consumer per topic partition cost ten times the work itself; the consumer stays
in a global of the reused worker process. Records are decoded in ``read()``, where the cores are.

Options: ``bootstrap.servers``, ``topic``, ``startingOffsets`` (JSON, topic partition to offset;
others start at the low watermark), ``maxRecords`` per batch, ``tasks``, ``kafka.<librdkafka name>``.
"""

from __future__ import annotations

import heapq
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark.decode import RawRecord, to_batch
from spark.kafka import BrokersAway, TopicOffsets, client_config
from spark.schemas import RECORD_SCHEMA
from spark.settings import SOURCE_TOPIC

log = logging.getLogger(__name__)

FORMAT: Final = "rlmm"
MAX_RECORDS: Final = 50_000
TASKS: Final = 2
CONSUME_RECORDS: Final = 2_000
CONSUME_TIMEOUT_S: Final = 0.1
STALL_TIMEOUT_S: Final = 30.0  # no record for so long: the brokers are away, the query ends and is started again
# A marker in messages, because Spark hands the driver nothing of an exception but its text.
GAP_MARKER: Final = "METADATA_GAP"
WENT_BACK_MARKER: Final = "METADATA_OFFSETS_WENT_BACK"

# librdkafka fetches far ahead by default, up to four times a batch, for nothing: the next batch
# may be read elsewhere. Small fetches need the short back-off, or they stall for a second.
CONSUMER_SETTINGS: Final[Mapping[str, Any]] = {
    "group.id": "ebbline-pipeline",  # required by the library; offsets are never committed
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",  # as Kafka's own consumer of this topic
    "check.crcs": True,
    "fetch.message.max.bytes": 65_536,
    "queued.max.messages.kbytes": 4_096,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 50,
}


class MetadataGap(Exception):
    """Records that were never read are gone from the topic."""

    def __init__(self, partition: str, held_from: str) -> None:
        super().__init__(
            f"{GAP_MARKER}: {partition} {held_from}; records before that were never read and are gone. "
            "Set the topic's retention.ms to -1, then run `ebbline pipeline rebuild`."
        )


class OffsetsWentBack(Exception):
    """The topic ends before what was read of it: it was recreated, or brokers that restart say so for a moment."""

    def __init__(self, partition: str, high: int, read: int) -> None:
        super().__init__(
            f"{WENT_BACK_MARKER}: {partition} ends at offset {high} and was read up to {read} before: "
            "the topic was recreated or lost records. Run `ebbline pipeline rebuild`."
        )


@dataclass(frozen=True)
class OffsetRanges(InputPartition):
    """What one task reads: (topic partition, from, to), half-open."""

    ranges: tuple[tuple[int, int, int], ...]


class RemoteLogMetadataSource(DataSource):
    """Registered by `register`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return RECORD_SCHEMA

    def streamReader(self, schema: StructType) -> RemoteLogMetadataReader:
        return RemoteLogMetadataReader(dict(self.options))


def register(session: SparkSession) -> None:
    """Make ``format("rlmm")`` known to the session."""
    session.dataSource.register(RemoteLogMetadataSource)


class RemoteLogMetadataReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets on the planning side, records in the tasks. An offset is ``{"<topic partition>": next offset}``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        known = {name.lower(): value for name, value in options.items()}
        self._servers = known["bootstrap.servers"]
        self._topic = known.get("topic", SOURCE_TOPIC)
        self._starting = {str(p): int(o) for p, o in json.loads(known.get("startingoffsets", "{}")).items()}
        self._max_records = int(known.get("maxrecords", MAX_RECORDS))
        self._tasks = int(known.get("tasks", TASKS))
        self._properties = {name[6:]: value for name, value in known.items() if name.startswith("kafka.")}
        self._available_now: dict[str, int] | None = None

    # --- planning side ---

    def initialOffset(self) -> dict[str, int]:
        start = {}
        for partition, held in _offsets_of(self).held().items():
            offset = self._starting.get(str(partition), held.low)
            if offset < held.low:
                raise MetadataGap(f"{self._topic}-{partition}", f"begins at offset {held.low}, {offset} was to be next")
            if offset > held.high:
                raise OffsetsWentBack(f"{self._topic}-{partition}", held.high, offset)
            start[str(partition)] = offset
        return start

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
            return admit(start, high, limit.max_rows)
        return {**start, **high}

    def reportLatestOffset(self) -> dict[str, int] | None:
        try:
            return self._high()
        except BrokersAway:
            return None

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        # A topic partition that appeared later starts at 0; were that gone, reading it fails loudly.
        ranges = [(int(p), start.get(p, 0), offset) for p, offset in end.items() if offset > start.get(p, 0)]
        return [OffsetRanges(tuple(part)) for part in spread(ranges, self._tasks)]

    def _high(self) -> dict[str, int]:
        return {str(partition): offset for partition, offset in _offsets_of(self).high().items()}

    # --- tasks ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRanges)
        return _read(_consumer_of(self), self._topic, partition.ranges)


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
    for one in sorted(ranges, key=lambda r: (r[1] - r[2], r[0])):
        records, task = heapq.heappop(heap)
        dealt[task].append(one)
        heapq.heappush(heap, (records + one[2] - one[1], task))
    return [part for part in dealt if part]


# Clients of this worker process, by reader settings. Spark runs one task at a time in a worker
# and keeps it between batches; a reader is pickled anew for each, so it cannot hold them.
_consumers: dict[str, Consumer] = {}
_offsets: dict[str, TopicOffsets] = {}


def _settings_key(reader: RemoteLogMetadataReader) -> str:
    return json.dumps([reader._servers, reader._topic, sorted(reader._properties.items())])


def _offsets_of(reader: RemoteLogMetadataReader) -> TopicOffsets:
    key = _settings_key(reader)
    if key not in _offsets:
        _offsets[key] = TopicOffsets(reader._servers, reader._topic, reader._properties, "offsets")
    return _offsets[key]


def _consumer_of(reader: RemoteLogMetadataReader) -> Consumer:
    key = _settings_key(reader)
    if key not in _consumers:
        config = client_config(reader._servers, reader._properties, "source")
        _consumers[key] = Consumer({**config, **CONSUMER_SETTINGS})
    return _consumers[key]


def _read(consumer: Consumer, topic: str, ranges: Sequence[tuple[int, int, int]]) -> Iterator[pa.RecordBatch]:
    """Records of ``ranges``, decoded. Raises MetadataGap when an offset is gone, BrokersAway after a stall."""
    ends = {partition: end for partition, _, end in ranges}
    nexts = {partition: start for partition, start, _ in ranges}
    consumer.assign([TopicPartition(topic, partition, start) for partition, start, _ in ranges])
    deadline = time.monotonic() + STALL_TIMEOUT_S
    try:
        while ends:
            # It returns when it has as many or time is up, so never ask for more than can come.
            missing = sum(end - nexts[partition] for partition, end in ends.items())
            messages = consumer.consume(min(CONSUME_RECORDS, missing), CONSUME_TIMEOUT_S)
            records = []
            for message in messages:
                record = _take(message, topic, ends)
                if record is not None:
                    records.append(record)
                    nexts[record[0]] = record[1] + 1
            if records:
                yield to_batch(records)
            if messages:
                deadline = time.monotonic() + STALL_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise BrokersAway(f"no record of {topic} {sorted(ends)} came for {STALL_TIMEOUT_S:.0f} s")
    except KafkaException as error:
        raise BrokersAway(f"reading {topic} failed: {error}") from error
    finally:
        consumer.unassign()


def _take(message: Message, topic: str, ends: dict[int, int]) -> RawRecord | None:
    """The record, when it belongs to the batch. Takes a topic partition out of ``ends`` once it is read to its end."""
    error, partition, offset = message.error(), message.partition(), message.offset()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF:
            # Also when the last offsets hold no record but a transaction marker.
            if partition in ends and offset is not None and offset >= ends[partition]:
                del ends[partition]
            return None
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise MetadataGap(f"{topic}-{partition}", f"no longer has an offset to be read ({error.str()})")
        if error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            return None  # the library connects again; a stall ends the read
        raise KafkaException(error)
    assert partition is not None
    assert offset is not None
    if partition not in ends:
        return None  # fetched ahead of the batch
    end = ends[partition]
    if offset >= end - 1:
        del ends[partition]
        if offset >= end:
            return None
    return partition, offset, message.timestamp()[1], message.key(), message.value()
