"""Reads ranges of offsets of the source topic, decoded: what a task of Spark does, and what runs without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spark.decode import RawRecord, passed_over, to_batch
from spark.kafka import BrokersAway, OffsetsHeld, client_config, new_consumer
from spark.unreadable import NOT_READABLE, STUCK_S, readable_from

CONSUME_RECORDS: Final = 2_000
CONSUME_TIMEOUT_S: Final = 0.1
SAMPLE_RECORDS: Final = 500
SAMPLE_TIMEOUT_S: Final = 0.2
RECORD_BYTES_MIN: Final = 64  # offsets, times and states, whatever the value
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


class TopicRecreated(Exception):
    """The topic is another one of the same name than the ledger was made of."""

    def __init__(self, topic: str, before: str, now: str) -> None:
        super().__init__(
            f"{GAP_MARKER}: {topic} was deleted and created again: it has the id {now} and was read as {before}. "
            "Run `ebbline pipeline rebuild`."
        )


ENDS: Final = (MetadataGap, OffsetsWentBack, TopicRecreated)
"""Errors after which a stream cannot go on."""


def start_offsets(topic: str, held: Mapping[int, OffsetsHeld], next_offsets: Mapping[int, int]) -> dict[int, int]:
    """Where to begin each topic partition: where it is known, else at the first offset.

    Raises MetadataGap and OffsetsWentBack where the topic does not hold the offset that is known.
    """
    start = {}
    for partition, here in held.items():
        offset = next_offsets.get(partition, here.low)
        if offset < here.low:
            raise MetadataGap(f"{topic}-{partition}", f"begins at offset {here.low}, {offset} was to be next")
        if offset > here.high:
            raise OffsetsWentBack(f"{topic}-{partition}", here.high, offset)
        start[partition] = offset
    for partition in sorted(next_offsets.keys() - held.keys()):  # of a topic made again with fewer
        raise OffsetsWentBack(f"{topic}-{partition}", 0, next_offsets[partition])
    return start


@dataclass(frozen=True, slots=True)
class SourceConsumer:
    """A consumer for `read` with its settings in librdkafka's names: another one finds out why it gets nothing."""

    consumer: Consumer
    config: Mapping[str, Any]


def open_consumer(bootstrap_servers: str, properties: Mapping[str, str]) -> SourceConsumer:
    """For one range of offsets at a time; close its consumer in the end. Raises SettingsError."""
    config = {**client_config(bootstrap_servers, properties, "source"), **CONSUMER_SETTINGS}
    return SourceConsumer(new_consumer(config), config)


def read(source: SourceConsumer, topic: str, ranges: Sequence[tuple[int, int, int]]) -> Iterator[pa.RecordBatch]:
    """Records of ``ranges``, decoded; of a batch that holds none, a row with the problem. Raises MetadataGap when an
    offset is gone, BrokersAway after a stall.
    """
    consumer = source.consumer
    ends = {partition: end for partition, _, end in ranges}
    nexts = {partition: start for partition, start, _ in ranges}
    consumer.assign([TopicPartition(topic, partition, start) for partition, start, _ in ranges])
    deadline = time.monotonic() + STALL_TIMEOUT_S
    came, probe_after_s = dict.fromkeys(ends, time.monotonic()), dict.fromkeys(ends, STUCK_S)
    try:
        while ends:
            # It returns when it has as many or time is up, so never ask for more than can come.
            missing = sum(end - nexts[partition] for partition, end in ends.items())
            messages = consumer.consume(min(CONSUME_RECORDS, missing), CONSUME_TIMEOUT_S)
            records = []
            for message in messages:
                record = _record_of(message, topic, ends)
                if record is not None:
                    records.append(record)
                    nexts[record[0]] = record[1] + 1
                    came[record[0]] = time.monotonic()
                    probe_after_s[record[0]] = STUCK_S
            if records:
                yield to_batch(records)
            stuck = min(ends, key=came.__getitem__, default=None)
            if stuck is not None and time.monotonic() - came[stuck] > probe_after_s[stuck]:
                behind = readable_from(source.config, topic, stuck, nexts[stuck], ends[stuck])
                # A probe uses up some of the reader's quota, and ends fetches that are under way.
                probe_after_s[stuck] *= 2
                if behind is not None:
                    # The rest of a long batch, if there is one, is looked at as soon as nothing comes.
                    probe_after_s[stuck] = STUCK_S
                    yield passed_over(stuck, nexts[stuck], behind)
                    nexts[stuck], deadline = behind, time.monotonic() + STALL_TIMEOUT_S
                    if behind >= ends[stuck]:
                        del ends[stuck]
                consumer.assign([TopicPartition(topic, partition, nexts[partition]) for partition in ends])
                came = dict.fromkeys(ends, time.monotonic())
            elif records:
                deadline = time.monotonic() + STALL_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise BrokersAway(f"no record of {topic} {sorted(ends)} came for {STALL_TIMEOUT_S:.0f} s")
    except KafkaException as error:
        raise BrokersAway(f"reading {topic} failed: {error}") from error
    finally:
        consumer.unassign()


def mean_bytes(source: SourceConsumer, topic: str, positions: Mapping[int, int]) -> float | None:
    """The mean size of key and value of some records from ``positions`` on; None when none came at once."""
    consumer = source.consumer
    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in positions.items()])
    try:
        messages = consumer.consume(SAMPLE_RECORDS, SAMPLE_TIMEOUT_S)
    except KafkaException:
        return None  # the read that follows says what is wrong
    finally:
        consumer.unassign()
    sizes = [len(message.key() or b"") + len(message.value() or b"") for message in messages if message.error() is None]
    return RECORD_BYTES_MIN + sum(sizes) / len(sizes) if sizes else None


def _record_of(message: Message, topic: str, ends: dict[int, int]) -> RawRecord | None:
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
        if error.code() in NOT_READABLE:
            return None  # the place is looked at when nothing more comes
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
