"""Values of `__remote_log_metadata` (KIP-405): the life of every remote segment, as Kafka 4.3 writes it.

A value is three unsigned varints (frame version 1, record key, record version 0) and a body in flexible encoding. Brokers
replay millions of them at start, so the usual shape is packed and unpacked by hand; everything else (long names,
unknown tagged fields) goes through the codec of the message tables and must give the same.
"""

from enum import StrEnum
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple, NoReturn

from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, EncodeError
from backend.protocol.ids import UUID_BYTES, TopicIdPartition
from backend.protocol.murmur2 import murmur2, to_positive
from backend.protocol.segment_states import PartitionDeleteState, SegmentState
from backend.protocol.varint import decode_uvarint, encode_uvarint

__all__ = [
    "PartitionDelete",
    "PartitionDeleteState",
    "RemoteLogMetadata",
    "SegmentMetadata",
    "SegmentSnapshot",
    "SegmentState",
    "SegmentUpdate",
    "Unreadable",
    "UnreadableReason",
    "decode",
    "encode",
    "metadata_partition",
]

FRAME_VERSION: Final = 1
RECORD_VERSION: Final = 0
SEGMENT: Final = 0
UPDATE: Final = 1
PARTITION_DELETE: Final = 2
SNAPSHOT: Final = 3

Epochs = tuple[tuple[int, int], ...]


class UnreadableReason(StrEnum):
    """Why a value cannot be read; a pipeline that sets values aside keeps this beside them."""

    EMPTY = "empty"  # null or without a byte
    FRAME_VERSION = "frame-version"
    RECORD_KEY = "record-key"
    RECORD_VERSION = "record-version"
    MALFORMED = "malformed"  # cut off, or a length that cannot be
    TRAILING_BYTES = "trailing-bytes"
    INVALID_VALUE = "invalid-value"  # well-formed, but an unknown state or impossible offsets


