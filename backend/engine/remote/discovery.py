"""What a new leader or follower finds out from remote metadata: where the log starts and how far it is copied
(KIP-405).

Pure, but for the questions put to the metadata cache. Source: `RemoteLogManager.findLogStartOffset`,
`findHighestRemoteOffset`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from backend.engine.log.unified_log import UnifiedLog
from backend.engine.remote.rlmm import RemoteLogMetadataManager
from backend.protocol.remote_log_metadata import SegmentMetadata
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import SegmentState

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


def find_copied(log: UnifiedLog, metadata: RemoteLogMetadataManager, partition: TopicIdPartition) -> OffsetAndEpoch:
    """:func:`find_highest_remote` of a log, as far as its local records from there down are remote without a gap.

    Metadata remembers the highest offset that was ever copied, also when tiering was switched off since and everything
    deleted: taken at its word, what is local only would count as copied, and local retention would delete it.
    """
    epochs = log.leader_epochs
    found = find_highest_remote(
        epochs.entries, lambda epoch: metadata.highest_offset(partition, epoch), log.end_offset_for_epoch
    )
    # Below, records are remote or nowhere; up to the present mark they have been looked at.
    offset = max(log.local_log_start_offset, log.highest_remote_offset + 1)
    while offset <= found.offset:
        epoch = epochs.epoch_for_offset(offset)
        segment = None if epoch is None else metadata.lookup(partition, epoch, offset)
        if segment is None:
            before = offset - 1
            return OffsetAndEpoch(before, epochs.epoch_for_offset(before) or 0) if before >= 0 else NOTHING_COPIED
        offset = max(offset, segment.end_offset) + 1
    return found


def find_highest_remote(
    epochs: Sequence[tuple[int, int]],
    highest_of: Callable[[int], int | None],
    end_offset_for: Callable[[int], tuple[int, int]],
) -> OffsetAndEpoch:
    """The last offset of the leader's own history that is in the remote tier.

    Looks from the latest epoch down. What a deposed leader copied past the point where its history forks off does not
    count: 200 copied of an epoch that ended at 150 gives 149.
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
