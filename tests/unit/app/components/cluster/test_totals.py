"""The six figures and the rates of the Overview."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from app.components.cluster import totals
from app.components.cluster.totals import Tile
from backend.store.queries.overview import ClusterSample, CopiedBytes
from backend.tiering.segment_state import SegmentState
from tests.unit.app.overview_rows import NOW_MS, broker, disk, ledger, sample, segment

HOUR_MS = 3_600_000


def tiles(history: Sequence[ClusterSample] = (), **more: Any) -> dict[str, Tile]:
    defaults: dict[str, Any] = {
        "ledger": ledger(),
        "open_segments": [],
        "p99_ms": {},
        "behind": {},
        "brokers": [broker()],
        "pending_status": None,
        "ledger_ms": NOW_MS,
        "range_ms": HOUR_MS,
        "interval_ms": 2_000,
    }
    return {tile.name: tile for tile in totals.tiles(history, **{**defaults, **more})}


def test_without_a_sample_nothing_is_a_number_that_nobody_told() -> None:
    result = tiles(ledger_ms=None)
    assert [result[name].value for name in ("Pending upload", "Oldest open copy", "Delete overdue", "Remote")] == [
        "?"
    ] * 4
    assert result["Local"].value == "?"
    assert result["Not in sync"].sub == "no sample yet"


def test_pending_has_its_change_over_the_range_and_the_worst_partitions_status() -> None:
    history = [sample(NOW_MS - HOUR_MS, pending_bytes=1_000_000), sample(NOW_MS, pending_bytes=3_500_000)]
    tile = tiles(history, pending_status="critical")["Pending upload"]
    assert (tile.value, tile.sub, tile.status) == ("3.5 MB", "+2.5 MB in 1 h", "critical")
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
    tile = tiles(open_segments=[deletion, segment(age_ms=20_000)], p99_ms={("orders", 0): 30_000})["Oldest open copy"]
    assert (tile.value, tile.sub, tile.status) == ("20 s", "within its usual time", None)
    failed = segment(age_ms=9 * HOUR_MS, superseded=True)
    assert tiles(open_segments=[failed])["Oldest open copy"].value == "none"
    hung = tiles(open_segments=[failed, segment(age_ms=HOUR_MS)], p99_ms={("orders", 0): 30_000})["Oldest open copy"]
    assert (hung.value, hung.sub, hung.status) == ("1 h", "120× its p99", "critical")


def test_replicas_not_in_sync_are_told_by_phase_the_stuck_first() -> None:
    behind: dict[tuple[int, str | None], int] = {(1, "FETCHING"): 700, (2, "FETCHING"): 2, (2, "DELAYED"): 1}
    tile = tiles(behind=behind)["Not in sync"]
    assert (tile.value, tile.sub, tile.status) == ("703 replicas", "1 stuck, 702 fetching", "critical")
    assert tiles(behind={(1, "FETCHING"): 1})["Not in sync"].status == "warning"
    quiet = tiles([sample(NOW_MS, replicas=12, partitions=5, offline_partitions=1)])["Not in sync"]
    assert (quiet.value, quiet.sub, quiet.status) == ("0 replicas", "all 8 followers in sync", None)


def test_a_deletion_is_overdue_after_a_minute() -> None:
    fresh = ledger(oldest_open_delete_ms=NOW_MS - 60_000, delete_started_bytes=5_000)
    assert tiles(ledger=fresh)["Delete overdue"].value == "0 B"
    late = ledger(oldest_open_delete_ms=NOW_MS - 120_000, delete_started_bytes=5_000)
    tile = tiles(ledger=late)["Delete overdue"]
    assert (tile.value, tile.sub, tile.status) == ("5.0 kB", "oldest 2 m", "warning")
    earlier = [sample(NOW_MS - HOUR_MS, oldest_open_delete_ms=90_000), sample(NOW_MS)]
    assert tiles(earlier)["Delete overdue"].sub == "some in 1 h"


def test_local_names_the_fullest_disk() -> None:
    brokers = [broker(1, log_dirs=[disk(0.2)]), broker(2, log_dirs=[disk(0.64)])]
    tile = tiles([sample(NOW_MS, local_log_bytes=7_000)], brokers=brokers)["Local"]
    assert (tile.value, tile.sub) == ("7.0 kB", "360 B free")


MINUTE_MS = 60_000
RANGE_MS = 15 * MINUTE_MS


def rates(history: Sequence[ClusterSample], copied: Sequence[CopiedBytes] = (), **more: Any) -> totals.ThroughputRates:
    defaults: dict[str, Any] = {"interval_ms": 2_000, "ledger_ms": NOW_MS + HOUR_MS}
    return totals.rates(history, copied, RANGE_MS, **{**defaults, **more})


def test_copied_is_what_the_ledger_finished_however_many_small_records_lie_beside_it() -> None:
    # 87 kB/s in segments of 870 kB, while millions of tiny records of an idle topic make the mean record small.
    history = [
        sample(NOW_MS + step * 10_000, tiered_offset_sum=5_000_000 + step, pending_offsets=9_000_000, pending_bytes=900)
        for step in range(20)
    ]
    copied = [CopiedBytes(NOW_MS - MINUTE_MS + step * 10_000, 870_000) for step in range(26)]
    assert rates(history, copied).copied == pytest.approx([87_000] * 20)


def test_copied_is_nothing_in_a_time_without_a_finished_copy() -> None:
    history = [sample(NOW_MS + step * MINUTE_MS) for step in range(4)]
    assert rates(history, [CopiedBytes(NOW_MS + 30_000, 600_000)]).copied == (0.0, 10_000.0, 0.0, 0.0)


def test_copied_is_not_known_beyond_the_ledger() -> None:
    history = [sample(NOW_MS), sample(NOW_MS + 2_000)]
    assert rates(history, ledger_ms=NOW_MS).copied == (0.0, None)
    assert rates(history, ledger_ms=None).copied == (None, None)


def test_produced_is_the_growth_of_the_counter_over_a_minute() -> None:
    history = [sample(NOW_MS + step * 10_000, produced_bytes=step * 10_000) for step in range(20)]
    throughput_rates = rates(history)
    assert throughput_rates.produced[0] is None
    assert throughput_rates.produced[1:] == pytest.approx([1_000] * 19)


def test_a_counter_that_falls_or_is_not_known_makes_a_gap_and_no_negative_rate() -> None:
    counted = [100, 700, 50, None, 300, 900]
    history = [sample(NOW_MS + step * MINUTE_MS, produced_bytes=count) for step, count in enumerate(counted)]
    assert rates(history).produced == (None, 10.0, None, None, None, 10.0)


def test_a_counter_that_starts_over_within_the_window_never_counts_what_was_before() -> None:
    history = [sample(NOW_MS + step * 10_000, produced_bytes=count) for step, count in enumerate([10, 20, 0, 1_000])]
    assert rates(history).produced == (None, 1.0, None, 100.0)


def test_no_rate_is_taken_across_a_gap() -> None:
    times = [0, 2_000, 4_000, 13 * MINUTE_MS, 13 * MINUTE_MS + 2_000]
    history = [sample(NOW_MS + at_ms, produced_bytes=at_ms) for at_ms in times]
    throughput_rates = rates(history)
    assert throughput_rates.gaps == {3}
    assert throughput_rates.produced == (None, 1000.0, 1000.0, None, 1000.0)


def test_a_small_line_breaks_at_a_gap() -> None:
    history = [sample(NOW_MS + at_ms, pending_bytes=at_ms) for at_ms in (0, 2_000, 13 * MINUTE_MS)]
    assert tiles(history)["Pending upload"].series == (0, 2_000, None, 13 * MINUTE_MS)


def test_rates_of_no_history_are_empty() -> None:
    assert rates([]).at_ms == ()
