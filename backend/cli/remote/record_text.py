"""Events of `__remote_log_metadata` as lines for people and as JSON. Pure.

The line is KIP-405's ("Message Formatter for the internal topic"):
``partition:…,message-offset:…,type:…,version:…,event-value:{…}``. Where the KIP's text and Kafka's records differ the
record counts: what the KIP calls leader epoch is the broker's id. With all fields the value is what Kafka's own
formatter prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from backend.cli.shared.value_text import printable_text
from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    RemoteLogMetadata,
    SegmentMetadata,
    SegmentSnapshot,
    SegmentUpdate,
    Unreadable,
    UnreadableReason,
    decode,
)
from backend.tiering.ids import TopicIdPartition, uuid_text

RECORD_VERSION: Final = 0
TYPES: Final[Mapping[type[RemoteLogMetadata], str]] = {
    SegmentMetadata: "RemoteLogSegmentMetadata",
    SegmentUpdate: "RemoteLogSegmentMetadataUpdate",
    PartitionDelete: "RemotePartitionDeleteMetadata",
    SegmentSnapshot: "RemoteLogSegmentMetadataSnapshot",
}
UNREADABLE: Final = "Unreadable"
TOMBSTONE: Final = "Tombstone"
VALUE_CHARS_MAX: Final = 2000  # of an unreadable value in hex: 1,000 bytes say what it is


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The formatter's properties, by the KIP's names with underscores."""

    print_partition: bool = False
    print_message_offset: bool = False
    print_version: bool = False
    print_all_event_value_fields: bool = False
    separator: str = ","

    def with_property(self, text: str) -> LineFormat:
        """With one ``name=value`` set. ValueError says what is wrong with it."""
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is no property: give name=value, like print.partition=true")
        if name == "separator":
            return replace(self, separator=value)
        field = name.replace(".", "_")
        if field not in ("print_partition", "print_message_offset", "print_version", "print_all_event_value_fields"):
            names = "print.partition, print.message.offset, print.version, print.all.event.value.fields and separator"
            raise ValueError(f"there is no property {name!r}; known are {names}")
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{name} is {value!r}; it must be true or false")
        flags: dict[str, Any] = {field: value.lower() == "true"}
        return replace(self, **flags)


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One record of the metadata topic and what it says; `event` is None when nothing can be read of it."""

    partition: int
    offset: int
    timestamp_ms: int
    value: bytes | None
    event: RemoteLogMetadata | None
    problem: str = ""

    @classmethod
    def of(cls, partition: int, offset: int, timestamp_ms: int, value: bytes | None) -> TopicRecord:
        """Decoded; never fails."""
        try:
            return cls(partition, offset, timestamp_ms, value, decode(value))
        except Unreadable as error:
            problem = "" if error.reason is UnreadableReason.EMPTY and value is None else f"{error.reason}: {error}"
            return cls(partition, offset, timestamp_ms, value, None, problem)

    @property
    def type(self) -> str:
        if self.event is not None:
            return TYPES[type(self.event)]
        return TOMBSTONE if self.value is None else UNREADABLE

    @property
    def is_unreadable(self) -> bool:
        return self.type == UNREADABLE

    @property
    def topic_id_partition(self) -> TopicIdPartition | None:
        """The partition of the event; None where the record does not say."""
        return None if self.event is None else getattr(self.event, "topic_id_partition", None)


def line(record: TopicRecord, form: LineFormat) -> str:
    """One line as the KIP has it."""
    parts = []
    if form.print_partition:
        parts.append(f"partition:{record.partition}")
    if form.print_message_offset:
        parts.append(f"message-offset:{record.offset}")
    parts.append(f"type:{record.type}")
    if form.print_version and record.event is not None:
        parts.append(f"version:{RECORD_VERSION}")
    parts.append(f"event-value:{_value(record, form)}")
    return (
        printable_text(form.separator.join(parts))
        if form.separator.isprintable()
        else form.separator.join(map(printable_text, parts))
    )


def _value(record: TopicRecord, form: LineFormat) -> str:
    if record.event is None:
        return "null" if record.value is None else f"{{problem:{record.problem}}}"
    return all_fields(record.event) if form.print_all_event_value_fields else _main_fields(record.event, form.separator)


def _main_fields(event: RemoteLogMetadata, sep: str) -> str:
    def braces(*pairs: tuple[str, object]) -> str:
        return "{" + sep.join(f"{name}:{value}" for name, value in pairs) + "}"

    def place(tip: TopicIdPartition) -> tuple[tuple[str, object], ...]:
        return ("topicId", uuid_text(tip.topic_id)), ("topicName", tip.topic), ("partition", tip.partition)

    offsets: tuple[tuple[str, object], ...] = ()
    match event:
        case SegmentMetadata():
            own = braces(("id", uuid_text(event.segment_id)), *place(event.topic_id_partition))
            offsets = (("start-offset", event.start_offset), ("end-offset", event.end_offset))
        case SegmentUpdate():
            own = braces(("id", uuid_text(event.segment_id)), *place(event.topic_id_partition))
        case SegmentSnapshot():
            own = braces(("id", uuid_text(event.segment_id)))
            offsets = (("start-offset", event.start_offset), ("end-offset", event.end_offset))
        case PartitionDelete():
            return braces(
                ("topic-id-partition", braces(*place(event.topic_id_partition))),
                ("broker-id", event.broker_id),
                ("remote-partition-delete-state", event.state.name),
            )
    return braces(
        ("remote-log-segment-id", own),
        *offsets,
        ("broker-id", event.broker_id),
        ("remote-log-segment-state", event.state.name),
    )


def all_fields(event: RemoteLogMetadata) -> str:
    """The event as Kafka's own class prints it."""

    def segment_id(tip: TopicIdPartition, id_: bytes) -> str:
        return f"RemoteLogSegmentId{{topicIdPartition={tip}, id={uuid_text(id_)}}}"

    def custom(value: bytes | None) -> str:
        return "Optional.empty" if value is None else f"Optional[CustomMetadata{{{len(value)} bytes}}]"

    def rest(of: SegmentMetadata | SegmentSnapshot) -> str:
        epochs = ", ".join(f"{epoch}={offset}" for epoch, offset in of.segment_leader_epochs)
        return (
            f"startOffset={of.start_offset}, endOffset={of.end_offset}, brokerId={of.broker_id},"
            f" maxTimestampMs={of.max_timestamp_ms}, eventTimestampMs={of.event_timestamp_ms},"
            f" segmentLeaderEpochs={{{epochs}}}, segmentSizeInBytes={of.segment_size_bytes},"
            f" customMetadata={custom(of.custom_metadata)}, state={of.state.name},"
            f" txnIdxEmpty={str(of.txn_index_empty).lower()}}}"
        )

    match event:
        case SegmentMetadata(tip, id_):
            return f"RemoteLogSegmentMetadata{{remoteLogSegmentId={segment_id(tip, id_)}, {rest(event)}"
        case SegmentUpdate(tip, id_, broker, event_ms, data, state):
            return (
                f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={segment_id(tip, id_)},"
                f" customMetadata={custom(data)}, state={state.name}, eventTimestampMs={event_ms}, brokerId={broker}}}"
            )
        case PartitionDelete(tip, broker, event_ms, progress):
            return (
                f"RemotePartitionDeleteMetadata{{topicPartition={tip}, state={progress.name},"
                f" eventTimestampMs={event_ms}, brokerId={broker}}}"
            )
        case SegmentSnapshot():
            return f"RemoteLogSegmentMetadataSnapshot{{segmentId={uuid_text(event.segment_id)}, {rest(event)}"


def document(record: TopicRecord) -> dict[str, Any]:
    """The record as one JSON object; ids in Kafka's text form, custom metadata and unreadable values in hex."""
    shown: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "type": record.type,
    }
    if record.event is None:
        value = None if record.value is None else record.value.hex()[:VALUE_CHARS_MAX]
        return {**shown, "problem": record.problem or None, "value": value}
    fields = record.event._asdict()
    tip = fields.pop("topic_id_partition", None)
    if tip is not None:
        shown |= {"topic": tip.topic, "topic_id": uuid_text(tip.topic_id), "topic_partition": tip.partition}
    if "segment_id" in fields:
        fields["segment_id"] = uuid_text(fields["segment_id"])
    if fields.get("custom_metadata") is not None:
        fields["custom_metadata"] = fields["custom_metadata"].hex()
    return {**shown, "version": RECORD_VERSION, **fields, "state": record.event.state.name}
