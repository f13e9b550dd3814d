"""Partitions that are asked for their transaction: those that stand still, few at once, each seldom."""

from __future__ import annotations

from backend.control.findings.still_offsets import PartitionStill, StillOffset
from backend.control.observer.watches.transaction_watch import (
    AGAIN_S,
    HELD_MS_MIN,
    PARTITIONS_MAX,
    HeldPartition,
    held_partitions,
    selection,
)
from tests.unit.control.findings.sights import NOW_MS, partition


def still(*ages_ms: int) -> dict[tuple[str, int], PartitionStill]:
    return {
        ("orders", number): PartitionStill("id-orders", None, StillOffset(7, NOW_MS - age_ms))
        for number, age_ms in enumerate(ages_ms)
    }


def test_only_what_stands_still_for_some_time_and_has_a_leader_is_asked_about() -> None:
    rows = [partition(index=0), partition(index=1, leader=2), partition(index=2), partition(index=3, leader=-1)]
    ages_ms = (HELD_MS_MIN, HELD_MS_MIN + 1, HELD_MS_MIN - 1, HELD_MS_MIN)
    held = held_partitions(still(*ages_ms), rows, NOW_MS)
    assert held == [HeldPartition("orders", 1, 2, 7), HeldPartition("orders", 0, 1, 7)]
    assert held_partitions({}, rows, NOW_MS) == []
    only_pending = {("orders", 0): PartitionStill("id-orders", StillOffset(7, 0), None)}
    assert held_partitions(only_pending, rows, NOW_MS) == []


def test_at_most_twenty_are_asked_at_once_and_each_again_when_its_answer_is_old() -> None:
    held = [HeldPartition("orders", number, 1, 7) for number in range(50)]
    first = selection(held, {}, 100.0)
    assert first == held[:PARTITIONS_MAX]
    asked_s = dict.fromkeys(first, 100.0)
    second = selection(held, asked_s, 105.0)
    assert second == held[PARTITIONS_MAX : 2 * PARTITIONS_MAX]
    asked_s |= dict.fromkeys(held, 105.0) | dict.fromkeys(first, 100.0)
    assert selection(held, asked_s, 100.0 + AGAIN_S - 1) == []
    assert selection(held, asked_s, 100.0 + AGAIN_S) == first


def test_a_transaction_after_the_one_that_was_asked_about_is_asked_about_at_once() -> None:
    before, after = HeldPartition("orders", 0, 1, 7), HeldPartition("orders", 0, 1, 9)
    assert selection([after], {before: 100.0}, 101.0) == [after]
