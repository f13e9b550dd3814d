"""The results of a broker's metadata cache after given events."""

from __future__ import annotations

import gc
import json
import random
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from backend.engine.remote.metadata.remote_log_metadata_cache import ApplyOutcome, Overlap, RemoteLogMetadataCache
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate, decode
from backend.tiering.ids import TopicIdPartition, uuid_text
from backend.tiering.segment_state import SegmentState, is_legal

FIXTURES = Path(__file__).parents[4] / "fixtures" / "apache-kafka-4.3.1"
PARTITION = TopicIdPartition("orders", bytes(range(1, 17)), 0)
STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = SegmentState
BOTH = pytest.mark.parametrize("overlap", Overlap)


def segment_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def started(number: int, start: int, end: int, epochs: dict[int, int] | None = None, **more: Any) -> SegmentMetadata:
    metadata = SegmentMetadata(
        PARTITION, segment_id(number), start, end, 1, 5000 + number, 6000 + number,
        tuple((epochs or {0: start}).items()), 100, None, STARTED, True,
    )  # fmt: skip
    return metadata._replace(**more)


def update(number: int, state: SegmentState, custom: bytes | None = None) -> SegmentUpdate:
    return SegmentUpdate(PARTITION, segment_id(number), 2, 7000 + number, custom, state)


class Play:
    """A cache whose segments are added by number."""

    def __init__(self, overlap: Overlap) -> None:
        self.cache = RemoteLogMetadataCache(PARTITION, overlap)

    def finish(self, number: int, start: int, end: int, epochs: dict[int, int] | None = None) -> Play:
        assert self.cache.apply(started(number, start, end, epochs)) is ApplyOutcome.APPLIED
        return self.to(number, FINISHED)

    def to(self, number: int, *states: SegmentState) -> Play:
        for state in states:
            assert self.cache.apply(update(number, state)) is ApplyOutcome.APPLIED
        return self

    def at(self, epoch: int, offset: int) -> int | None:
        metadata = self.cache.lookup(epoch, offset)
        return None if metadata is None else int.from_bytes(metadata.segment_id, "big")

    def listed(self, epoch: int) -> list[int]:
        return [int.from_bytes(segment.segment_id, "big") for segment in self.cache.segments_of(epoch)]

    def all(self) -> set[int]:
        return {int.from_bytes(segment.segment_id, "big") for segment in self.cache.segments()}


@BOTH
def test_a_segment_is_listed_from_its_start_and_readable_once_finished(overlap: Overlap) -> None:
    play = Play(overlap)
    play.cache.apply(started(1, 0, 9))
    assert (play.at(0, 5), play.listed(0), play.cache.highest_offset(0)) == (None, [1], None)
    play.to(1, FINISHED)
    assert (play.at(0, 5), play.listed(0), play.cache.highest_offset(0)) == (1, [1], 9)
    play.to(1, DELETE_STARTED)
    assert (play.at(0, 5), play.listed(0), play.cache.highest_offset(0)) == (None, [1], 9)
    play.to(1, DELETE_FINISHED)
    assert (play.at(0, 5), play.listed(0), play.cache.highest_offset(0)) == (None, [], 9)
    assert (play.all(), play.cache.count) == (set(), 0)


@BOTH
@pytest.mark.parametrize("old", [None, *SegmentState])
@pytest.mark.parametrize("new", SegmentState)
def test_only_what_the_table_allows_is_applied(old: SegmentState | None, new: SegmentState, overlap: Overlap) -> None:
    paths: dict[SegmentState | None, tuple[SegmentState, ...]] = {
        None: (),
        STARTED: (STARTED,),
        FINISHED: (STARTED, FINISHED),
        DELETE_STARTED: (STARTED, DELETE_STARTED),
        DELETE_FINISHED: (STARTED, DELETE_STARTED, DELETE_FINISHED),
    }
    cache = RemoteLogMetadataCache(PARTITION, overlap)
    for state in paths[old]:
        cache.apply(started(1, 0, 9) if state is STARTED else update(1, state))
    # A deleted segment is forgotten: its id is as good as new.
    current = None if old is DELETE_FINISHED else old
    outcome = cache.apply(started(1, 0, 9) if new is STARTED else update(1, new))
    if current is None and new is not STARTED:
        assert outcome is ApplyOutcome.UNKNOWN_SEGMENT
    else:
        assert outcome is (ApplyOutcome.APPLIED if is_legal(current, new) else ApplyOutcome.ILLEGAL)


