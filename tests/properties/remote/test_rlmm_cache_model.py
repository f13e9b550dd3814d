"""The packed metadata cache answers like a flat list of segments, whatever the order of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.engine.remote.metadata.remote_log_metadata_cache import ApplyOutcome, Overlap, RemoteLogMetadataCache
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import SegmentState, is_legal
from tests.effort import effort

PARTITION = TopicIdPartition("orders", bytes(range(1, 17)), 0)
STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = SegmentState
OFFSETS = 12
EPOCHS = 3
TIMES = 4


@dataclass
class FlatList:
    """Every segment as a value; per-epoch maps as Kafka keeps them, written as plainly as possible."""

    segments: dict[bytes, SegmentMetadata] = field(default_factory=dict)
    referenced: dict[int, dict[int, bytes]] = field(default_factory=dict)
    unreferenced: dict[int, set[bytes]] = field(default_factory=dict)
    highest: dict[int, int] = field(default_factory=dict)

    def apply(self, event: SegmentMetadata | SegmentUpdate) -> ApplyOutcome:
        metadata = self.segments.get(event.segment_id)
        if isinstance(event, SegmentUpdate) and metadata is None:
            return ApplyOutcome.UNKNOWN_SEGMENT
        if not is_legal(metadata and metadata.state, event.state):
            return ApplyOutcome.ILLEGAL
        if isinstance(event, SegmentMetadata):
            segment = self.segments.setdefault(event.segment_id, event)
        else:
            assert metadata is not None
            segment = self.segments[event.segment_id] = metadata.updated(event)
        for epoch, start, end in spans(segment):
            shown, hidden = self.referenced.setdefault(epoch, {}), self.unreferenced.setdefault(epoch, set())
            if segment.state is FINISHED:
                while shown and max(shown) >= start and self.highest[epoch] <= end:
                    hidden.add(shown.pop(max(shown)))
                shown[start] = segment.segment_id
                hidden.discard(segment.segment_id)
                self.highest[epoch] = max(self.highest.get(epoch, -1), end)
            elif segment.state is DELETE_FINISHED:
                hidden.discard(segment.segment_id)
            else:
                if shown.get(start) == segment.segment_id:
                    del shown[start]
                hidden.add(segment.segment_id)
        if segment.state is DELETE_FINISHED:
            del self.segments[segment.segment_id]
        return ApplyOutcome.APPLIED

    def lookup(self, epoch: int, offset: int) -> SegmentMetadata | None:
        shown = self.referenced.get(epoch, {})
        starts = [start for start in shown if start <= offset]
        if not starts:
            return None
        segment = self.segments[shown[max(starts)]]
        return segment if offset <= next(end for e, _, end in spans(segment) if e == epoch) else None

    def next_with_txn_index(self, epoch: int, offset: int) -> SegmentMetadata | None:
        segment = self.lookup(epoch, offset)
        while segment is not None and segment.txn_index_empty:
            segment = self.lookup(epoch, segment.end_offset + 1)
        return segment

    def sizes(self, epoch: int) -> int:
        return sum(self.segments[key.to_bytes(16, "big")].segment_size_bytes for key in self.listed(epoch))

    def holders(self, epoch: int, offset: int) -> list[SegmentMetadata]:
        """Finished segments that hold the offset in this epoch."""
        return [
            segment
            for segment in self.segments.values()
            if segment.state is FINISHED
            and any(e == epoch and start <= offset <= end for e, start, end in spans(segment))
        ]

    def listed(self, epoch: int) -> list[int]:
        ids = [*self.referenced.get(epoch, {}).values(), *self.unreferenced.get(epoch, set())]
        return sorted(int.from_bytes(key, "big") for key in ids)


def spans(segment: SegmentMetadata) -> list[tuple[int, int, int]]:
    """(epoch, first offset, last offset) of each epoch in the segment."""
    epochs = segment.segment_leader_epochs
    ends = [start - 1 for _, start in epochs[1:]] + [segment.end_offset]
    return [(epoch, start, end) for (epoch, start), end in zip(epochs, ends, strict=True)]


def epoch_start(segment: SegmentMetadata, epoch: int) -> int:
    return next(start for other, start, _ in spans(segment) if other == epoch)


@st.composite
def histories(draw: st.DrawFn) -> list[SegmentMetadata | SegmentUpdate]:
    events: list[SegmentMetadata | SegmentUpdate] = []
    for _ in range(draw(st.integers(1, 25))):
        key = draw(st.integers(0, 5)).to_bytes(16, "little")
        state = draw(st.sampled_from([STARTED, FINISHED, FINISHED, DELETE_STARTED, DELETE_FINISHED]))
        if state is not STARTED:
            events.append(SegmentUpdate(PARTITION, key, 1, len(events), None, state))
            continue
        start = draw(st.integers(0, OFFSETS - 1))
        end = draw(st.integers(start, OFFSETS - 1))
        later = sorted(draw(st.sets(st.integers(start + 1, end), max_size=2))) if end > start else []
        numbers = sorted(draw(st.sets(st.integers(0, EPOCHS - 1), min_size=len(later) + 1, max_size=len(later) + 1)))
        epochs = tuple(zip(numbers, [start, *later], strict=True))
        events.append(
            SegmentMetadata(
                PARTITION,
                key,
                start,
                end,
                1,
                draw(st.integers(0, TIMES)),
                len(events),
                epochs,
                10,
                None,
                STARTED,
                draw(st.booleans()),
            )
        )
    return events


@settings(max_examples=effort(150, 5_000, check=37), deadline=None)
@given(histories())
def test_kafka_mode_is_the_flat_list(history: list[SegmentMetadata | SegmentUpdate]) -> None:
    model, cache = FlatList(), RemoteLogMetadataCache(PARTITION, Overlap.KAFKA)
    for event in history:
        assert cache.apply(event) is model.apply(event)
    assert sorted(cache.segments()) == sorted(model.segments.values())
    assert cache.count == len(model.segments)
    for epoch in range(EPOCHS):
        assert cache.highest_offset(epoch) == model.highest.get(epoch)
        assert sorted(int.from_bytes(s.segment_id, "big") for s in cache.segments_of(epoch)) == model.listed(epoch)
        for offset in range(OFFSETS):
            assert cache.lookup(epoch, offset) == model.lookup(epoch, offset)
            assert cache.next_with_txn_index(epoch, offset) == model.next_with_txn_index(epoch, offset)
        assert cache.size_bytes(epoch) == model.sizes(epoch)


@settings(max_examples=effort(150, 5_000, check=37), deadline=None)
@given(histories())
def test_kip_mode_reads_everything_that_a_finished_segment_holds(
    history: list[SegmentMetadata | SegmentUpdate],
) -> None:
    model, cache = FlatList(), RemoteLogMetadataCache(PARTITION, Overlap.KIP)
    for event in history:
        assert cache.apply(event) is model.apply(event)
    for epoch in range(EPOCHS):
        assert {s.segment_id for s in cache.segments_of(epoch)} == {
            s.segment_id for s in model.segments.values() if any(e == epoch for e, _, _ in spans(s))
        }
        for offset in range(OFFSETS):
            metadata, holders = cache.lookup(epoch, offset), model.holders(epoch, offset)
            assert (metadata in holders) if holders else metadata is None
            # Where Kafka has an answer, both modes give the same segment.
            expected = model.lookup(epoch, offset)
            assert expected is None or metadata == expected


@settings(max_examples=effort(100, 5_000, check=25), deadline=None)
@given(histories(), st.integers(0, EPOCHS - 1), st.integers(0, OFFSETS - 1))
def test_kip_mode_never_skips_a_transaction_index(
    history: list[SegmentMetadata | SegmentUpdate], epoch: int, offset: int
) -> None:
    cache = RemoteLogMetadataCache(PARTITION, Overlap.KIP)
    for event in history:
        cache.apply(event)
    metadata = cache.next_with_txn_index(epoch, offset)
    read = [cache.lookup(epoch, at) for at in range(offset, OFFSETS)]
    starts = [epoch_start(segment, epoch) for segment in read if segment is not None and not segment.txn_index_empty]
    assert metadata is not None or not starts
    assert metadata is None or not starts or epoch_start(metadata, epoch) <= min(starts)


@settings(max_examples=effort(100, 5_000, check=25), deadline=None)
@given(histories(), st.lists(st.tuples(st.integers(0, TIMES), st.integers(0, OFFSETS - 1)), max_size=5))
def test_a_time_is_looked_for_in_the_first_segment_that_reaches_it(
    history: list[SegmentMetadata | SegmentUpdate], questions: list[tuple[int, int]]
) -> None:
    cache = RemoteLogMetadataCache(PARTITION, Overlap.KIP)

    def is_odd(segment: SegmentMetadata) -> bool:
        return segment.segment_id[0] % 2 == 1

    def is_any(segment: SegmentMetadata) -> bool:
        return True

    # Also while the history goes on: what one question has computed must not answer the next.
    for at in range(len(history) + 1):
        requested = questions if at == len(history) else questions[:1]
        for epoch, (timestamp, offset), accept in product(range(EPOCHS), requested, (is_any, is_odd)):
            metadata = cache.next_for_timestamp(epoch, timestamp, offset, accept)
            starts = [
                segment.start_offset
                for segment in cache.segments_of(epoch)
                if segment.state is FINISHED
                and segment.max_timestamp_ms >= timestamp
                and segment.end_offset >= offset
                and accept(segment)
            ]
            assert (None if metadata is None else metadata.start_offset) == min(starts, default=None)
        if at < len(history):
            cache.apply(history[at])
