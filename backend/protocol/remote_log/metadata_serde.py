"""Values of `__remote_log_metadata` (KIP-405): the life of every remote segment, as Kafka 4.3 writes it.

A value is three unsigned varints (frame version 1, record key, record version 0) and a body in flexible encoding.
Brokers replay millions of them at start, so the canonical form (one leader epoch, no custom metadata) is unpacked here;
everything else goes through the codec of the message tables and must give the same.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final

from backend.protocol.errors import EncodeError
from backend.protocol.ids import UUID_BYTES, TopicIdPartition
from backend.protocol.remote_log.generated_decoder import decode_by_table
from backend.protocol.remote_log.metadata_partitioner import metadata_partition
from backend.protocol.remote_log.remote_log_events import (
    PartitionDelete,
    RemoteLogMetadata,
    SegmentMetadata,
    SegmentSnapshot,
    SegmentUpdate,
    Unreadable,
    UnreadableReason,
)
from backend.protocol.remote_log.segment_states import PartitionDeleteState, SegmentState
from backend.protocol.varint import encode_uvarint

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
    "partition_of",
]

# Fields that stand in one piece in the canonical form. Tag counts of structs are B and must be 0.
_PARTITION: Final = Struct(">16siB")
# id, tags, start, end, broker, max and event timestamp; count of epochs + 1, epoch, its offset, tags; size, length of
# the custom metadata + 1, state
_SEGMENT: Final = Struct(">16sBqqiqqBiqBiBb")
# The same of a snapshot record, which names no partition.
_SNAPSHOT: Final = Struct(">16sqqiqqBiqBiBb")
_EPOCH: Final = Struct(">iqB")
_UPDATE: Final = Struct(">16sBiqBbB")  # id, tags, broker, event timestamp, custom metadata length + 1, state, tags
_DELETE: Final = Struct(">iqbB")
# The same without the length that follows, for writing.
_SEGMENT_HEAD: Final = Struct(">16sBqqiqq")
_SNAPSHOT_HEAD: Final = Struct(">16sqqiqq")
_UPDATE_HEAD: Final = Struct(">16sBiq")
_TAIL_PLAIN: Final = b"\x00"
_TAIL_TXN_EMPTY: Final = b"\x01\x00\x01\x01"  # one tag: number 0, one byte, true
_ONE_BYTE_MAX: Final = 127  # of a varint
_ONE_EPOCH: Final = 2  # the length of a compact array of one
_STATES: Final = tuple(SegmentState)
_DELETE_STATES: Final = tuple(PartitionDeleteState)
_new = tuple.__new__
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
        case PartitionDelete(tip, broker, event_ms, progress):
            return b"\x01\x02\x00" + _encode_partition(tip) + _DELETE.pack(broker, event_ms, progress, 0)
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


@lru_cache(maxsize=_PARTITIONS_CACHED)
def partition_of(raw: bytes) -> TopicIdPartition | None:
    """Of the name's bytes followed by topic id, partition and tag count; None when there are tags, UnicodeDecodeError
    for a name that is not UTF-8.
    """
    topic_id, partition, tags = _PARTITION.unpack_from(raw, len(raw) - _PARTITION.size)
    if tags:
        return None
    return TopicIdPartition(raw[: -_PARTITION.size].decode(), topic_id, partition)


class _NotCanonical(Exception):
    """The value is not of the shape read by hand."""


def _read_partition(value: bytes) -> tuple[TopicIdPartition, int]:
    size = value[3]
    end = 3 + size + _PARTITION.size
    if not 0 < size <= _ONE_BYTE_MAX or end > len(value):
        raise _NotCanonical
    partition = partition_of(value[4:end])
    if partition is None:
        raise _NotCanonical
    return partition, end


def _read_segment(value: bytes) -> SegmentMetadata:
    tip, at = _read_partition(value)
    left = len(value) - at - _SEGMENT.size
    (segment_id, tags, start, end, broker, max_ms, event_ms, epochs, epoch, offset, more_tags, size, custom, state) = (
        _SEGMENT.unpack_from(value, at)
    )
    empty = left == len(_TAIL_TXN_EMPTY)
    if (
        epochs != _ONE_EPOCH
        or tags | more_tags | custom
        or not 0 <= start <= end
        or not 0 <= state < len(_STATES)
        or left != len(_TAIL_TXN_EMPTY if empty else _TAIL_PLAIN)
        or not value.endswith(_TAIL_TXN_EMPTY if empty else _TAIL_PLAIN)
    ):
        raise _NotCanonical
    fields = (
        tip,
        segment_id,
        start,
        end,
        broker,
        max_ms,
        event_ms,
        ((epoch, offset),),
        size,
        None,
        _STATES[state],
        empty,
    )
    return _new(SegmentMetadata, fields)


def _read_update(value: bytes) -> SegmentUpdate:
    tip, at = _read_partition(value)
    segment_id, tags, broker, event_ms, custom, state, more_tags = _UPDATE.unpack_from(value, at)
    if len(value) != at + _UPDATE.size or tags | custom | more_tags or not 0 <= state < len(_STATES):
        raise _NotCanonical
    return _new(SegmentUpdate, (tip, segment_id, broker, event_ms, None, _STATES[state]))


def _read_delete(value: bytes) -> PartitionDelete:
    tip, at = _read_partition(value)
    broker, event_ms, state, tags = _DELETE.unpack_from(value, at)
    if len(value) != at + _DELETE.size or tags or not 0 <= state < len(_DELETE_STATES):
        raise _NotCanonical
    return _new(PartitionDelete, (tip, broker, event_ms, _DELETE_STATES[state]))


def _read_snapshot(value: bytes) -> SegmentSnapshot:
    left = len(value) - 3 - _SNAPSHOT.size
    segment_id, start, end, broker, max_ms, event_ms, epochs, epoch, offset, tags, size, custom, state = (
        _SNAPSHOT.unpack_from(value, 3)
    )
    empty = left == len(_TAIL_TXN_EMPTY)
    if (
        epochs != _ONE_EPOCH
        or tags | custom
        or not 0 <= start <= end
        or not 0 <= state < len(_STATES)
        or left != len(_TAIL_TXN_EMPTY if empty else _TAIL_PLAIN)
        or not value.endswith(_TAIL_TXN_EMPTY if empty else _TAIL_PLAIN)
    ):
        raise _NotCanonical
    fields = (
        segment_id, start, end, broker, max_ms, event_ms, ((epoch, offset),), size, None, _STATES[state], empty
    )  # fmt: skip
    return _new(SegmentSnapshot, fields)


_READERS: Final[Mapping[bytes, Callable[[bytes], RemoteLogMetadata]]] = {
    b"\x01\x00\x00": _read_segment,
    b"\x01\x01\x00": _read_update,
    b"\x01\x02\x00": _read_delete,
    b"\x01\x03\x00": _read_snapshot,
}


def decode(value: bytes | bytearray | memoryview | None) -> RemoteLogMetadata:
    """The event in a record's value; raises Unreadable, which carries the reason, for anything Kafka would not read."""
    if not value:
        raise Unreadable(UnreadableReason.EMPTY, "a record of the metadata topic has no value")
    data = value if isinstance(value, bytes) else bytes(value)
    reader = _READERS.get(data[:3])
    if reader is not None:
        try:
            return reader(data)
        except (_NotCanonical, IndexError, StructError, UnicodeDecodeError):
            pass  # The table decodes every other legal form and names the fault of the rest.
    return decode_by_table(data)
