"""Small clusters are looked at as often as is set, large ones less often."""

from __future__ import annotations

import pytest

from backend.control.observer.cluster_observer import JITTER
from backend.control.observer.sampling.moving_partitions import MOVING_MAX
from backend.control.observer.sampling.sampling_interval import (
    SamplingInterval,
    moving_interval_ms,
    round_interval_ms,
    settings_interval_ms,
)


def test_a_small_cluster_is_sampled_as_often_as_is_set() -> None:
    assert round_interval_ms(2_000, 130, 390) == 2_000
    assert round_interval_ms(60_000, 1_000, 3_000) == 60_000
    assert settings_interval_ms(30) == 10_000


def test_a_large_cluster_is_sampled_as_often_as_its_brokers_can_bear() -> None:
    assert round_interval_ms(2_000, 6_000, 6_000) == 78_000
    assert round_interval_ms(2_000, 10_000, 30_000) == 150_000
    assert settings_interval_ms(1_000) == 60_000


def test_a_round_follows_sooner_after_topics_came_or_went() -> None:
    pace = SamplingInterval(2_000)
    seen = []
    for topics in ({b"a"}, {b"a", b"b"}, {b"a", b"b", b"c"}, {b"a", b"b", b"c"}, {b"a"}):
        pace.observe_topics(frozenset(topics))
        seen.append(pace.next_ms(80_000))
    assert seen == [80_000, 20_000, 20_000, 80_000, 20_000]
    assert pace.next_ms(80_000) == 80_000, "a round that failed saw nothing"


@pytest.mark.parametrize(("interval_ms", "pause_ms"), [(2_000, 2_000), (7_000, 2_000), (1_000, 1_000)])
def test_it_follows_no_sooner_than_in_a_small_cluster(interval_ms: int, pause_ms: int) -> None:
    pace = SamplingInterval(2_000)
    pace.observe_topics(frozenset({b"a"}))
    pace.observe_topics(frozenset({b"b"}))
    assert pace.next_ms(interval_ms) == pause_ms


@pytest.mark.parametrize(
    ("partitions", "interval_ms"), [(100, 2_000), (10_000, 20_000), (12_000, 24_000), (50_000, 24_000)]
)
def test_rounds_that_list_what_moves_come_within_30_s_at_any_size(partitions: int, interval_ms: int) -> None:
    assert moving_interval_ms(2_000, partitions) == interval_ms
    assert interval_ms * (1 + JITTER) + 3_000 <= 30_000, "a round takes a moment, too"
    assert moving_interval_ms(60_000, partitions) == 60_000, "as is set"


def test_10_000_partitions_that_all_move_are_listed_in_one_round() -> None:
    assert MOVING_MAX >= 10_000