def test_a_new_segment_must_start_as_started_and_no_update_goes_back() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    assert cache.apply(started(1, 0, 9, state=FINISHED)) is ApplyOutcome.ILLEGAL
    assert cache.apply(started(1, 0, 9)) is ApplyOutcome.APPLIED
    assert cache.apply(update(1, STARTED)) is ApplyOutcome.ILLEGAL


def test_an_update_replaces_broker_time_state_and_custom_metadata_and_nothing_else() -> None:
    cache = RemoteLogMetadataCache(PARTITION)
    first = started(1, 3, 9, {1: 3, 2: 5}, custom_metadata=b"first", txn_index_empty=False)
    cache.apply(first)
    assert list(cache.segments()) == [first]
    cache.apply(update(1, FINISHED, b"second"))
    assert cache.lookup(2, 7) == first.updated(update(1, FINISHED, b"second"))
    cache.apply(update(1, FINISHED))
    assert cache.lookup(2, 7) == first.updated(update(1, FINISHED))


@BOTH
def test_segments_with_several_epochs(overlap: Overlap) -> None:
    play = Play(overlap)
    play.finish(1, 0, 100, {0: 0, 1: 20, 2: 80}).finish(2, 101, 200, {2: 101})
    play.finish(3, 201, 300, {2: 201, 3: 240}).finish(4, 250, 400, {3: 250, 4: 370})
    assert [play.at(1, 40), play.at(2, 110), play.at(3, 240), play.at(3, 250), play.at(4, 375)] == [1, 2, 3, 4, 4]
    assert [play.at(1, 110), play.at(4, 401), play.at(5, 301)] == [None, None, None]
    assert [play.cache.highest_offset(epoch) for epoch in range(6)] == [19, 79, 239, 369, 400, None]


@BOTH
def test_a_later_superset_takes_over(overlap: Overlap) -> None:
    play = Play(overlap).finish(1, 10, 100).finish(2, 5, 150)
    assert (play.at(0, 11), play.listed(0), play.cache.highest_offset(0)) == (2, [2, 1], 150)
    play.finish(3, 148, 155).finish(4, 4, 200)
    assert {play.at(0, offset) for offset in (4, 10, 150, 200)} == {4}
    assert play.listed(0) == [4, 2, 1, 3]


@BOTH
@pytest.mark.parametrize("end", [100, 150])
def test_of_equal_starts_the_longer_or_newer_is_read(end: int, overlap: Overlap) -> None:
    play = Play(overlap).finish(1, 10, 100).finish(2, 10, end)
    assert (play.at(0, 95), play.listed(0)) == (2, [2, 1])


def test_in_kafka_mode_a_shorter_replacement_makes_the_rest_unreadable() -> None:
    play = Play(Overlap.KAFKA).finish(1, 10, 100).finish(2, 10, 90)
    assert (play.at(0, 90), play.at(0, 95)) == (2, None)
    assert (play.listed(0), play.all(), play.cache.highest_offset(0)) == ([2], {1, 2}, 100)


def test_in_kip_mode_a_shorter_replacement_hides_nothing() -> None:
    play = Play(Overlap.KIP).finish(1, 10, 100).finish(2, 10, 90)
    assert (play.at(0, 90), play.at(0, 95), play.at(0, 101)) == (2, 1, None)
    assert (play.listed(0), play.cache.highest_offset(0)) == ([2, 1], 100)


@BOTH
def test_two_leaders_in_one_segment_chain(overlap: Overlap) -> None:
    play = Play(overlap).finish(1, 3, 4, {1: 3}).finish(2, 4, 6, {1: 4, 2: 6})
    assert [play.at(1, 3), play.at(1, 4), play.at(1, 5), play.at(2, 6)] == [1, 2, 2, 2]


def test_scenario_4_unclean_election_with_truncation() -> None:
    kafka = Play(Overlap.KAFKA).finish(1, 0, 2, {0: 0}).finish(2, 0, 1, {0: 0, 1: 1})
    assert [kafka.at(0, 0), kafka.at(0, 1), kafka.at(0, 2), kafka.at(1, 1), kafka.at(1, 2)] == [2, None, None, 2, None]
    assert (kafka.listed(0), kafka.all()) == ([2], {1, 2})
    kip = Play(Overlap.KIP).finish(1, 0, 2, {0: 0}).finish(2, 0, 1, {0: 0, 1: 1})
    assert [kip.at(0, 0), kip.at(0, 1), kip.at(0, 2), kip.at(1, 1), kip.at(1, 2)] == [2, 1, 1, 2, None]
    assert kip.listed(0) == [2, 1]


