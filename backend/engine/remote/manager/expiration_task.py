"""The choice of remote segments that retention deletes, and their deletion (KIP-405; `RLMExpirationTask`).

:func:`choose_expired` is the decision: from the oldest segment of the leader's own history on, by log start, time and
size, up to the first that stays. :class:`ExpirationTask` carries it out on a led partition: log start rises before
the first object goes, so that nobody is promised an offset that is about to vanish.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backend.engine.log.unified_log import UnifiedLog
from backend.engine.remote.manager.copied_offsets import complete_epochs, find_copied
from backend.engine.remote.manager.segment_deletion import delete_segment
from backend.engine.remote.manager.tier import PartitionView, Tier
from backend.engine.remote.metadata.remote_segment_index import RemoteSegmentIndex, segment_index
from backend.engine.remote.metadata.segment_summary import SegmentSummary
from backend.engine.remote.remote_meters import RetentionShares
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.epoch_lineage import EpochEntry, segment_lineage, without_empty_epochs
from backend.tiering.segment_state import SegmentState

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = SegmentState.DELETE_SEGMENT_STARTED
DELETE_FINISHED = SegmentState.DELETE_SEGMENT_FINISHED
UNLIMITED = -1
# Before every timestamp that a record may have.
NEVER = -(2**63)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetentionView:
    """The facts of a retention decision. `epochs` is the leader's whole cache, ascending."""

    epochs: tuple[EpochEntry, ...]
    log_start: int
    log_end: int
    only_local_bytes: int
    retention_bytes: int
    retention_ms: int
    now_ms: int

    @property
    def cutoff_ms(self) -> int:
        """Segments older than this are deleted; none are without a limit, or with one that begins before 1970."""
        cutoff_ms = self.now_ms - self.retention_ms
        return cutoff_ms if self.retention_ms > UNLIMITED and cutoff_ms >= 0 else NEVER


@dataclass(frozen=True, slots=True)
class Expired:
    """Segments to delete in this order, and where the log starts then (None: it does not move).

    `size_bytes` is what was held against `retention.bytes`.
    """

    segments: tuple[SegmentMetadata, ...]
    log_start: int | None
    size_bytes: int = 0


def choose_expired(view: RetentionView, index: RemoteSegmentIndex, copying: frozenset[bytes] = frozenset()) -> Expired:
    """Decides."""
    summary = index.summary
    if not summary.count or not view.epochs:
        return Expired((), None, view.only_local_bytes)
    if _keeps_all(view, summary):
        return Expired((), None, view.only_local_bytes + summary.finished_bytes)
    lineage = without_empty_epochs(view.epochs)
    chain = LeaderLineage(lineage, view.log_end)
    counted, size_bytes = _counted(view, lineage, chain, index)
    surplus_bytes = max(0, size_bytes - view.retention_bytes) if view.retention_bytes >= 0 else 0
    cutoff_ms = view.cutoff_ms
    chosen: dict[bytes, SegmentMetadata] = {}
    new_start: int | None = None
    for segment in _in_order(lineage, index):
        if segment.segment_id in copying:
            break
        if segment.segment_id in chosen or segment.state is DELETE_FINISHED:
            continue
        if segment.state is DELETE_STARTED or _below_log_start(segment, lineage[0][0], view.log_start):
            # Deletions that an earlier run left half done are finished now.
            chosen[segment.segment_id] = segment
            continue
        if not chain.holds(segment):
            continue
        # All counted copies that go with its records, of which it may be none: each is taken off once.
        freed_bytes = 0
        while counted and counted[0][0] <= segment.end_offset:
            freed_bytes += counted.popleft()[1]
        needed_bytes = max(segment.segment_size_bytes, freed_bytes)
        if new_start is not None and segment.end_offset < new_start:
            pass  # Another copy of records that go: it holds nothing else.
        elif segment.max_timestamp_ms < cutoff_ms:
            surplus_bytes = max(0, surplus_bytes - freed_bytes)
        elif surplus_bytes > 0 and surplus_bytes >= needed_bytes:
            surplus_bytes -= needed_bytes
        else:
            break
        chosen[segment.segment_id] = segment
        new_start = max(new_start or 0, segment.end_offset + 1)
    if summary.oldest_epoch < view.epochs[0][0]:
        for segment in _of_ended_lineages(view, index):
            if segment.segment_id not in copying:
                chosen.setdefault(segment.segment_id, segment)
    return Expired(tuple(chosen.values()), new_start, size_bytes)


