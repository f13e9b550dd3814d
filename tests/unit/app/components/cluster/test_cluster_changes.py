"""Ticks of the timeline about the product itself and about partitions that came or went."""

from __future__ import annotations

from app.components.cluster import cluster_changes
from app.components.cluster.activity_timeline import OWN, TOPICS
from tests.unit.app.overview_rows import NOW_MS, process, sample

MINUTE_MS = 60_000


def test_processes_that_began_together_are_one_tick() -> None:
    began = [process(name) for name in ("observer", "backend", "pipeline", "app")]
    since_ms = began[0].started_ms
    (tick,) = cluster_changes.starts(began, since_ms)
    assert (tick.row, tick.at_ms, tick.text) == (OWN, since_ms, "Backend and observer and pipeline started")
    assert cluster_changes.starts(began, since_ms + 1) == []


def test_a_hole_in_the_samples_is_a_tick_at_its_end() -> None:
    times = [NOW_MS - 10 * MINUTE_MS, NOW_MS - 10 * MINUTE_MS + 2_000, NOW_MS - 4 * MINUTE_MS, NOW_MS]
    samples = [sample(at_ms) for at_ms in times]
    ticks = cluster_changes.holes(samples, 2_000, lambda at_ms: f"<{at_ms}>")
    assert [(tick.row, tick.at_ms, tick.status) for tick in ticks] == [
        (OWN, times[2], "warning"),
        (OWN, times[3], "warning"),
    ]
    assert ticks[0].text == f"No samples for 5 m 58 s, from <{times[1]}> on"
    assert cluster_changes.holes(samples[:2], 2_000, str) == []


def test_partitions_that_came_or_went_are_ticks() -> None:
    samples = [sample(NOW_MS + number, partitions=count) for number, count in enumerate((6, 6, 306, 305))]
    assert [(tick.row, tick.at_ms, tick.text) for tick in cluster_changes.partition_changes(samples)] == [
        (TOPICS, NOW_MS + 2, "300 partitions more, 306 in all"),
        (TOPICS, NOW_MS + 3, "1 partition fewer, 305 in all"),
    ]
    assert cluster_changes.partition_changes(samples[:1]) == []
