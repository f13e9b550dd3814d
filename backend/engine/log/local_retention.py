"""The local segments to delete, as a decision over values (`UnifiedLog.deleteOldSegments` of Kafka, KIP-405, KIP-950).

A segment is deleted when it is below the high watermark, a rule says so, and, where the topic is tiered and copying is
on, it is in the remote tier already. Decisions are made from the oldest segment on and stop at the first that stays: a
log has no holes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend.engine.log.local_log import LocalLog
from backend.engine.log.log_config import INT64_MAX, LogConfig
from backend.engine.log.log_offsets import LogOffsets


@dataclass(frozen=True, slots=True)
class SegmentView:
    """The facts of a segment for retention; `end_offset` is excluded: the next segment's base, or the log end."""

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class RetentionState:
    """The offsets that bound retention."""

    log_start_offset: int
    local_log_start_offset: int
    high_watermark: int
    highest_remote_offset: int
    remote_enabled: bool


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """The number of oldest segments to delete, and whether the last one is rolled because a rule deletes it too."""

    delete_count: int
    roll: bool


NOTHING_TO_DELETE: Final = RetentionDecision(0, roll=False)


def decide(
    segments: Sequence[SegmentView], state: RetentionState, config: LogConfig, *, now_ms: int
) -> RetentionDecision:
    """Rules in Kafka's order: log start, size, time; the later ones look at what the earlier left."""
    copying = state.remote_enabled and not config.remote_log_copy_disable
    start = state.local_log_start_offset if state.remote_enabled else state.log_start_offset
    count, roll = 0, False

    def eligible(segment: SegmentView) -> bool:
        if state.high_watermark < segment.end_offset or (segment.is_last and segment.size_bytes == 0):
            return False
        if not copying:
            return True
        below_start = not segment.is_last and state.log_start_offset >= segment.end_offset
        return segment.end_offset - 1 <= state.highest_remote_offset or below_start

    def wants_roll(segment: SegmentView) -> bool:
        replicated = state.high_watermark >= segment.end_offset
        return state.remote_enabled and segment.is_last and segment.size_bytes > 0 and replicated

    while count < len(segments):
        segment = segments[count]
        if segment.is_last or segment.end_offset > start or not eligible(segment):
            break
        count += 1
    if not config.deletes and not copying:
        return RetentionDecision(count, roll)

    limit_bytes, limit_ms = _limits(config, copying=copying)
    if limit_bytes >= 0:
        surplus = sum(segment.size_bytes for segment in segments[count:]) - limit_bytes
        while count < len(segments):
            segment = segments[count]
            if surplus < 0 or surplus - segment.size_bytes < 0:
                break
            if not eligible(segment):
                roll = roll or wants_roll(segment)
                break
            surplus -= segment.size_bytes
            count += 1
    if limit_ms >= 0:
        while count < len(segments):
            segment = segments[count]
            if now_ms - segment.largest_timestamp_ms <= limit_ms:
                break
            if not eligible(segment):
                roll = roll or wants_roll(segment)
                break
            count += 1
    return RetentionDecision(count, roll)


def idle_until_ms(first: SegmentView, state: RetentionState, config: LogConfig, *, now_ms: int) -> int:
    """Returns the time until which `decide` finds nothing to do, as at `now_ms`, while nothing but the time changes."""
    copying = state.remote_enabled and not config.remote_log_copy_disable
    limit_ms = _limits(config, copying=copying)[1]
    if limit_ms < 0 or not (config.deletes or copying):
        return INT64_MAX
    due_ms = first.largest_timestamp_ms + limit_ms
    # A segment that is due already waits for something else than the time.
    return due_ms if due_ms >= now_ms else INT64_MAX


def _limits(config: LogConfig, *, copying: bool) -> tuple[int, int]:
    """(bytes, ms) kept local; negative is no limit.

    Without copying to the remote tier the plain limits count (KIP-950).
    """
    if copying:
        return config.effective_local_retention_bytes, config.effective_local_retention_ms
    return config.retention_bytes, config.retention_ms


class LocalRetention:
    """The retention of one log. Remembers when it found nothing to do: most logs of a pass have not changed since."""

    def __init__(self, local: LocalLog, offsets: LogOffsets) -> None:
        self._local = local
        self._offsets = offsets
        # The facts with which there was nothing to do, and until when that stays so while they do not change.
        self._facts_seen: tuple[object, ...] = ()
        self._idle_until_ms = 0

    def decide(self, now_ms: int, *, remote_enabled: bool) -> RetentionDecision:
        """The decision at this time; may read the time index of a segment. Raises OSError, DamagedIndex, CorruptLog."""
        local = self._local
        segments = local.segments
        # No rule deletes an empty active segment.
        if len(segments) == 1 and not segments.active.size_bytes:
            return NOTHING_TO_DELETE
        facts = self._facts()
        if now_ms <= self._idle_until_ms and facts == self._facts_seen:
            return NOTHING_TO_DELETE
        views, state = self._views(), self._state(remote_enabled=remote_enabled)
        decision = decide(views, state, local.config, now_ms=now_ms)
        if decision == NOTHING_TO_DELETE:
            self._facts_seen = facts
            self._idle_until_ms = idle_until_ms(views[0], state, local.config, now_ms=now_ms)
        return decision

    def _facts(self) -> tuple[object, ...]:
        """The facts of a decision, beside the time and the broker's switch."""
        local, offsets = self._local, self._offsets
        return (
            local.end_offset,
            local.segments.size_bytes,
            local.segments.first_base_offset,
            offsets.log_start,
            offsets.local_log_start,
            offsets.high_watermark,
            offsets.highest_remote,
            local.config,
        )

    def _state(self, *, remote_enabled: bool) -> RetentionState:
        offsets = self._offsets
        return RetentionState(
            log_start_offset=offsets.log_start,
            local_log_start_offset=offsets.local_log_start if remote_enabled else offsets.log_start,
            high_watermark=offsets.high_watermark,
            highest_remote_offset=offsets.highest_remote,
            remote_enabled=remote_enabled,
        )

    def _views(self) -> list[SegmentView]:
        segments = list(self._local.segments)
        ends = [segment.base_offset for segment in segments[1:]] + [self._local.end_offset]
        return [
            SegmentView(s.base_offset, end, s.size_bytes, s.largest_timestamp, is_last=s is segments[-1])
            for s, end in zip(segments, ends, strict=True)
        ]