class LeaderLineage:
    """The leader's epochs, asked over and over whether they hold a segment."""

    def __init__(self, lineage: Sequence[EpochEntry], log_end: int) -> None:
        self._lineage = lineage
        self._log_end = log_end
        ends = [start for _, start in lineage[1:]] + [log_end]
        self._spans = {epoch: (start, end) for (epoch, start), end in zip(lineage, ends, strict=True)}
        # Log start has cut the first epoch: what is before it does not count.
        first, end = lineage[0][0], ends[0]
        self._spans[first] = (NEVER, end)

    def holds(self, segment: SegmentMetadata) -> bool:
        """:func:`segment_lineage`, at a fifth of its time for segments of one epoch, which most are."""
        epochs = segment.segment_leader_epochs
        if len(epochs) == 1:
            span = self._spans.get(epochs[0][0])
            return span is not None and epochs[0][1] >= span[0] and segment.end_offset < min(span[1], self._log_end)
        return segment_lineage(epochs, segment.end_offset, self._lineage, self._log_end).within


def _keeps_all(view: RetentionView, summary: SegmentSummary) -> bool:
    """Whether no rule can apply to any segment: so it is in most runs."""
    if 0 <= view.retention_bytes < view.only_local_bytes + summary.finished_bytes or summary.deleting:
        return False
    return (
        summary.lowest_end_offset >= view.log_start
        and summary.earliest_max_timestamp_ms >= view.cutoff_ms
        and summary.oldest_epoch >= view.epochs[0][0]
    )


def _in_order(lineage: Sequence[EpochEntry], index: RemoteSegmentIndex) -> Iterator[SegmentMetadata]:
    for epoch, _ in lineage:
        yield from index.of_epoch(epoch)


def _below_log_start(segment: SegmentMetadata, first_epoch: int, log_start: int) -> bool:
    newest = max(epoch for epoch, _ in segment.segment_leader_epochs)
    return newest <= first_epoch and segment.end_offset < log_start


def _of_ended_lineages(view: RetentionView, index: RemoteSegmentIndex) -> list[SegmentMetadata]:
    """Of the segments whose every epoch is older than anything the leader still has, those that go, by start offset.

    No consumer can read them below log start. Others are what an earlier leader had and this one lacks: a disk that is
    new, a folder from a backup, an unclean election. They may be the only copy, so they stay as long as the topic's
    own settings keep records: by time, and while together they are no larger than `retention.bytes`. (Kafka deletes
    them at once.)
    """
    earliest_epoch = view.epochs[0][0]
    ended = [s for s in index.segments() if max(epoch for epoch, _ in s.segment_leader_epochs) < earliest_epoch]
    ended.sort(key=lambda segment: segment.start_offset)
    kept = [
        candidate
        for candidate in ended
        if candidate.end_offset >= view.log_start and candidate.max_timestamp_ms >= view.cutoff_ms
    ]
    kept_bytes = sum(candidate.segment_size_bytes for candidate in kept)
    surplus_bytes = kept_bytes - view.retention_bytes if view.retention_bytes >= 0 else 0
    staying = set()
    for segment in kept:
        if segment.segment_size_bytes <= surplus_bytes:
            surplus_bytes -= segment.segment_size_bytes
        else:
            staying.add(segment.segment_id)
    return [candidate for candidate in ended if candidate.segment_id not in staying]


def _counted(
    view: RetentionView, lineage: Sequence[EpochEntry], chain: LeaderLineage, index: RemoteSegmentIndex
) -> tuple[deque[tuple[int, int]], int]:
    """Bytes that are held against `retention.bytes`, by the end offset of their segments, and their sum with what is
    only local.

    Each record counts once, and those below log start not at all: they are gone already, and two copies of a segment
    are no reason to delete a third one. (Kafka counts both.) While all finished segments together stay within the
    limit their sum will do; only past it the lineage of every one is looked at.
    """
    size_bytes = view.only_local_bytes + index.summary.finished_bytes
    if view.retention_bytes < 0 or size_bytes <= view.retention_bytes:
        return deque(), size_bytes
    counted: deque[tuple[int, int]] = deque()
    reached = view.log_start
    for segment in _in_order(lineage, index):
        if segment.state is not FINISHED or segment.end_offset < reached:
            continue
        if chain.holds(segment):
            counted.append((segment.end_offset, segment.segment_size_bytes))
            reached = segment.end_offset + 1
    return counted, view.only_local_bytes + sum(size for _, size in counted)


