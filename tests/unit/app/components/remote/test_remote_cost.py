"""The cost of the remote tier at given prices."""

from __future__ import annotations

from app.components.partition.lineage_verdicts import JudgedSegment, LineageStanding
from app.components.remote import remote_cost
from app.components.remote.remote_cost import DAY_MS, FinishedCopies, Prices
from backend.store.queries.remote_log import CycleTotals
from tests.unit.app.partition_rows import segment_row

GB = 10**9
TOTALS = CycleTotals(
    partitions=4,
    copy_started_segments=1,
    copy_started_bytes=GB,
    copy_finished_segments=90,
    copy_finished_bytes=90 * GB,
    delete_started_segments=10,
    delete_started_bytes=10 * GB,
    delete_finished_segments=0,
    delete_finished_bytes=0,
    illegal_events=0,
)
PRICES = Prices(storage_gb_month=2.0, puts_1000=5.0, egress_gb=0.5)


def test_what_is_kept_is_paid_for_until_its_deletion_has_ended() -> None:
    assert remote_cost.storage(TOTALS, PRICES) == 200.0


def test_a_day_s_copies_make_a_month_s_writes_and_less_time_is_taken_as_it_is() -> None:
    assert remote_cost.requests(FinishedCopies(100, DAY_MS), PRICES) == 100 * 30 * 6 / 1000 * 5.0
    assert remote_cost.requests(FinishedCopies(100, DAY_MS // 2), PRICES) == 2 * 100 * 30 * 6 / 1000 * 5.0
    assert remote_cost.requests(FinishedCopies(0, 0), PRICES) == 0


def test_the_card_tells_each_line_and_what_nobody_tells() -> None:
    outside = JudgedSegment(segment_row(0, 100, segment_size_bytes=GB), LineageStanding.OUTSIDE)
    inside = JudgedSegment(segment_row(0, 100, segment_size_bytes=GB), LineageStanding.IN_LINEAGE)
    lines = dict(remote_cost.pairs(TOTALS, FinishedCopies(100, DAY_MS), [outside, inside], 4 * GB, PRICES))
    assert lines["Storage"] == "$200 / month"
    assert lines["Outside lineage, of those listed"] == "$2.00 / month"
    assert lines["Fetched since the brokers' start"] == "4.0 GB · $2.00"
    unknown = dict(remote_cost.pairs(TOTALS, FinishedCopies(0, DAY_MS), [], None, Prices()))
    assert unknown["Fetched since the brokers' start"] == "? no broker tells it"


def test_amounts_keep_their_cents_while_they_are_small() -> None:
    assert [remote_cost.money(amount) for amount in (0, 0.001, 0.14, 41.2, 5023.4)] == [
        "$0.00",
        "under $0.01",
        "$0.14",
        "$41.20",
        "$5\u202f023",
    ]
