"""The heartbeat stops when observer, database or judgement do, and not because the watched cluster is away."""

from __future__ import annotations

from dataclasses import replace

from backend.control.alerts.heartbeat import WatchSigns, silent_part
from backend.store.blind_spots import UNWATCHED_MS_MIN

NOW_S = 10_000.0
STALE_S = UNWATCHED_MS_MIN / 1000
FRESH = WatchSigns(round_ended_s=NOW_S - 2, stored_s=NOW_S - 2, unjudged_s=0.0, interval_s=2.0)


def test_it_beats_while_rounds_end_and_are_stored_and_judged() -> None:
    assert silent_part(FRESH, NOW_S) is None


def test_it_stops_with_each_part() -> None:
    late_s = NOW_S - STALE_S - 1
    assert "observer" in str(silent_part(replace(FRESH, round_ended_s=late_s), NOW_S))
    assert "observer" in str(silent_part(replace(FRESH, round_ended_s=None), NOW_S))
    assert "database" in str(silent_part(replace(FRESH, stored_s=late_s), NOW_S))
    assert "database" in str(silent_part(replace(FRESH, stored_s=None), NOW_S))
    assert "judged" in str(silent_part(replace(FRESH, unjudged_s=STALE_S + 1), NOW_S))


def test_a_large_cluster_may_be_slow() -> None:
    slow = replace(FRESH, interval_s=150.0, round_ended_s=NOW_S - 400, stored_s=NOW_S - 400)
    assert silent_part(slow, NOW_S) is None
