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
    listed = list(segments)
    if not listed:
        return SegmentSummary()
    deleting = [
        segment.segment_size_bytes for segment in listed if segment.state is SegmentState.DELETE_SEGMENT_STARTED
    ]
    return SegmentSummary(
        len(listed),
        sum(segment.segment_size_bytes for segment in listed if segment.state is SegmentState.COPY_SEGMENT_FINISHED),
        sum(deleting),
        bool(deleting),
        min(segment.end_offset for segment in listed),
        min(segment.max_timestamp_ms for segment in listed),
        min(max(epoch for epoch, _ in segment.segment_leader_epochs) for segment in listed),
    )
