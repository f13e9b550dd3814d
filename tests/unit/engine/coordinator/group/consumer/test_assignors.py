"""Server-side assignors: shares are even, complete, and move no more than they must."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from backend.engine.coordinator.group.consumer.assignors import MemberSpec, TargetAssignment, range_, uniform
from backend.engine.coordinator.topics_view import AssignablePartition

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def parts(topic: bytes, *indexes: int) -> frozenset[AssignablePartition]:
    return frozenset((topic, index) for index in indexes)


def member(
    *topics: bytes, target: frozenset[AssignablePartition] = frozenset(), instance_id: str | None = None
) -> MemberSpec:
    return MemberSpec(instance_id, frozenset(topics), target)


def again(members: Mapping[str, MemberSpec], assigned: TargetAssignment) -> dict[str, MemberSpec]:
    """Members with what they were assigned as their target; those that are new have none."""
    return {name: spec._replace(target=assigned.get(name, frozenset())) for name, spec in members.items()}


def complete(assigned: TargetAssignment, counts: Mapping[bytes, int]) -> bool:
    given = sorted(partition for share in assigned.values() for partition in share)
    return given == sorted((topic, index) for topic, count in counts.items() for index in range(count))


@pytest.mark.parametrize("members", [1, 2, 3, 4, 7, 12])
def test_uniform_shares_differ_by_one_at_most(members: int) -> None:
    specs = {f"m{at}": member(A, B) for at in range(members)}
    assigned = uniform(specs, {A: 7, B: 3})
    assert complete(assigned, {A: 7, B: 3})
    sizes = [len(share) for share in assigned.values()]
    assert max(sizes) - min(sizes) <= 1


def test_a_newcomer_takes_only_its_share() -> None:
    before = uniform({"m1": member(A), "m2": member(A)}, {A: 6})
    after = uniform(again({"m1": member(A), "m2": member(A), "m3": member(A)}, before), {A: 6})
    assert [len(after[name]) for name in ("m1", "m2", "m3")] == [2, 2, 2]
    assert after["m1"] < before["m1"]
    assert after["m2"] < before["m2"]


def test_whoever_is_left_takes_over_and_keeps_what_it_has() -> None:
    before = uniform({name: member(A) for name in ("m1", "m2", "m3")}, {A: 7})
    after = uniform(again({"m1": member(A), "m3": member(A)}, before), {A: 7})
    assert complete(after, {A: 7})
    assert before["m1"] <= after["m1"]
    assert before["m3"] <= after["m3"]


def test_nothing_moves_when_nothing_changes() -> None:
    specs = {"m1": member(A, B), "m2": member(B, C), "m3": member(A)}
    counts = {A: 5, B: 4, C: 3}
    first = uniform(specs, counts)
    assert uniform(again(specs, first), counts) == first


def test_members_with_other_topics_are_levelled_where_their_topics_meet() -> None:
    specs = {"both": member(A, B, target=parts(A, 0, 1, 2, 3) | parts(B, 0, 1)), "only-a": member(A)}
    assigned = uniform(specs, {A: 4, B: 2})
    assert assigned == {"both": parts(A, 0) | parts(B, 0, 1), "only-a": parts(A, 1, 2, 3)}


def test_targets_of_deleted_topics_and_partitions_are_dropped() -> None:
    assigned = uniform({"m1": member(A, target=parts(A, 0, 9) | parts(C, 0))}, {A: 2})
    assert assigned == {"m1": parts(A, 0, 1)}


def test_members_that_subscribe_to_nothing_get_nothing() -> None:
    assert uniform({"m1": member(), "m2": member()}, {A: 3}) == {"m1": frozenset(), "m2": frozenset()}
    assert range_({"m1": member()}, {A: 3}) == {"m1": frozenset()}


def test_ranges_are_contiguous_and_the_same_for_all_topics() -> None:
    specs = {name: member(A, B) for name in ("m2", "m1")}
    assigned = range_(specs, {A: 5, B: 5})
    assert assigned == {"m1": parts(A, 0, 1, 2) | parts(B, 0, 1, 2), "m2": parts(A, 3, 4) | parts(B, 3, 4)}


def test_ranges_begin_with_static_members_in_the_order_of_their_names() -> None:
    specs = {"a": member(A), "z": member(A, instance_id="1"), "y": member(A, instance_id="2")}
    assert range_(specs, {A: 3}) == {"z": parts(A, 0), "y": parts(A, 1), "a": parts(A, 2)}


def test_ranges_count_only_subscribers() -> None:
    specs = {"m1": member(A, B), "m2": member(B)}
    assert range_(specs, {A: 2, B: 2}) == {"m1": parts(A, 0, 1) | parts(B, 0), "m2": parts(B, 1)}


def test_more_members_than_partitions_leave_some_without() -> None:
    specs = {f"m{at}": member(A) for at in range(3)}
    assert [len(share) for share in range_(specs, {A: 2}).values()] == [1, 1, 0]
    assert sorted(len(share) for share in uniform(specs, {A: 2}).values()) == [0, 1, 1]
