"""Retention deletes nothing that it keeps, under random histories, leaders and leftovers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.engine.remote.manager.expiration_task import LeaderLineage, RetentionView, choose_expired
from backend.engine.remote.metadata.remote_log_metadata_cache import RemoteLogMetadataCache
from backend.engine.remote.metadata.remote_segment_index import RemoteSegmentIndex
from backend.engine.remote.metadata.segment_summary import summarize
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate
from backend.tiering.epoch_lineage import segment_lineage, without_empty_epochs
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import SegmentState
from tests.effort import effort

STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = SegmentState
TIP: Final = TopicIdPartition("orders", bytes(range(16)), 0)
NOW_MS: Final = 10_000


@dataclass(frozen=True)
class Case:
    """A partition as its leader finds it: own segments tell its history in order, the others are leftovers."""

    view: RetentionView
    segments: tuple[SegmentMetadata, ...]
    states: tuple[SegmentState, ...]
    own: int
    copying: frozenset[bytes]

    def cache(self) -> RemoteLogMetadataCache:
        cache = RemoteLogMetadataCache(TIP)
        for segment, segment_state in zip(self.segments, self.states, strict=True):
            cache.apply(segment)
            for state in (FINISHED, DELETE_STARTED):
                if segment_state >= state:
                    cache.apply(SegmentUpdate(TIP, segment.segment_id, 1, 0, None, state))
        return cache


def epochs_in(lineage: list[tuple[int, int]], start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Returns the metadata that a leader with this history publishes for [start, end)."""
    before = [epoch for epoch in lineage if epoch[1] <= start][-1:]
    within = [epoch for epoch in lineage if start < epoch[1] < end]
    return tuple((epoch, max(offset, start)) for epoch, offset in [*before, *within])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    sizes = draw(st.lists(st.integers(1, 20), min_size=1, max_size=8))
    log_end = sum(sizes) + draw(st.integers(1, 5))
    starts = sorted(draw(st.sets(st.integers(1, log_end), max_size=3)))
    numbers = sorted(draw(st.sets(st.integers(1, 8), min_size=len(starts), max_size=len(starts))))
    lineage = [(0, 0), *zip(numbers, starts, strict=True)]
    segments: list[SegmentMetadata] = []

    def add(start: int, end: int, epochs: tuple[tuple[int, int], ...], timestamp_ms: int | None = None) -> None:
        segments.append(
            SegmentMetadata(
                TIP,
                (len(segments) + 1).to_bytes(16, "big"),
                start,
                end - 1,
                1,
                draw(st.integers(0, NOW_MS)) if timestamp_ms is None else timestamp_ms,
                0,
                epochs,
                draw(st.integers(1, 50)),
                None,
                STARTED,
            )
        )

    at = 0
    for size in sizes:
        add(at, at + size, epochs_in(lineage, at, at + size))
        at += size
    own = len(segments)
    for _ in range(draw(st.integers(0, 4))):
        epoch = draw(st.integers(0, 9))
        # No leader of an epoch has records from before it began.
        start = draw(st.integers(min(dict(lineage).get(epoch, 0), log_end - 1), log_end - 1))
        end = draw(st.integers(start + 1, log_end + 10))
        # A duplicate of another leader with our history, or a segment of one that we deposed.
        ours = end <= at and draw(st.booleans())
        epochs = epochs_in(lineage, start, end) if ours else ((epoch, start),)
        # The same records have the same times, here one for all of a segment: no copy expires before them.
        same = [s.max_timestamp_ms for s in segments[:own] if s.start_offset < end and start <= s.end_offset]
        is_copy = ours or epochs == epochs_in(lineage, start, end)
        add(start, end, epochs, max(same) if is_copy and same else None)
    log_start = draw(st.one_of(st.just(0), st.integers(0, at)))
    left = epochs_in(lineage, log_start, log_end)
    return Case(
        RetentionView(
            epochs=left,
            log_start=log_start,
            log_end=log_end,
            only_local_bytes=draw(st.integers(0, 50)),
            retention_bytes=draw(st.one_of(st.just(-1), st.integers(0, 400))),
            retention_ms=draw(st.one_of(st.just(-1), st.integers(0, NOW_MS))),
            now_ms=NOW_MS,
        ),
        tuple(segments),
        tuple(draw(st.sampled_from((STARTED, FINISHED, FINISHED, FINISHED, DELETE_STARTED))) for _ in segments),
        own,
        frozenset(segment.segment_id for segment in segments if draw(st.integers(0, 9)) == 0),
    )


