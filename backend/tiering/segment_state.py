"""Life cycles of a remote segment and of a partition's deletion (KIP-405, `RemoteLogSegmentState`,
`RemotePartitionDeleteState`).

The tables below are the only statement of what may follow what. Repeating a state is legal everywhere: events are
delivered at least once. Findings and pages judge by the same limits of how long a state may last.
"""

from collections.abc import Mapping
from typing import Final

from backend.protocol.remote_log.segment_states import PartitionDeleteState, SegmentState

__all__ = [
    "DELETE_OVERDUE_MS",
    "HUNG_BYTES_PER_S",
    "HUNG_FACTOR",
    "HUNG_MS_MIN",
    "LEGAL",
    "LEGAL_DELETE",
    "PartitionDeleteState",
    "SegmentState",
    "hung_after_ms",
    "is_legal",
    "is_legal_delete",
]

# A copy is hung beyond three times what copies take at worst (the 99th percentile), and never before it had a minute.
HUNG_FACTOR: Final = 3.0
HUNG_MS_MIN: Final = 60_000
# Slower than this no store is of use: a segment of 1 GiB has 18 minutes. Histories are of smaller segments as a rule,
# since those of an idle partition roll by time.
HUNG_BYTES_PER_S: Final = 1_000_000
# Kafka deletes a remote segment within seconds; a minute means that the remote tier does not do it.
DELETE_OVERDUE_MS: Final = 60_000

LEGAL: Final[Mapping[SegmentState | None, frozenset[SegmentState]]] = {
    None: frozenset({SegmentState.COPY_SEGMENT_STARTED}),
    SegmentState.COPY_SEGMENT_STARTED: frozenset(
        {SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED}
    ),
    SegmentState.COPY_SEGMENT_FINISHED: frozenset({SegmentState.DELETE_SEGMENT_STARTED}),
    SegmentState.DELETE_SEGMENT_STARTED: frozenset({SegmentState.DELETE_SEGMENT_FINISHED}),
    SegmentState.DELETE_SEGMENT_FINISHED: frozenset(),
}

LEGAL_DELETE: Final[Mapping[PartitionDeleteState | None, frozenset[PartitionDeleteState]]] = {
    None: frozenset({PartitionDeleteState.DELETE_PARTITION_MARKED}),
    PartitionDeleteState.DELETE_PARTITION_MARKED: frozenset({PartitionDeleteState.DELETE_PARTITION_STARTED}),
    PartitionDeleteState.DELETE_PARTITION_STARTED: frozenset({PartitionDeleteState.DELETE_PARTITION_FINISHED}),
    PartitionDeleteState.DELETE_PARTITION_FINISHED: frozenset(),
}


def is_legal(from_: SegmentState | None, to: SegmentState) -> bool:
    """Whether a segment may go from one state (None: not known yet) to another."""
    return from_ == to or to in LEGAL[from_]


def is_legal_delete(from_: PartitionDeleteState | None, to: PartitionDeleteState) -> bool:
    """Whether a partition's deletion may go from one state (None: not marked yet) to another."""
    return from_ == to or to in LEGAL_DELETE[from_]


def hung_after_ms(segment_size_bytes: int, p99_ms: int | None) -> float:
    """How long a copy may be open before it hangs. `p99_ms` of copies like it; None: not known."""
    return max(HUNG_MS_MIN, HUNG_FACTOR * (p99_ms or 0), segment_size_bytes * 1_000 / HUNG_BYTES_PER_S)
