"""Reads a value of `__remote_log_metadata` by the message tables: every shape that is legal, and what is wrong with the
rest.

`backend.protocol.remote_log.metadata_serde` reads the canonical form by hand and comes here for all others.
"""

from typing import Final

from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError
from backend.protocol.ids import TopicIdPartition
from backend.protocol.remote_log.remote_log_events import (
    PartitionDelete,
    RemoteLogMetadata,
    SegmentMetadata,
    SegmentSnapshot,
    SegmentUpdate,
    Unreadable,
    UnreadableReason,
    delete_state,
    segment_state,
)
from backend.protocol.varint import decode_uvarint

FRAME_VERSION: Final = 1
RECORD_VERSION: Final = 0
_KEY_MAX: Final = 3


def _check(start_offset: int, end_offset: int, epochs_count: int) -> None:
    if start_offset < 0 or end_offset < start_offset:
        raise Unreadable(
            UnreadableReason.INVALID_VALUE, f"a segment cannot hold offsets {start_offset} to {end_offset}"
        )
    if not epochs_count:
        raise Unreadable(
            UnreadableReason.INVALID_VALUE, f"the segment of offsets {start_offset} to {end_offset} has no leader epoch"
        )


def _segment(record: m.RemoteLogSegmentMetadataRecord) -> SegmentMetadata:
    _check(record.start_offset, record.end_offset, len(record.segment_leader_epochs))
    partition = record.remote_log_segment_id.topic_id_partition
    return SegmentMetadata(
        topic_id_partition=TopicIdPartition(partition.name, partition.id, partition.partition),
        segment_id=record.remote_log_segment_id.id,
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        broker_id=record.broker_id,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        segment_leader_epochs=tuple((entry.leader_epoch, entry.offset) for entry in record.segment_leader_epochs),
        segment_size_bytes=record.segment_size_in_bytes,
        custom_metadata=record.custom_metadata,
        state=segment_state(record.remote_log_segment_state),
        txn_index_empty=record.txn_index_empty,
    )


def _snapshot(record: m.RemoteLogSegmentMetadataSnapshotRecord) -> SegmentSnapshot:
    _check(record.start_offset, record.end_offset, len(record.segment_leader_epochs))
    return SegmentSnapshot(
        segment_id=record.segment_id,
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        broker_id=record.broker_id,
        max_timestamp_ms=record.max_timestamp_ms,
        event_timestamp_ms=record.event_timestamp_ms,
        segment_leader_epochs=tuple((entry.leader_epoch, entry.offset) for entry in record.segment_leader_epochs),
        segment_size_bytes=record.segment_size_in_bytes,
        custom_metadata=record.custom_metadata,
        state=segment_state(record.remote_log_segment_state),
        txn_index_empty=record.txn_index_empty,
    )


def _update(record: m.RemoteLogSegmentMetadataUpdateRecord) -> SegmentUpdate:
    partition = record.remote_log_segment_id.topic_id_partition
    return SegmentUpdate(
        topic_id_partition=TopicIdPartition(partition.name, partition.id, partition.partition),
        segment_id=record.remote_log_segment_id.id,
        broker_id=record.broker_id,
        event_timestamp_ms=record.event_timestamp_ms,
        custom_metadata=record.custom_metadata,
        state=segment_state(record.remote_log_segment_state),
    )


def _delete(record: m.RemotePartitionDeleteMetadataRecord) -> PartitionDelete:
    partition = record.topic_id_partition
    return PartitionDelete(
        topic_id_partition=TopicIdPartition(partition.name, partition.id, partition.partition),
        broker_id=record.broker_id,
        event_timestamp_ms=record.event_timestamp_ms,
        state=delete_state(record.remote_partition_delete_state),
    )


def _from_message(record: m.Message) -> RemoteLogMetadata:
    match record:
        case m.RemoteLogSegmentMetadataRecord():
            return _segment(record)
        case m.RemoteLogSegmentMetadataUpdateRecord():
            return _update(record)
        case m.RemotePartitionDeleteMetadataRecord():
            return _delete(record)
        case m.RemoteLogSegmentMetadataSnapshotRecord():
            return _snapshot(record)
    raise AssertionError(record)


def decode_by_table(value: bytes) -> RemoteLogMetadata:
    """The event in a value of any legal shape; raises Unreadable, which says exactly what is wrong, for the rest."""
    try:
        frame_version, position = decode_uvarint(value, 0)
        if frame_version != FRAME_VERSION:
            raise Unreadable(UnreadableReason.FRAME_VERSION, f"frame version {frame_version} is not {FRAME_VERSION}")
        key, position = decode_uvarint(value, position)
        version, position = decode_uvarint(value, position)
        if key > _KEY_MAX:
            raise Unreadable(UnreadableReason.RECORD_KEY, f"record key {key} is unknown")
        if version != RECORD_VERSION:
            raise Unreadable(UnreadableReason.RECORD_VERSION, f"version {version} of record key {key} is unknown")
        record, end = codec.decode(m.record_class("remote-log-metadata", key), version, value, position)
    except Unreadable:
        raise
    except IndexError as error:
        raise Unreadable(UnreadableReason.MALFORMED, f"a value of {len(value)} bytes is cut off") from error
    except DecodeError as error:
        raise Unreadable(UnreadableReason.MALFORMED, str(error)) from error
    if end != len(value):
        raise Unreadable(UnreadableReason.TRAILING_BYTES, f"{len(value) - end} bytes follow the end of the record")
    return _from_message(record)
