"""What a new leader or follower finds out from remote metadata: where the log starts and how far it is copied
(KIP-405).

Pure, but for the questions put to the metadata cache. Source: `RemoteLogManager.findLogStartOffset`,
`findHighestRemoteOffset`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from backend.protocol.remote_log_metadata import SegmentMetadata

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
    """Start of the first remote segment of the first epoch that has any, else of the local log. `epochs` ascend."""
    for epoch, _ in epochs:
        segments = segments_of(epoch)
        if segments:
            return segments[0].start_offset
    return local_log_start


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