class Unreadable(DecodeError):
    """A value that no broker of Kafka 4.3 would have written. Reading it again cannot help."""

    def __init__(self, reason: UnreadableReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SegmentUpdate(NamedTuple):
    """A later state of a segment (`RemoteLogSegmentMetadataUpdate`)."""

    topic_id_partition: TopicIdPartition
    segment_id: bytes
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: SegmentState


class SegmentMetadata(NamedTuple):
    """A remote segment (`RemoteLogSegmentMetadata`): the event with which its copy starts, or what is known of it."""

    topic_id_partition: TopicIdPartition
    segment_id: bytes
    start_offset: int
    end_offset: int  # inclusive, as Kafka has it
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: Epochs  # (leader epoch, first offset of it in the segment), ascending
    segment_size_bytes: int  # of the .log file alone
    custom_metadata: bytes | None
    state: SegmentState
    txn_index_empty: bool = False

    def updated(self, update: SegmentUpdate) -> "SegmentMetadata":
        """The segment after an update: broker, time, custom metadata (also null) and state are replaced."""
        return self._replace(
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            custom_metadata=update.custom_metadata,
            state=update.state,
        )


class PartitionDelete(NamedTuple):
    """Progress of removing all remote data of a partition (`RemotePartitionDeleteMetadata`)."""

    topic_id_partition: TopicIdPartition
    broker_id: int
    event_timestamp_ms: int
    state: PartitionDeleteState


class SegmentSnapshot(NamedTuple):
    """A segment without its partition (`RemoteLogSegmentMetadataSnapshot`): for snapshot files, never published."""

    segment_id: bytes
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: Epochs
    segment_size_bytes: int
    custom_metadata: bytes | None
    state: SegmentState
    txn_index_empty: bool = False


RemoteLogMetadata = SegmentMetadata | SegmentUpdate | PartitionDelete | SegmentSnapshot

_STATES: Final = tuple(SegmentState)
_DELETE_STATES: Final = tuple(PartitionDeleteState)
# What stands in one piece in a usual value. Tag counts of nested structs are B and must be 0.
_PARTITION: Final = Struct(">16siB")
_SEGMENT: Final = Struct(">16sBqqiqqB")  # id, tags, start, end, broker, max and event timestamp, epochs + 1
_SNAPSHOT: Final = Struct(">16sqqiqqB")
_EPOCH: Final = Struct(">iqB")
_SIZE: Final = Struct(">iB")  # segment size, custom metadata length + 1
_UPDATE: Final = Struct(">16sBiqB")  # id, tags, broker, event timestamp, custom metadata length + 1
_DELETE: Final = Struct(">iqbB")
_TAIL_PLAIN: Final = b"\x00"
_TAIL_TXN_EMPTY: Final = b"\x01\x00\x01\x01"  # one tag: number 0, one byte, true
_ONE_BYTE_MAX: Final = 127  # of a varint
# One entry per partition that is read about: 65 536 of about 400 bytes are 26 MB at most.
_PARTITIONS_CACHED: Final = 1 << 16


# Encoding.


def _uuid(value: bytes, name: str) -> bytes:
    if len(value) != UUID_BYTES:
        raise EncodeError(f"{name} has {UUID_BYTES} bytes, not {len(value)}")
    return value


def _check(event: SegmentMetadata | SegmentSnapshot) -> None:
    if event.start_offset < 0 or event.end_offset < event.start_offset:
        raise EncodeError(f"a segment cannot hold offsets {event.start_offset} to {event.end_offset}")
    if not event.segment_leader_epochs:
        raise EncodeError(f"the segment of offsets {event.start_offset} to {event.end_offset} has no leader epoch")


def _encode_partition(tip: TopicIdPartition) -> bytes:
    name = tip.topic.encode()
    return encode_uvarint(len(name) + 1) + name + _PARTITION.pack(_uuid(tip.topic_id, "a topic id"), tip.partition, 0)


def _encode_bytes(value: bytes | None) -> bytes:
    return b"\x00" if value is None else encode_uvarint(len(value) + 1) + value


def _encode_rest(event: SegmentMetadata | SegmentSnapshot) -> bytes:
    epochs = event.segment_leader_epochs
    return b"".join(
        (
            encode_uvarint(len(epochs) + 1),
            *(_EPOCH.pack(epoch, offset, 0) for epoch, offset in epochs),
            event.segment_size_bytes.to_bytes(4, "big", signed=True),
            _encode_bytes(event.custom_metadata),
            event.state.to_bytes(1, "big"),
            _TAIL_TXN_EMPTY if event.txn_index_empty else _TAIL_PLAIN,
        )
    )


_SEGMENT_HEAD: Final = Struct(">16sBqqiqq")
_SNAPSHOT_HEAD: Final = Struct(">16sqqiqq")
_UPDATE_HEAD: Final = Struct(">16sBiq")


def _encode(event: RemoteLogMetadata) -> bytes:
    match event:
        case SegmentMetadata(tip, segment_id, start, end, broker, max_ms, event_ms):
            _check(event)
            head = _SEGMENT_HEAD.pack(_uuid(segment_id, "a segment id"), 0, start, end, broker, max_ms, event_ms)
            return b"\x01\x00\x00" + _encode_partition(tip) + head + _encode_rest(event)
        case SegmentUpdate(tip, segment_id, broker, event_ms, custom, state):
            head = _UPDATE_HEAD.pack(_uuid(segment_id, "a segment id"), 0, broker, event_ms)
            tail = _encode_bytes(custom) + state.to_bytes(1, "big") + _TAIL_PLAIN
            return b"\x01\x01\x00" + _encode_partition(tip) + head + tail
        case PartitionDelete(tip, broker, event_ms, delete_state):
            return b"\x01\x02\x00" + _encode_partition(tip) + _DELETE.pack(broker, event_ms, delete_state, 0)
        case SegmentSnapshot(segment_id, start, end, broker, max_ms, event_ms):
            _check(event)
            head = _SNAPSHOT_HEAD.pack(_uuid(segment_id, "a segment id"), start, end, broker, max_ms, event_ms)
            return b"\x01\x03\x00" + head + _encode_rest(event)


def encode(event: RemoteLogMetadata) -> bytes:
    """Kafka's bytes of an event. Raises EncodeError for impossible offsets, no epochs or a value that does not fit."""
    try:
        return _encode(event)
    except (StructError, OverflowError) as error:
        raise EncodeError(f"{event.__class__.__name__} has a value that does not fit: {error}") from error


# Decoding.


def _invalid(message: str) -> NoReturn:
    raise Unreadable(UnreadableReason.INVALID_VALUE, message)


def _segment_state(value: int) -> SegmentState:
    if not 0 <= value < len(_STATES):
        _invalid(f"remote segment state {value} is unknown")
    return _STATES[value]


def _delete_state(value: int) -> PartitionDeleteState:
    if not 0 <= value < len(_DELETE_STATES):
        _invalid(f"partition delete state {value} is unknown")
    return _DELETE_STATES[value]


@lru_cache(maxsize=_PARTITIONS_CACHED)
def _partition(raw: bytes) -> TopicIdPartition | None:
    """Of the name's bytes followed by topic id, partition and tag count; None when there are tags."""
    topic_id, partition, tags = _PARTITION.unpack_from(raw, len(raw) - _PARTITION.size)
    if tags:
        return None
    return TopicIdPartition(raw[: -_PARTITION.size].decode(), topic_id, partition)


class _Unusual(Exception):
    """The value is not of the shape read by hand."""


def _read_partition(value: bytes) -> tuple[TopicIdPartition, int]:
    size = value[3]
    end = 3 + size + _PARTITION.size
    if not 0 < size <= _ONE_BYTE_MAX or end > len(value):
        raise _Unusual
    found = _partition(value[4:end])
    if found is None:
        raise _Unusual
    return found, end


def _read_epochs(value: bytes, position: int, size: int) -> tuple[Epochs, int]:
    if size == 2:
        epoch, offset, tags = _EPOCH.unpack_from(value, position)
        if tags:
            raise _Unusual
        return ((epoch, offset),), position + _EPOCH.size
    if not 1 < size <= _ONE_BYTE_MAX:
        raise _Unusual
    end = position + (size - 1) * _EPOCH.size
    epochs = []
    for epoch, offset, tags in _EPOCH.iter_unpack(value[position:end]):
        if tags:
            raise _Unusual
        epochs.append((epoch, offset))
    return tuple(epochs), end


def _read_custom(value: bytes, position: int, size: int) -> tuple[bytes | None, int]:
    """The nullable bytes behind their length, of which the next byte must be there too."""
    if size == 0:
        return None, position
    if size > _ONE_BYTE_MAX:
        raise _Unusual
    end = position + size - 1
    return value[position:end], end


def _read_tail(value: bytes, position: int) -> bool:
    """Whether the transaction index is empty, when the value ends as Kafka ends it."""
    tail = value[position:]
    if tail == _TAIL_PLAIN:
        return False
    if tail == _TAIL_TXN_EMPTY:
        return True
    raise _Unusual


def _read_segment(value: bytes) -> SegmentMetadata:
    tip, at = _read_partition(value)
    segment_id, tags, start, end, broker, max_ms, event_ms, epoch_size = _SEGMENT.unpack_from(value, at)
    if tags or not 0 <= start <= end:
        raise _Unusual
    epochs, at = _read_epochs(value, at + _SEGMENT.size, epoch_size)
    size_bytes, custom_size = _SIZE.unpack_from(value, at)
    custom, at = _read_custom(value, at + _SIZE.size, custom_size)
    state = _segment_state(value[at])
    return SegmentMetadata(
        tip,
        segment_id,
        start,
        end,
        broker,
        max_ms,
        event_ms,
        epochs,
        size_bytes,
        custom,
        state,
        _read_tail(value, at + 1),
    )


def _read_update(value: bytes) -> SegmentUpdate:
    tip, at = _read_partition(value)
    segment_id, tags, broker, event_ms, custom_size = _UPDATE.unpack_from(value, at)
    if tags:
        raise _Unusual
    custom, at = _read_custom(value, at + _UPDATE.size, custom_size)
    if value[at + 1 :] != _TAIL_PLAIN:
        raise _Unusual
    return SegmentUpdate(tip, segment_id, broker, event_ms, custom, _segment_state(value[at]))


def _read_delete(value: bytes) -> PartitionDelete:
    tip, at = _read_partition(value)
    broker, event_ms, state, tags = _DELETE.unpack_from(value, at)
    if tags or at + _DELETE.size != len(value):
        raise _Unusual
    return PartitionDelete(tip, broker, event_ms, _delete_state(state))


_READERS: Final = {b"\x01\x00\x00": _read_segment, b"\x01\x01\x00": _read_update, b"\x01\x02\x00": _read_delete}


def _of_segment_id(found: Any) -> tuple[TopicIdPartition, bytes]:
    return _of_partition(found.topic_id_partition), found.id


def _of_partition(found: Any) -> TopicIdPartition:
    return TopicIdPartition(found.name, found.id, found.partition)


def _of_segment(found: Any) -> tuple[int, int, int, int, int, Epochs, int, bytes | None, SegmentState, bool]:
    if found.start_offset < 0 or found.end_offset < found.start_offset:
        _invalid(f"a segment cannot hold offsets {found.start_offset} to {found.end_offset}")
    if not found.segment_leader_epochs:
        _invalid(f"the segment of offsets {found.start_offset} to {found.end_offset} has no leader epoch")
    return (
        found.start_offset,
        found.end_offset,
        found.broker_id,
        found.max_timestamp_ms,
        found.event_timestamp_ms,
        tuple((entry.leader_epoch, entry.offset) for entry in found.segment_leader_epochs),
        found.segment_size_in_bytes,
        found.custom_metadata,
        _segment_state(found.remote_log_segment_state),
        found.txn_index_empty,
    )


def _from_message(found: m.Message) -> RemoteLogMetadata:
    match found:
        case m.RemoteLogSegmentMetadataRecord():
            return SegmentMetadata(*_of_segment_id(found.remote_log_segment_id), *_of_segment(found))
        case m.RemoteLogSegmentMetadataUpdateRecord():
            return SegmentUpdate(
                *_of_segment_id(found.remote_log_segment_id),
                found.broker_id,
                found.event_timestamp_ms,
                found.custom_metadata,
                _segment_state(found.remote_log_segment_state),
            )
        case m.RemotePartitionDeleteMetadataRecord():
            return PartitionDelete(
                _of_partition(found.topic_id_partition),
                found.broker_id,
                found.event_timestamp_ms,
                _delete_state(found.remote_partition_delete_state),
            )
        case m.RemoteLogSegmentMetadataSnapshotRecord():
            return SegmentSnapshot(found.segment_id, *_of_segment(found))
    raise AssertionError(found)


def _decode_by_table(value: bytes) -> RemoteLogMetadata:
    """Any value, by the message tables; says exactly what is wrong with one that cannot be read."""
    try:
        frame_version, position = decode_uvarint(value, 0)
        if frame_version != FRAME_VERSION:
            raise Unreadable(UnreadableReason.FRAME_VERSION, f"frame version {frame_version} is not {FRAME_VERSION}")
        key, position = decode_uvarint(value, position)
        version, position = decode_uvarint(value, position)
        if not SEGMENT <= key <= SNAPSHOT:
            raise Unreadable(UnreadableReason.RECORD_KEY, f"record key {key} is unknown")
        if version != RECORD_VERSION:
            raise Unreadable(UnreadableReason.RECORD_VERSION, f"version {version} of record key {key} is unknown")
        found, end = codec.decode(m.record_class("remote-log-metadata", key), version, value, position)
    except Unreadable:
        raise
    except IndexError as error:
        raise Unreadable(UnreadableReason.MALFORMED, f"a value of {len(value)} bytes is cut off") from error
    except DecodeError as error:
        raise Unreadable(UnreadableReason.MALFORMED, str(error)) from error
    if end != len(value):
        raise Unreadable(UnreadableReason.TRAILING_BYTES, f"{len(value) - end} bytes follow the end of the record")
    return _from_message(found)


def decode(value: bytes | bytearray | memoryview | None) -> RemoteLogMetadata:
    """The event in a record's value; raises Unreadable, which carries the reason, for anything Kafka would not read."""
    if not value:
        raise Unreadable(UnreadableReason.EMPTY, "a record of the metadata topic has no value")
    data = value if isinstance(value, bytes) else bytes(value)
    reader = _READERS.get(data[:3])
    if reader is not None:
        try:
            return reader(data)
        except (_Unusual, IndexError, StructError, UnicodeDecodeError):
            pass  # The table decodes what is unusual and says what is wrong with the rest.
    return _decode_by_table(data)


# Which partition of the metadata topic tells of a partition.


def _java_hash(value: int) -> int:
    """`Long.hashCode`, as 32 unsigned bits."""
    return (value ^ value >> 32) & 0xFFFFFFFF


def metadata_partition(topic_id: bytes, partition: int, partitions_count: int) -> int:
    """The partition of `__remote_log_metadata` that holds a partition's events (`RemoteLogMetadataTopicPartitioner`).

    The topic's name plays no part: what is hashed is the topic id's two halves, the lower one first, and the partition.
    """
    _uuid(topic_id, "a topic id")
    low, high = _java_hash(int.from_bytes(topic_id[8:], "big")), _java_hash(int.from_bytes(topic_id[:8], "big"))
    mixed = (((31 + low) * 31 + high) * 31 + partition) & 0xFFFFFFFF
    return to_positive(murmur2(mixed.to_bytes(4, "big"))) % partitions_count
