"""The monthly cost of the remote tier at the prices that a person gives. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.components.partition.lineage_verdicts import JudgedSegment, LineageStanding
from app.components.shared import format as fmt
from backend.store.queries.remote_log import CycleTotals

MONTH_DAYS: Final = 30
# A segment is its log, two or three indexes, a producer snapshot and its leader epochs.
OBJECTS_A_SEGMENT: Final = 6
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Prices:
    """As object stores list them; the values here are a common list price of 2024."""

    storage_gb_month: float = 0.023
    puts_1000: float = 0.005
    egress_gb: float = 0.0


@dataclass(frozen=True, slots=True)
class FinishedCopies:
    """Segments that finished their copy within the last ``over_ms``."""

    segments: int
    over_ms: int


def storage(totals: CycleTotals, prices: Prices) -> float:
    """A month of what is kept now, what waits for its deletion included."""
    return (totals.copy_finished_bytes + totals.delete_started_bytes) / 1e9 * prices.storage_gb_month


def requests(copies: FinishedCopies, prices: Prices) -> float:
    """A month of copies at the pace of the time looked at."""
    if copies.over_ms <= 0:
        return 0.0
    a_month = copies.segments * MONTH_DAYS * DAY_MS / copies.over_ms
    return a_month * OBJECTS_A_SEGMENT / 1000 * prices.puts_1000


def outside_bytes(verdicts: Sequence[JudgedSegment]) -> int:
    """Of the listed segments that retention never sees."""
    return sum(
        verdict.segment.segment_size_bytes
        for verdict in verdicts
        if verdict.lineage_standing is LineageStanding.OUTSIDE
    )


def pairs(
    totals: CycleTotals,
    copies: FinishedCopies,
    verdicts: Sequence[JudgedSegment],
    fetched_bytes: int | None,
    prices: Prices,
) -> list[tuple[str, str]]:
    """Lines of the card; ``fetched_bytes`` None: no broker reports it."""
    outside = outside_bytes(verdicts) / 1e9 * prices.storage_gb_month
    fetched = "? no broker tells it" if fetched_bytes is None else fmt.size(fetched_bytes)
    if fetched_bytes is not None and prices.egress_gb:
        fetched += f" · {money(fetched_bytes / 1e9 * prices.egress_gb)}"
    return [
        ("Storage", f"{money(storage(totals, prices))} / month"),
        (
            f"Requests, at {fmt.count(copies.segments)} copies in {fmt.duration(copies.over_ms / 1000)}",
            f"{money(requests(copies, prices))} / month",
        ),
        ("Outside lineage, of those listed", f"{money(outside)} / month"),
        ("Fetched since the brokers' start", fetched),
    ]


def money(amount: float) -> str:
    """``$5 023``, ``$41.20``, ``$0.14``; what is less than a cent says so."""
    if 0 < amount < 0.005:
        return "under $0.01"
    return f"${fmt.count(round(amount))}" if amount >= 100 else f"${amount:.2f}"
