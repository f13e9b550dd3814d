"""From a wish to replica lists."""

from __future__ import annotations

from collections import Counter

import pytest

from backend.control.operations.reassign import replica_placement
from backend.control.operations.reassign.replica_placement import BrokerRack, PlacementImpossible, ReplicaLayout
from backend.tiering.ids import TopicPartition


def layout(lists: list[tuple[int, ...]], racks: dict[int, str] | None = None, brokers: int = 4) -> ReplicaLayout:
    replicas = {TopicPartition("t", number): broker_ids for number, broker_ids in enumerate(lists)}
    places = [BrokerRack(b, (racks or {}).get(b)) for b in range(1, brokers + 1)]
    return ReplicaLayout.of(replicas, places)


def lists(replicas: dict[TopicPartition, tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [replicas[tp] for tp in sorted(replicas, key=lambda tp: tp.partition)]


def test_a_broker_joins_at_the_end_and_only_where_it_is_not() -> None:
    now = layout([(1, 2), (3, 1)])
    assert lists(replica_placement.add(now, now.replicas, [3])) == [(1, 2, 3), (3, 1)]


def test_the_last_replica_is_never_removed() -> None:
    now = layout([(1, 2), (1,)])
    assert lists(replica_placement.remove(now, [TopicPartition("t", 0)], [1])) == [(2,)]
    with pytest.raises(PlacementImpossible, match="t-1 would have no replica left"):
        replica_placement.remove(now, now.replicas, [1])


def test_a_move_keeps_the_place_in_the_list() -> None:
    now = layout([(1, 2), (2, 1), (3, 2)])
    assert lists(replica_placement.move(now, now.replicas, 1, 4)) == [(4, 2), (2, 4)]
    with pytest.raises(PlacementImpossible, match="a replica on broker 2 already"):
        replica_placement.move(now, now.replicas, 1, 2)


def test_more_replicas_go_to_the_least_loaded_brokers_and_fewer_leave_from_the_end() -> None:
    now = layout([(1, 2), (1, 2), (1, 3)])
    more = lists(replica_placement.replication_factor(now, now.replicas, 3))
    assert all(len(set(broker_ids)) == 3 for broker_ids in more)
    load = Counter(b for broker_ids in more for b in broker_ids)
    assert max(load.values()) - min(load.values()) <= 1
    assert lists(replica_placement.replication_factor(now, now.replicas, 1)) == [(1,), (1,), (1,)]
    with pytest.raises(PlacementImpossible, match="No broker is left"):
        replica_placement.replication_factor(now, now.replicas, 5)


def test_another_rack_is_preferred_to_a_lighter_load() -> None:
    now = layout([(1,), (3,), (3,)], {1: "a", 2: "a", 3: "b", 4: "b"})
    result = replica_placement.replication_factor(now, [TopicPartition("t", 0)], 2)
    assert lists(result) == [(1, 4)]


def test_a_drained_broker_holds_nothing_and_the_others_share() -> None:
    now = layout([(1, 2), (2, 1), (1, 3), (4, 1)])
    result = lists(replica_placement.drain(now, now.replicas, [1]))
    assert all(1 not in replicas and len(set(replicas)) == 2 for replicas in result)
    assert result[1][0] == 2, "a leader that stays keeps its place"
    load = Counter(b for replicas in result for b in replicas)
    assert max(load.values()) - min(load.values()) <= 1


def test_two_brokers_swap_what_they_lead_where_both_have_a_replica() -> None:
    now = layout([(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3)])
    result = replica_placement.swap_leaders(now, now.replicas, 1, 2)
    assert {tp.partition: replicas for tp, replicas in result.items()} == {0: (2, 1, 3), 1: (1, 3, 2)}
    with pytest.raises(PlacementImpossible, match="No partition has replicas on brokers 2 and 3"):
        replica_placement.swap_leaders(layout([(1, 2, 3)]), [TopicPartition("t", 0)], 2, 3)


def test_leaders_are_spread_without_moving_a_replica() -> None:
    now = layout([(1, 2, 3)] * 6)
    result = lists(replica_placement.spread_leaders(now, now.replicas))
    assert Counter(replicas[0] for replicas in result) == {1: 2, 2: 2, 3: 2}
    assert all(sorted(replicas) == [1, 2, 3] for replicas in result)
    again = layout(result)
    assert lists(replica_placement.spread_leaders(again, again.replicas)) == result, "what is even stays as it is"