def test_scenario_5_two_unclean_elections() -> None:
    def play(overlap: Overlap) -> Play:
        first_two = Play(overlap).finish(1, 0, 3, {0: 0}).finish(2, 0, 3, {0: 0, 1: 2})
        return first_two.finish(3, 4, 5, {0: 4, 2: 5})

    def answers(played: Play) -> list[int | None]:
        requested = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (2, 5)]
        return [played.at(epoch, offset) for epoch, offset in requested]

    assert answers(play(Overlap.KAFKA)) == [2, 2, None, None, 3, 2, 2, 3]
    assert answers(play(Overlap.KIP)) == [2, 2, 1, 1, 3, 2, 2, 3]
    # When the replacing segment goes, Kafka has lost 0 and 1 of epoch 0 too; the first segment still holds them.
    assert answers(play(Overlap.KAFKA).to(2, DELETE_STARTED))[:5] == [None, None, None, None, 3]
    assert answers(play(Overlap.KIP).to(2, DELETE_STARTED, DELETE_FINISHED))[:5] == [1, 1, 1, 1, 3]


@BOTH
def test_next_segment_with_a_transaction_index(overlap: Overlap) -> None:
    play = Play(overlap)
    for number, empty in ((1, False), (2, True), (3, False)):
        play.cache.apply(started(number, 10 * number, 10 * number + 9, {0: 10 * number}, txn_index_empty=empty))
        play.to(number, FINISHED)

    def following(offset: int) -> int | None:
        metadata = play.cache.next_with_txn_index(0, offset)
        return None if metadata is None else metadata.start_offset

    # Kafka begins at the segment that holds the offset; there is none at 0.
    before_all = None if overlap is Overlap.KAFKA else 10
    assert [following(0), following(12), following(20), following(39)] == [before_all, 10, 30, 30]
    assert play.cache.next_with_txn_index(1, 12) is None
    play.to(3, DELETE_STARTED)
    assert following(20) is None


def test_sizes_count_every_listed_segment() -> None:
    play = Play(Overlap.KIP).finish(1, 0, 9, {0: 0, 1: 5}).finish(2, 10, 19, {1: 10})
    play.cache.apply(started(3, 20, 29, {1: 20}))
    assert [play.cache.size_bytes(epoch) for epoch in (0, 1, 2)] == [100, 300, 0]
    assert play.cache.epochs() == [0, 1]


def test_a_segment_takes_less_than_100_bytes() -> None:
    chance = random.Random(1)
    tracemalloc.start()
    try:
        cache = RemoteLogMetadataCache(PARTITION)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(2600):
            key = chance.randbytes(16)
            cache.apply(started(number, 10 * number, 10 * number + 9)._replace(segment_id=key))
            cache.apply(update(number, FINISHED)._replace(segment_id=key))
        gc.collect()  # tuples on the interpreter's free lists are not the cache's
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cache.count == 2600
    assert (after - before) / 2600 < 100


def records(name: str) -> Iterable[tuple[SegmentMetadata | SegmentUpdate, str]]:
    for line in (FIXTURES / name).read_text().splitlines():
        row = json.loads(line)
        event = decode(bytes.fromhex(row["value"]))
        assert isinstance(event, SegmentMetadata | SegmentUpdate)
        yield event, row["decoded"]["stateName"]


@BOTH
@pytest.mark.parametrize("name", ["metadata-records.jsonl", "metadata-records-dangling.jsonl"])
def test_records_of_a_real_kafka_give_the_segments_of_its_remote_tree(name: str, overlap: Overlap) -> None:
    caches: dict[TopicIdPartition, RemoteLogMetadataCache] = {}
    final: dict[bytes, str] = {}
    for event, state in records(name):
        partition = event.topic_id_partition
        cache = caches.setdefault(partition, RemoteLogMetadataCache(partition, overlap))
        assert cache.apply(event) is ApplyOutcome.APPLIED
        final[event.segment_id] = state
    states = {segment.segment_id: segment.state.name for cache in caches.values() for segment in cache.segments()}
    assert states == {key: state for key, state in final.items() if state != "DELETE_SEGMENT_FINISHED"}
    if name == "metadata-records.jsonl":
        stored = {path.stem.split("-", 1)[1] for path in (FIXTURES / "remote").rglob("*.log")}
        assert {uuid_text(key) for key in states} == stored
