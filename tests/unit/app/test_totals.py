"""The six figures and the rates of the Overview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.components import totals
from app.components.totals import Tile
from backend.store.queries.overview import ClusterSample
from backend.tiering.segment_state import SegmentState
from tests.unit.app.overview_rows import NOW_MS, broker, disk, ledger, replica, sample, segment

HOUR_MS = 3_600_000


def tiles(history: Sequence[ClusterSample] = (), **more: Any) -> dict[str, Tile]:
    known: dict[str, Any] = {
        "ledger": ledger(),
        "open_segments": [],
        "p99_ms": {},
        "behind": [],
        "brokers": [broker()],
        "pending_status": None,
        "ledger_ms": NOW_MS,
        "range_ms": HOUR_MS,
    }
    return {tile.name: tile for tile in totals.tiles(history, **{**known, **more})}


def test_without_a_sample_nothing_is_a_number_that_nobody_told() -> None:
    found = tiles(ledger_ms=None)
    assert [found[name].value for name in ("Pending upload", "Oldest open copy", "Delete overdue", "Remote")] == [
        "?"
    ] * 4
    assert found["Local"].value == "?"
    assert found["Not in sync"].sub == "no sample yet"


def test_pending_has_its_change_over_the_range_and_the_worst_partitions_status() -> None:
    history = [sample(NOW_MS - HOUR_MS, pending_bytes=1_000_000), sample(NOW_MS, pending_bytes=3_500_000)]
    found = tiles(history, pending_status="critical")["Pending upload"]
    assert (found.value, found.sub, found.status) == ("3.5 MB", "+2.5 MB in 1 h", "critical")
    fallen = [history[0], sample(NOW_MS, pending_bytes=400_000)]
    assert tiles(fallen)["Pending upload"].sub == "−600 kB in 1 h"
    same = [history[0], sample(NOW_MS, pending_bytes=1_000_000)]
    assert tiles(same)["Pending upload"].sub == "unchanged in 1 h"
    assert tiles([sample(NOW_MS, pending_bytes=None)])["Pending upload"].sub == "the leaders have not told it"


def test_a_change_names_no_longer_time_than_is_known() -> None:
    history = [sample(NOW_MS - 185_000, pending_bytes=0), sample(NOW_MS, pending_bytes=1_000)]
    assert tiles(history)["Pending upload"].sub == "+1.0 kB in 3 m"
    assert tiles([sample(NOW_MS - 20_000, pending_bytes=0), history[1]])["Pending upload"].sub == "+1.0 kB in 20 s"


def test_the_oldest_open_copy_counts_copies_only() -> None:
    deletion = segment(age_ms=9 * HOUR_MS, state=SegmentState.DELETE_SEGMENT_STARTED)
    assert tiles(open_segments=[deletion])["Oldest open copy"].value == "none"
    found = tiles(open_segments=[deletion, segment(age_ms=20_000)], p99_ms={("orders", 0): 30_000})["Oldest open copy"]
    assert (found.value, found.sub, found.status) == ("20 s", "within its usual time", None)
    hung = tiles(open_segments=[segment(age_ms=HOUR_MS)], p99_ms={("orders", 0): 30_000})["Oldest open copy"]
    assert (hung.value, hung.sub, hung.status) == ("1 h", "120× its p99", "critical")


def test_replicas_not_in_sync_are_told_by_phase_the_stuck_first() -> None:
    behind = [replica(), replica(index=1), replica(index=2, phase="DELAYED")]
    found = tiles(behind=behind)["Not in sync"]
    assert (found.value, found.sub, found.status) == ("3 replicas", "1 stuck, 2 fetching", "critical")
    assert tiles(behind=behind[:1])["Not in sync"].status == "warning"
    quiet = tiles([sample(NOW_MS, replicas=9)])["Not in sync"]
    assert (quiet.value, quiet.sub, quiet.status) == ("0 replicas", "all 9 in sync", None)


def test_a_deletion_is_overdue_after_a_minute() -> None:
    fresh = ledger(oldest_open_delete_ms=NOW_MS - 60_000, delete_started_bytes=5_000)
    assert tiles(ledger=fresh)["Delete overdue"].value == "0 B"
    late = ledger(oldest_open_delete_ms=NOW_MS - 120_000, delete_started_bytes=5_000)
    found = tiles(ledger=late)["Delete overdue"]
    assert (found.value, found.sub, found.status) == ("5.0 kB", "oldest 2 m", "warning")
    earlier = [sample(NOW_MS - HOUR_MS, oldest_open_delete_ms=90_000), sample(NOW_MS)]
    assert tiles(earlier)["Delete overdue"].sub == "some in 1 h"


def test_local_names_the_fullest_disk() -> None:
    brokers = [broker(1, log_dirs=[disk(0.2)]), broker(2, log_dirs=[disk(0.64)])]
    found = tiles([sample(NOW_MS, local_log_bytes=7_000)], brokers=brokers)["Local"]
    assert (found.value, found.sub) == ("7.0 kB", "64% of disk used")


def test_rates_are_slopes_over_the_window_in_bytes_of_the_mean_record() -> None:
    history = [
        sample(
            NOW_MS + step * 10_000,
            log_end_offset_sum=100 * step,
            tiered_offset_sum=50 * step,
            pending_offsets=10,
            pending_bytes=1_000,
        )
        for step in range(20)
    ]
    found = totals.rates(history, 15 * 60_000)
    assert found.in_bytes
    assert found.produced[0] is None
    assert found.produced[-1] == pytest.approx(1_000)  # 10 records a second of 100 bytes
    assert found.copied[-1] == pytest.approx(500)


def test_a_sum_that_falls_or_is_not_known_makes_a_gap_and_no_negative_rate() -> None:
    ends = [100, 200, 50, None, 300]
    history = [sample(NOW_MS + step * 60_000, log_end_offset_sum=end) for step, end in enumerate(ends)]
    found = totals.rates(history, 15 * 60_000)
    assert not found.in_bytes
    assert found.produced[1] == pytest.approx(100 / 60)
    assert [found.produced[index] for index in (0, 2, 3, 4)] == [None] * 4


def test_rates_of_no_history_are_empty() -> None:
    assert totals.rates([], HOUR_MS).at_ms == ()
