"""Reads `__remote_log_metadata` of any Kafka as a consumer without a group, partition after partition."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from backend.cli.remote.record_text import TopicRecord
from backend.cli.shared.value_text import printable_text
from backend.protocol.remote_log.metadata_serde import UnreadableReason
from spark.unreadable import NOT_READABLE, STUCK_S, readable_from

METADATA_TOPIC: Final = "__remote_log_metadata"
REQUEST_TIMEOUT_S: Final = 5.0
# No record for so long although the partition has more: the brokers are away.
STALL_TIMEOUT_S: Final = 30.0
POLL_TIMEOUT_S: Final = 0.2


class TopicUnavailable(Exception):
    """One sentence why the topic cannot be read."""


def read_properties(path: Path) -> dict[str, str]:
    """Client settings of a file with ``name=value`` lines, in librdkafka's names. Raises TopicUnavailable."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or "it is no text"
        raise TopicUnavailable(f"The file {path} cannot be read ({cause}): give one with name=value lines.") from error
    properties = {}
    for text in filter(None, (line.strip() for line in lines)):
        if text.startswith(("#", "!")):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise TopicUnavailable(f"{path} has a line without '=': {text!r}. Give name=value lines.")
        properties[name.strip()] = value.strip()
    return properties


class MetadataTopicReader:
    """A context manager; calls block. Records are read as they stand, aborted or not, as Kafka's brokers do."""

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str] | None = None) -> None:
        self._servers = bootstrap_servers
        self._positions: dict[int, int] = {}
        self._config = {
            "client.id": "ebbline-remote",
            "socket.connection.setup.timeout.ms": 5_000,
            # Connections that fail show in the calls; librdkafka would write them to stderr too.
            "log_level": 0,
            "error_cb": _ignore,
            # Fetches that find nothing must not hold up those of the next partition.
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 5,
            **(properties or {}),
            "bootstrap.servers": bootstrap_servers,
            "group.id": "ebbline-remote",  # required by the library; nothing is committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
        try:
            self._consumer = Consumer(self._config)
        except (KafkaException, ValueError) as error:
            raise TopicUnavailable(f"The client settings cannot be used: {_reason(error)}.") from error

    def __enter__(self) -> MetadataTopicReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def cluster_id(self, expected: str | None = None) -> str:
        """Of the cluster that answers. Raises TopicUnavailable when none does, or not the `expected` one."""
        try:
            answered = str(self._consumer.list_topics(METADATA_TOPIC, timeout=REQUEST_TIMEOUT_S).cluster_id)
        except KafkaException as error:
            raise self._away(error) from error
        if expected is not None and answered != expected:
            raise TopicUnavailable(
                f"At {self._servers} answers cluster {answered}, and the data folder is of {expected}: start its"
                " `ebbline up`, or name the brokers with --bootstrap-server."
            )
        return answered

    def _away(self, error: KafkaException) -> TopicUnavailable:
        return TopicUnavailable(
            f"No broker answers at {self._servers} ({_reason(error)}): name one with --bootstrap-server."
        )

    def partitions(self) -> list[int]:
        """The topic's partitions. Raises TopicUnavailable."""
        try:
            topics = self._consumer.list_topics(METADATA_TOPIC, timeout=REQUEST_TIMEOUT_S).topics
        except KafkaException as error:
            raise self._away(error) from error
        metadata = topics.get(METADATA_TOPIC)
        if metadata is None or metadata.error is not None or not metadata.partitions:
            raise TopicUnavailable(
                f"The cluster at {self._servers} has no topic {METADATA_TOPIC}: nothing of it is tiered by KIP-405's"
                " topic-based metadata manager."
            )
        return sorted(metadata.partitions)

    def records(self, partitions: Iterable[int] | None = None) -> Iterator[TopicRecord]:
        """The partitions' records from this reader's positions to their ends as of now. Raises TopicUnavailable."""
        for partition in self.partitions() if partitions is None else partitions:
            yield from self._to_end(partition)

    def _to_end(self, partition: int) -> Iterator[TopicRecord]:
        try:
            from_position = TopicPartition(METADATA_TOPIC, partition)
            low, high = self._consumer.get_watermark_offsets(from_position, timeout=REQUEST_TIMEOUT_S)
            position = max(low, self._positions.get(partition, low))
            if position < high:
                self._consumer.assign([TopicPartition(METADATA_TOPIC, partition, position)])
                yield from self._until(partition, position, high)
            self._positions[partition] = max(position, high)
        except KafkaException as error:
            raise TopicUnavailable(f"{METADATA_TOPIC}-{partition} cannot be read: {_reason(error)}.") from error

    def _until(self, partition: int, position: int, end: int) -> Iterator[TopicRecord]:
        silent_s, checked = 0.0, False
        while True:
            # One by one: a call for many waits for all of them or its time.
            message = self._consumer.poll(POLL_TIMEOUT_S)
            failed = None if message is None else message.error()
            if message is None or (failed is not None and failed.code() in NOT_READABLE):
                silent_s += POLL_TIMEOUT_S
                if silent_s >= STUCK_S and not checked:
                    checked = True
                    behind = readable_from(self._config, METADATA_TOPIC, partition, position, end)
                    if behind is not None:
                        yield _unreadable(partition, position, behind)
                        position, silent_s, checked = behind, 0.0, False
                    if position >= end:
                        return
                    self._consumer.assign([TopicPartition(METADATA_TOPIC, partition, position)])
                elif silent_s >= STALL_TIMEOUT_S:
                    raise TopicUnavailable(f"{METADATA_TOPIC}-{partition} gives nothing any more: do its brokers run?")
                continue
            silent_s, checked = 0.0, False
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(error)
            record = _record(message)
            position = record.offset + 1
            if record.offset < end:
                yield record
            if record.offset >= end - 1:
                return

    def tail(self, partitions: Iterable[int]) -> Iterator[TopicRecord]:
        """The records after those that were read, for ever."""
        self._consumer.assign(
            [TopicPartition(METADATA_TOPIC, partition, self._positions.get(partition, 0)) for partition in partitions]
        )
        while True:
            message = self._consumer.poll(POLL_TIMEOUT_S)
            error = None if message is None else message.error()
            if message is not None:
                if error is None:
                    yield _record(message)
                elif error.code() != KafkaError._PARTITION_EOF:
                    print(f"ebbline: {METADATA_TOPIC}: {printable_text(error.str())}", file=sys.stderr)


def _unreadable(partition: int, start: int, end: int) -> TopicRecord:
    problem = f"{UnreadableReason.MALFORMED}: offsets {start} to {end - 1} hold a batch whose records cannot be read"
    return TopicRecord(partition, start, -1, b"", None, problem)


def _record(message: Any) -> TopicRecord:
    return TopicRecord.of(message.partition(), message.offset(), message.timestamp()[1], message.value())


def _reason(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return printable_text(first.str() if isinstance(first, KafkaError) else str(first)).rstrip(".")


def _ignore(_error: object) -> None:
    """Connection errors show as TopicUnavailable of the call that met them."""
