"""Start of a log and its highest copied offset, as a new leader or follower reads them from remote metadata (KIP-405).

Pure, but for the questions put to the metadata cache. Source: `RemoteLogManager.findLogStartOffset`,
`findHighestRemoteOffset`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from backend.engine.log.unified_log import UnifiedLog
from backend.engine.remote.metadata.remote_log_metadata_manager import RemoteLogMetadataManager
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import SegmentState

_log = logging.getLogger(__name__)

# Segments that may hold one offset: copies that were done again, and those of deposed leaders.
OVERLAPPING_MAX: Final = 64
UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1


class OffsetAndEpoch(NamedTuple):
    """An offset and the leader epoch of its record."""

    offset: int
    epoch: int


NOTHING_COPIED = OffsetAndEpoch(UNKNOWN_OFFSET, UNKNOWN_EPOCH)


def find_log_start(
    epochs: Sequence[tuple[int, int]],
    segments_of: Callable[[int], Sequence[SegmentMetadata]],
    local_log_start: int,
) -> int:
    """Start of the first remote segment of the first epoch that has any, else of the local log. `epochs` ascend.

    Segments in deletion do not count: log start has been raised past them already, or tiering was switched off with
    local records in their range.
    """
    for epoch, _ in epochs:
        for segment in segments_of(epoch):
            if segment.state is not SegmentState.DELETE_SEGMENT_STARTED:
                return segment.start_offset
    return local_log_start


def find_lost_epochs(
    epochs: Sequence[tuple[int, int]], log_start: int, segments: Callable[[], Iterable[SegmentMetadata]]
) -> tuple[tuple[int, int], ...]:
    """The leader epochs of `[log start, first of epochs)`, as far as the remote tier has that range without a gap.

    A log that is whole has an epoch for each of its offsets: where the first begins later, its checkpoint was damaged
    and made again from what is local. Of two segments with one offset that of the later epoch is history.
    """
    if not epochs or epochs[0][1] <= log_start:
        return ()
    first_epoch, end = epochs[0]
    finished = (segment for segment in segments() if segment.state is SegmentState.COPY_SEGMENT_FINISHED)
    left = sorted(finished, key=lambda segment: segment.start_offset)
    lost: list[tuple[int, int]] = []
    while end > log_start:
        while left and left[-1].start_offset >= end:
            left.pop()
        fitting = []
        for segment in left[-OVERLAPPING_MAX:]:
            entries = [entry for entry in segment.segment_leader_epochs if entry[0] <= first_epoch and entry[1] < end]
            if entries and segment.end_offset + 1 >= end:
                fitting.append(entries)
        if not fitting:
            break
        entries = max(fitting, key=lambda entries: (entries[-1][0], -entries[0][1]))
        lost = [*entries, *lost]
        first_epoch, end = entries[0]
    # Consecutive segments share an epoch, which begins where the first of them has it.
    starts: dict[int, int] = {}
    for epoch, start in lost:
        starts.setdefault(epoch, max(start, log_start))
    return tuple(starts.items())


def complete_epochs(log: UnifiedLog, metadata: RemoteLogMetadataManager, partition: TopicIdPartition) -> None:
    """Adds the leader epochs that a log lost with its checkpoint (:func:`find_lost_epochs`). Metadata must be ready."""
    if not log.epoch_checkpoint.lost:
        return
    lost = find_lost_epochs(log.leader_epochs.entries, log.log_start_offset, lambda: metadata.segments(partition))
    log.epoch_checkpoint.restore(lost)
    if lost:
        _log.warning("%s had lost its leader epochs before offset %d; the remote tier has them: %s", log, lost[-1][1],
                     lost)  # fmt: skip


def find_copied(log: UnifiedLog, metadata: RemoteLogMetadataManager, partition: TopicIdPartition) -> OffsetAndEpoch:
    """:func:`find_highest_remote` of a log, as far as its local records from there down are remote without a gap.

    Metadata remembers the highest offset that was ever copied, also when tiering was switched off since and everything
    deleted: taken at its word, what is local only would count as copied, and local retention would delete it.
    """
    epochs = log.leader_epochs
    highest = find_highest_remote(
        epochs.entries, lambda epoch: metadata.highest_offset(partition, epoch), log.end_offset_for_epoch
    )
    # Below, records are remote or nowhere; up to the present mark they have been looked at.
    offset = max(log.local_log_start_offset, log.highest_remote_offset + 1)
    while offset <= highest.offset:
        epoch = epochs.epoch_for_offset(offset)
        segment = None if epoch is None else metadata.lookup(partition, epoch, offset)
        if segment is None:
            before = offset - 1
            return OffsetAndEpoch(before, epochs.epoch_for_offset(before) or 0) if before >= 0 else NOTHING_COPIED
        offset = max(offset, segment.end_offset) + 1
    return highest


def find_highest_remote(
    epochs: Sequence[tuple[int, int]],
    highest_of: Callable[[int], int | None],
    end_offset_for: Callable[[int], tuple[int, int]],
) -> OffsetAndEpoch:
    """The last offset of the leader's own history that is in the remote tier.

    Looks from the latest epoch down. Segments that a deposed leader copied past the point where its history forks off
    do not count: 200 copied of an epoch that ended at 150 gives 149.
    """
    for epoch, _ in reversed(epochs):
        highest = highest_of(epoch)
        if highest is None:
            continue
        found_epoch, end = end_offset_for(epoch)
        if end <= highest:
            return OffsetAndEpoch(end - 1, found_epoch)
        return OffsetAndEpoch(highest, epoch)
    return NOTHING_COPIED
