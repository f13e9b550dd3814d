"""The replica that a consumer in a rack is sent to."""

from __future__ import annotations

from backend.engine.replica.replica_selector import ReplicaView, preferred_replica

LEADER = ReplicaView(1, "a", 100, 0.0)


def test_a_consumer_in_the_leaders_rack_or_in_none_stays_with_the_leader() -> None:
    others = [ReplicaView(2, "a", 100, 0.0), ReplicaView(3, "", 100, 0.0)]
    assert preferred_replica("a", LEADER, others) is None
    assert preferred_replica("", LEADER, others) is None


def test_a_rack_without_replicas_is_served_by_the_leader() -> None:
    assert preferred_replica("c", LEADER, [ReplicaView(2, "b", 100, 0.0), ReplicaView(3, None, 100, 0.0)]) is None


def test_of_several_in_the_rack_the_one_that_is_caught_up_most_is_chosen() -> None:
    rack = "b"
    behind, ahead = ReplicaView(2, rack, 90, 0.0), ReplicaView(3, rack, 95, 9.0)
    assert preferred_replica(rack, LEADER, [ahead, behind]) == 3
    later = ReplicaView(4, rack, 95, 1.0)
    assert preferred_replica(rack, LEADER, [behind, ahead, later]) == 4