def segment_index(cache: RemoteLogMetadataCache) -> RemoteSegmentIndex:
    return RemoteSegmentIndex(cache.summary(), cache.segments, cache.oldest_of)


def listed(cache: RemoteLogMetadataCache) -> RemoteSegmentIndex:
    """The same for a manager that only has KIP-405's lists."""
    return RemoteSegmentIndex(summarize(cache.segments()), cache.segments, cache.segments_of)


@settings(max_examples=effort(150, 20_000, check=37), deadline=None)
@given(cases())
def test_retention_deletes_only_what_it_does_not_keep(case: Case) -> None:
    cache, view = case.cache(), case.view
    expired = choose_expired(view, segment_index(cache), case.copying)
    assert cache.summary() == summarize(cache.segments())
    assert expired == choose_expired(view, listed(cache), case.copying)
    deleted = {segment.segment_id for segment in expired.segments}
    assert len(deleted) == len(expired.segments)
    assert not deleted & case.copying
    new_start = max(view.log_start, expired.log_start or 0)
    assert new_start <= view.log_end
    cutoff_ms = view.now_ms - view.retention_ms if view.retention_ms >= 0 else -1
    kept_by_time = []
    for segment, state in zip(case.segments[: case.own], case.states, strict=False):
        if segment.segment_id in deleted and state is not DELETE_STARTED:
            # Nobody can ask for its records any more.
            assert segment.end_offset < new_start
            if segment.end_offset >= view.log_start and not segment.max_timestamp_ms < cutoff_ms:
                kept_by_time.append(segment)
    if kept_by_time and expired.log_start is not None:
        order = [segment.segment_id for segment in expired.segments]
        last = max(kept_by_time, key=lambda segment: order.index(segment.segment_id))
        # Time may take more after it, and leaves less than the size would.
        _check_size(case, set(order[: order.index(last.segment_id) + 1]), last.end_offset + 1)


def _check_size(case: Case, deleted: set[bytes], new_start: int) -> None:
    """Where size is the only reason left, what stays is not below the limit: by all copies, so not by each record."""
    view = case.view
    assert view.retention_bytes >= 0
    left = sum(
        segment.segment_size_bytes
        for segment, state in zip(case.segments, case.states, strict=True)
        if state is FINISHED and segment.segment_id not in deleted and segment.end_offset >= new_start
    )
    assert view.only_local_bytes + left >= view.retention_bytes


@settings(max_examples=effort(50, 5000, check=12), deadline=None)
@given(cases())
def test_a_second_pass_over_what_the_first_left_deletes_nothing_by_size_again(case: Case) -> None:
    cache, view = case.cache(), case.view
    first = choose_expired(view, segment_index(cache), case.copying)
    for segment in first.segments:
        for state in (DELETE_STARTED, DELETE_FINISHED):
            cache.apply(SegmentUpdate(TIP, segment.segment_id, 1, 0, None, state))
    assert cache.summary() == summarize(cache.segments())
    log_start = max(view.log_start, first.log_start or 0)
    epochs = epochs_in(list(view.epochs), log_start, view.log_end)
    again = RetentionView(
        epochs, log_start, view.log_end, view.only_local_bytes, view.retention_bytes, view.retention_ms, NOW_MS
    )
    second = choose_expired(again, segment_index(cache), case.copying)
    assert second.log_start is None or second.log_start > log_start
    assert not {metadata.segment_id for metadata in second.segments} & {
        metadata.segment_id for metadata in first.segments
    }


@settings(max_examples=effort(100, 20_000, check=25), deadline=None)
@given(cases())
def test_the_short_way_through_the_lineage_test_comes_to_the_same(case: Case) -> None:
    lineage = without_empty_epochs(case.view.epochs)
    chain = LeaderLineage(lineage, case.view.log_end)
    for segment in case.segments:
        verdict = segment_lineage(segment.segment_leader_epochs, segment.end_offset, lineage, case.view.log_end)
        assert chain.holds(segment) is verdict.within, verdict
