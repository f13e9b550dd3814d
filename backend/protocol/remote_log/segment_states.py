"""States of a remote segment and of a partition's deletion, as `__remote_log_metadata` writes them (KIP-405).

`backend.tiering.segment_state` decides which state may follow which.
"""

from enum import IntEnum


class SegmentState(IntEnum):
    """State of one remote segment; the numbers are those of the wire."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class PartitionDeleteState(IntEnum):
    """Progress of removing a partition's remote data; the numbers are those of the wire."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2
