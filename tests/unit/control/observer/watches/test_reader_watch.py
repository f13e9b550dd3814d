"""Offsets of groups from one reading to the next: which moved, and when those without members last did."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import cast

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.group_requests import GROUPS_MAX, Committed, CommittedOffsets, listed_groups
from backend.control.observer.watches import reader_watch
from backend.control.observer.watches.meter_coverage import SILENT_MS
from backend.control.observer.watches.reader_watch import (
    OFFSETS_MAX,
    GroupCounts,
    ReaderWatch,
    group_offsets,
    left_out,
)
from backend.tiering.ids import TopicPartition
from tests.unit.control.findings.sights import partition

TP = TopicPartition("orders", 0)


def committed(offset: int, *, members: bool = True, group: str = "g") -> Committed:
    return Committed(group, ((TP, offset),), members)


def test_a_group_is_seen_to_move_from_one_reading_to_the_next() -> None:
    (first,) = group_offsets([committed(5, members=False)], (), 1_000)
    assert (first.committed, first.moved, first.moved_ms, first.members) == (5, False, None, False)
    (second,) = group_offsets([committed(7, members=False)], [first], 2_000)
    assert (second.moved, second.moved_ms) == (True, 2_000)
    (third,) = group_offsets([committed(7, members=False)], [second], 3_000)
    assert (third.moved, third.moved_ms) == (False, 2_000)


def test_groups_with_members_come_first() -> None:
    rows = group_offsets([committed(1, members=False, group="a"), committed(1, group="b")], (), 1)
    assert [row.group for row in rows] == ["b", "a"]
    counts = GroupCounts.of([committed(1), committed(1, members=False), Committed("none", (), members=False)])
    assert (counts.with_members, counts.without_members) == (1, 1)


def test_of_too_many_groups_those_without_members_are_left_out() -> None:
    states = [(f"e{number:04}", "Empty") for number in range(GROUPS_MAX)] + [("z", "Stable"), ("y", "Assigning")]
    groups = listed_groups(states)
    assert len(groups) == GROUPS_MAX
    assert list(groups.items())[:3] == [("y", True), ("z", True), ("e0000", False)]
    assert "e0999" not in groups


def test_groups_and_offsets_that_are_not_looked_at_are_counted() -> None:
    assert left_out(CommittedOffsets([committed(1)])) is None
    many = Committed("g", ((TP, 1),) * (OFFSETS_MAX + 2))
    assert len(group_offsets([many], (), 1)) == OFFSETS_MAX
    assert left_out(CommittedOffsets([many], 7)) == (
        "Not looked at: 7 groups, as a broker is asked for 1000 at most;"
        " 2 committed offsets, as 100000 are kept at most."
        " Those without members are left out first."
    )


class Meters:
    """Meters of a broker."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("kafka_remote_log_reader_task_queue_size", "Reads that wait.", labels=["broker"])
        family.add_metric([str(self._broker_id)], 0.0)
        yield family

    def only(self, _: Collection[str], /) -> Meters:
        return self


@pytest.mark.parametrize(("silent", "stopped"), [({2}, []), (set(), [2])])
def test_nobody_misses_the_metrics_of_a_broker_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, silent: set[int], stopped: list[int]
) -> None:
    """A broker that crashes again and again is a finding; `ebbline status` is not blind for it."""
    living, at_ms = [1, 2], 1_000
    monkeypatch.setattr(reader_watch, "now_ms", lambda: at_ms)
    watch = ReaderWatch(cast(Gateway, None), None, lambda: [Meters(number) for number in living])
    hosts = {1: "localhost", 2: "localhost"}
    asyncio.run(watch._read_meters(hosts))
    living, watch.silent, at_ms = [1], frozenset(silent), at_ms + SILENT_MS
    asyncio.run(watch._read_meters(hosts))
    assert watch.facts([partition()])["meters"]["stopped"] == stopped
