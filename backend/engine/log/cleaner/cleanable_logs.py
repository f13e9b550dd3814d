"""Decisions over values: the part of a compacted log that may be cleaned, how dirty it is, the segments to merge.

`LogCleanerManager.cleanableOffsets`, `LogToClean` and `Cleaner.groupSegmentsBySize` of Kafka. A log is clean up to its
checkpoint, dirty behind. Records in the active segment, past the last stable offset or younger than
min.compaction.lag.ms cannot be cleaned yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.engine.log.log_config import INT32_MAX, INT64_MAX, LogConfig


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment as far as these decisions go; times only where a lag makes them matter (None: not asked)."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int | None = None
    first_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LogFacts:
    """A log's offsets and segments, the active one last."""

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    checkpoint: int | None  # of the last cleaning, as stored
    segments: tuple[SegmentFacts, ...]


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The part of a log to clean: the keys of `[first_dirty, first_uncleanable)` replace older ones."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int  # by how much max.compaction.lag.ms is exceeded

    @property
    def ratio(self) -> float:
        """Share of the bytes that are dirty, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether the log is dirty enough, or its oldest dirty record has waited too long."""
        overdue = self.overdue_ms > 0 and self.cleanable_bytes > 0
        return overdue or self.ratio > config.min_cleanable_dirty_ratio


def cleanable(log: LogFacts, config: LogConfig, *, now_ms: int) -> Cleanable:
    """The decision for one log. A checkpoint that cannot be right means that everything is dirty."""
    start, checkpoint = log.log_start_offset, log.checkpoint
    first_dirty = start if checkpoint is None or not start <= checkpoint <= log.log_end_offset else checkpoint
    sealed = log.segments[:-1]
    bound = min(log.last_stable_offset, log.segments[-1].base_offset)
    dirty = [segment for segment, end in _with_ends(log.segments)[:-1] if end > first_dirty]
    if config.min_compaction_lag_ms > 0:
        for segment in dirty:
            if (segment.largest_timestamp_ms or 0) > now_ms - config.min_compaction_lag_ms:
                bound = min(bound, segment.base_offset)
                break
    # Whole segments only: the one that holds the bound is left out.
    first_uncleanable = log.segments[0].base_offset
    for segment, end in _with_ends(log.segments):
        if end > bound:
            first_uncleanable = segment.base_offset
            break
    first_uncleanable = max(first_dirty, first_uncleanable)
    return Cleanable(
        first_dirty=first_dirty,
        first_uncleanable=first_uncleanable,
        clean_bytes=sum(segment.size_bytes for segment in sealed if segment.base_offset < first_dirty),
        # A segment in the middle of which the last cleaning ended is both.
        cleanable_bytes=sum(segment.size_bytes for segment in dirty if segment.base_offset < first_uncleanable),
        overdue_ms=_overdue_ms(dirty, config, now_ms),
    )


def _with_ends(segments: Sequence[SegmentFacts]) -> list[tuple[SegmentFacts, int]]:
    ends = [segment.base_offset for segment in segments[1:]]
    return list(zip(segments, [*ends, INT64_MAX], strict=True))


def _overdue_ms(dirty: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> int:
    if config.max_compaction_lag_ms == INT64_MAX:
        return 0
    times = [segment.first_timestamp_ms for segment in dirty if (segment.first_timestamp_ms or 0) > 0]
    earliest_ms = min((time for time in times if time is not None), default=INT64_MAX)
    return max(0, now_ms - config.max_compaction_lag_ms - earliest_ms)


@dataclass(frozen=True, slots=True)
class GroupedSegment:
    """A segment with the sizes that bound a group; `next_offset` is the base of the next segment."""

    base_offset: int
    next_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int


def group(segments: Sequence[GroupedSegment], config: LogConfig) -> list[list[GroupedSegment]]:
    """Groups consecutive segments that fit into one together, so that cleaned segments do not become ever smaller.

    File, both indexes, and the range of int32 offsets bound a group. Every segment is in exactly one.
    """
    groups: list[list[GroupedSegment]] = []
    size = index = time_index = 0
    for segment in segments:
        fits = bool(groups) and (
            size + segment.size_bytes <= config.segment_bytes
            and index + segment.index_bytes <= config.segment_index_bytes
            and time_index + segment.time_index_bytes <= config.segment_index_bytes
            and (segment.size_bytes == 0 or segment.next_offset - 1 - groups[-1][0].base_offset <= INT32_MAX)
        )
        if not fits:
            groups.append([])
            size = index = time_index = 0
        groups[-1].append(segment)
        size += segment.size_bytes
        index += segment.index_bytes
        time_index += segment.time_index_bytes
    return groups
