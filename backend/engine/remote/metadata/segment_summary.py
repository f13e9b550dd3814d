"""Sums and extremes over a partition's segments, with which retention decides whether to read any segment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.segment_state import SegmentState


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """Of all segments that are not deleted. The extremes mean nothing without any."""

    count: int = 0
    finished_bytes: int = 0
    deleting_bytes: int = 0
    # Whether the deletion of one has begun: a run that was broken off goes on there.
    deleting: bool = False
    lowest_end_offset: int = 0
    earliest_max_timestamp_ms: int = 0
    # The lowest of the segments' last leader epochs.
    oldest_epoch: int = 0


def summarize(segments: Iterable[SegmentMetadata]) -> SegmentSummary:
    """The summary of segments one by one, for metadata managers that have nothing quicker."""
    known = list(segments)
    if not known:
        return SegmentSummary()
    deleting = [one.segment_size_bytes for one in known if one.state is SegmentState.DELETE_SEGMENT_STARTED]
    return SegmentSummary(
        len(known),
        sum(one.segment_size_bytes for one in known if one.state is SegmentState.COPY_SEGMENT_FINISHED),
        sum(deleting),
        bool(deleting),
        min(one.end_offset for one in known),
        min(one.max_timestamp_ms for one in known),
        min(max(epoch for epoch, _ in one.segment_leader_epochs) for one in known),
    )
