"""The partitions that a round between two whole ones lists."""

from __future__ import annotations

from dataclasses import replace

from backend.control.gateway.requests.log_dir_requests import ReplicaSize
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.observer.sampling.moving_partitions import (
    MOVES_FOR_MS,
    MOVING_MAX,
    TIERED_MOVES_FOR_MS,
    DescribedPartition,
    moving_partitions,
    partition_states,
)
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import TopicPartition

NOW_MS = 10_000_000
BROKERS = (1, 2)


def view_of(number: int, topic: str = "orders", leader: int = 1, isr: tuple[int, ...] = BROKERS) -> PartitionMetadata:
    return PartitionMetadata(topic, topic.encode(), number, leader, 0, BROKERS, isr, (), ErrorCode.NONE)


def sizes_of(views: list[PartitionMetadata], **larger: int) -> dict[int, dict[TopicPartition, ReplicaSize]]:
    """Of broker 1 as given by `p<number>`, else 100 bytes."""
    return {
        broker: {
            v.topic_partition: ReplicaSize("/d", larger.get(f"p{v.partition}", 100) if broker == 1 else 100, 0)
            for v in views
        }
        for broker in BROKERS
    }


VIEWS = [view_of(n) for n in range(3)]
NONE: frozenset[bytes] = frozenset()
FIRST = partition_states({}, VIEWS, NONE, sizes_of(VIEWS), 1_000)
LISTED_MS = dict.fromkeys(FIRST, 1_000)


def moving(states: dict[TopicPartition, DescribedPartition], at_ms: int) -> set[int]:
    return {tp.partition for tp in moving_partitions(states, LISTED_MS, at_ms)}


def test_after_the_first_round_nothing_is_known_to_move() -> None:
    assert moving(FIRST, 2_000 + MOVES_FOR_MS) == set()


def test_a_partition_moves_while_a_replica_has_another_size_and_a_while_longer() -> None:
    grown = partition_states(FIRST, VIEWS, NONE, sizes_of(VIEWS, p1=101), NOW_MS)
    assert moving(grown, NOW_MS) == {1}
    same = partition_states(grown, VIEWS, NONE, sizes_of(VIEWS, p1=101), NOW_MS + MOVES_FOR_MS)
    assert moving(same, NOW_MS + MOVES_FOR_MS) == {1}
    assert moving(same, NOW_MS + MOVES_FOR_MS + 1) == set()


def test_a_tiered_partition_moves_until_its_last_records_are_copied_and_deleted_locally() -> None:
    tiered = frozenset({b"orders"})
    first = partition_states({}, VIEWS, tiered, sizes_of(VIEWS), 1_000)
    grown = partition_states(first, VIEWS, tiered, sizes_of(VIEWS, p1=101), NOW_MS)
    assert moving(grown, NOW_MS + TIERED_MOVES_FOR_MS) == {1}
    assert moving(grown, NOW_MS + TIERED_MOVES_FOR_MS + 1) == set()


def test_a_topic_that_is_tiered_now_or_no_more_is_listed() -> None:
    tiered = frozenset({b"orders"})
    on = partition_states(FIRST, VIEWS, tiered, sizes_of(VIEWS), NOW_MS)
    assert moving(on, NOW_MS) == {0, 1, 2}
    off = partition_states(
        partition_states({}, VIEWS, tiered, sizes_of(VIEWS), 1_000), VIEWS, NONE, sizes_of(VIEWS), NOW_MS
    )
    assert moving(off, NOW_MS) == {0, 1, 2}


def test_partitions_that_lack_a_dead_broker_are_listed_once_and_then_as_they_move() -> None:
    shrunk = [view_of(n, isr=(1,)) for n in range(3)]
    alive = {1: sizes_of(VIEWS)[1]}
    states = partition_states(FIRST, shrunk, NONE, alive, NOW_MS)
    assert moving(states, NOW_MS) == {0, 1, 2}
    listed, later = dict.fromkeys(states, NOW_MS), NOW_MS + MOVES_FOR_MS + 1
    states = partition_states(states, shrunk, NONE, alive, later)
    assert moving_partitions(states, listed, later) == set()


def test_a_broker_that_does_not_tell_its_sizes_this_time_changes_nothing() -> None:
    silent = {1: sizes_of(VIEWS)[1], 2: None}
    states = partition_states(FIRST, VIEWS, NONE, silent, NOW_MS)
    assert all(states[tp] is FIRST[tp] for tp in FIRST)
    grown = partition_states(FIRST, VIEWS, NONE, {1: sizes_of(VIEWS, p2=300)[1], 2: None}, NOW_MS)
    assert moving(grown, NOW_MS) == {2}


def test_a_replica_whose_size_is_not_told_any_more_is_a_change() -> None:
    sizes = sizes_of(VIEWS)
    del sizes[2][VIEWS[0].topic_partition]
    assert moving(partition_states(FIRST, VIEWS, NONE, sizes, NOW_MS), NOW_MS) == {0}


def test_another_leader_isr_or_topic_id_is_listed_until_it_was() -> None:
    other = [view_of(0, leader=2), view_of(1, isr=(1,)), replace(view_of(2), topic_id=b"made again")]
    states = partition_states(FIRST, other, NONE, sizes_of(other), NOW_MS)
    assert moving(states, NOW_MS) == {0, 1, 2}
    later = NOW_MS + 10 * MOVES_FOR_MS
    states = partition_states(states, other, NONE, sizes_of(other), later)
    assert moving(states, later) == {0, 1, 2}
    listed = dict.fromkeys(states, NOW_MS)
    # A follower that lags may fetch at any time.
    assert {tp.partition for tp in moving_partitions(states, listed, later)} == {1}


def test_a_new_partition_is_listed_and_one_that_went_is_forgotten() -> None:
    views = [*VIEWS[1:], view_of(3)]
    states = partition_states(FIRST, views, NONE, sizes_of(views), NOW_MS)
    assert sorted(tp.partition for tp in states) == [1, 2, 3]
    assert moving(states, NOW_MS) == {3}


def test_of_too_many_those_listed_longest_ago_are_next_and_changed_metadata_always() -> None:
    views = [view_of(n) for n in range(MOVING_MAX + 10)]
    first = partition_states({}, views, NONE, sizes_of(views), 1_000)
    larger = {f"p{n}": 200 for n in range(MOVING_MAX + 10)}
    changed = [view_of(0, leader=2), *views[1:]]
    states = partition_states(first, changed, NONE, sizes_of(changed, **larger), NOW_MS)
    listed = {view.topic_partition: 5_000 for view in views}
    for view in views[1:21]:
        listed[view.topic_partition] = 6_000
    chosen = {tp.partition for tp in moving_partitions(states, listed, NOW_MS)}
    assert len(chosen) == MOVING_MAX + 1
    assert 0 in chosen
    assert set(range(21, MOVING_MAX + 10)) <= chosen


def test_the_states_of_an_unchanged_cluster_are_the_same_objects() -> None:
    again = partition_states(FIRST, VIEWS, NONE, sizes_of(VIEWS), NOW_MS)
    assert all(again[tp] is FIRST[tp] for tp in FIRST)
