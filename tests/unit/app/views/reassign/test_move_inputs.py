"""The inputs of a move: when the cluster has changed under the choice, and which plans can be requested again."""

from __future__ import annotations

from app.views.reassign.move_inputs import no_clone, topology_change

BEFORE = ((1, 2, 3), {"orders": ("id", 3)})


def test_a_broker_or_a_topic_that_is_another_takes_the_choice_away() -> None:
    assert topology_change(BEFORE, BEFORE) is None
    assert topology_change(BEFORE, ((1, 2, 3), {})) is None, "a topic that is no longer chosen"
    assert topology_change(BEFORE, ((1, 2), BEFORE[1])) == "Broker 3 is gone."
    assert topology_change(BEFORE, ((1, 2, 4), BEFORE[1])) == "Broker 3 is gone and broker 4 came."
    for other in (("id", 4), ("other", 3)):
        result = topology_change(BEFORE, ((1, 2, 3), {"orders": other}))
        assert result == "orders has other partitions than when it was chosen."


def test_only_what_the_controls_can_say_can_be_cloned() -> None:
    parts = [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]
    assert no_clone({"action": "drain", "brokers": [3]}) is None
    assert no_clone({"action": "add", "partitions": parts}) is None
    assert "exact lists" in str(no_clone({"action": "assign"}))
    assert "several topics" in str(no_clone({"action": "add", "partitions": [*parts, {"topic": "b", "partition": 0}]}))
