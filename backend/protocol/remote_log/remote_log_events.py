"""The events of `__remote_log_metadata` about a segment or a partition (KIP-405) as frozen values, and the reasons why
one is unreadable.
"""

from enum import StrEnum
from typing import NamedTuple

from backend.protocol.errors import DecodeError
from backend.protocol.ids import TopicIdPartition
from backend.protocol.remote_log.segment_states import PartitionDeleteState, SegmentState

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


_STATES = tuple(SegmentState)
_DELETE_STATES = tuple(PartitionDeleteState)


def segment_state(value: int) -> SegmentState:
    """The state of a number on the wire; raises Unreadable for an unknown one."""
    if not 0 <= value < len(_STATES):
        raise Unreadable(UnreadableReason.INVALID_VALUE, f"remote segment state {value} is unknown")
    return _STATES[value]


def delete_state(value: int) -> PartitionDeleteState:
    """The state of a number on the wire; raises Unreadable for an unknown one."""
    if not 0 <= value < len(_DELETE_STATES):
        raise Unreadable(UnreadableReason.INVALID_VALUE, f"partition delete state {value} is unknown")
    return _DELETE_STATES[value]