def percent_of(size_bytes: int, limit_bytes: int) -> int:
    """Whole percent of a limit; 0 without one."""
    return size_bytes * 100 // limit_bytes if limit_bytes > 0 else 0


class ExpirationTask:
    """Applies retention to one partition's remote part while this broker leads it."""

    def __init__(self, view: PartitionView, tier: Tier) -> None:
        self.partition = view.topic_id_partition
        self._view = view
        self._tier = tier
        self.cancelled = False

    async def run(self) -> None:
        """One pass. Raises RemoteStorageError or KafkaError when it could not be finished; the next one goes on."""
        log, tier = self._view.log, self._tier
        if self.cancelled or not log.remote_enabled or not tier.is_ready(self.partition):
            return
        complete_epochs(log, tier.metadata, self.partition)
        index = segment_index(tier.metadata, self.partition)
        self._update_gauges(index.summary)
        if not index.summary.count:
            self._update_shares(log, log.size_bytes)
            return
        if log.highest_remote_offset < 0:
            # A fresh leader would count what is copied twice: as local and as remote.
            self._find_highest_remote(log)
        clock, gauges = tier.ports.clock, tier.meters.gauges(self.partition)
        started_ms = clock.monotonic_ms()
        expired = choose_expired(retention_view(log, clock.time_ms()), index, frozenset(tier.copying))
        # Sizes are summed up in the decision, so its time is what they cost.
        gauges.remotelogsizecomputationtime = clock.monotonic_ms() - started_ms
        self._update_shares(log, expired.size_bytes)
        if expired.log_start is not None:
            log.maybe_increment_log_start_offset(expired.log_start)
        if expired.segments:
            log.epoch_checkpoint.require_saved()
        await self._delete(expired.segments)

    def _find_highest_remote(self, log: UnifiedLog) -> None:
        highest = find_copied(log, self._tier.metadata, self.partition)
        log.update_highest_remote_offset(highest.offset)

    async def _delete(self, segments: Sequence[SegmentMetadata]) -> None:
        gauges = self._tier.meters.gauges(self.partition)
        left = sum(segment.segment_size_bytes for segment in segments)
        gauges.remotedeletelagbytes, gauges.remotedeletelagsegments = left, len(segments)
        try:
            for segment in segments:
                if self.cancelled:
                    return
                await delete_segment(self._tier, segment)
                gauges.remotedeletelagbytes -= segment.segment_size_bytes
                gauges.remotedeletelagsegments -= 1
        finally:
            if segments:
                done = len(segments) - gauges.remotedeletelagsegments
                _log.info("Retention deleted %d of %d remote segments of %s", done, len(segments), self.partition)

    def _update_gauges(self, summary: SegmentSummary) -> None:
        gauges = self._tier.meters.gauges(self.partition)
        gauges.remotelogmetadatacount = summary.count
        gauges.remotelogsizebytes = summary.finished_bytes + summary.deleting_bytes

    def _update_shares(self, log: UnifiedLog, size_bytes: int) -> None:
        self._tier.meters.shares[self.partition] = RetentionShares(
            percent_of(size_bytes, log.config.retention_bytes),
            percent_of(log.size_bytes, log.config.effective_local_retention_bytes),
        )


def retention_view(log: UnifiedLog, now_ms: int) -> RetentionView:
    """The state of a log as the decision wants it."""
    return RetentionView(
        epochs=log.leader_epochs.entries,
        log_start=log.log_start_offset,
        log_end=log.log_end_offset,
        only_local_bytes=sum(segment.size_bytes for segment in log.only_local_segments),
        retention_bytes=log.config.retention_bytes,
        retention_ms=log.config.retention_ms,
        now_ms=now_ms,
    )
