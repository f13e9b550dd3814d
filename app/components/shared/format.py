"""Text of numbers, sizes, durations and times. Groups of three by a narrow no-break space; sizes decimal."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Final

NARROW: Final = "\u202f"
UNKNOWN: Final = "?"
_SIZES: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def count(value: int | None) -> str:
    """9402911 → ``9 402 911``; None → ``?``."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", NARROW)


def size(value: float | None) -> str:
    """Decimal units, one decimal below 100, none from 100: ``31.0 GB``, ``421 GB``."""
    if value is None:
        return UNKNOWN
    amount, unit = float(value), _SIZES[0]
    for unit in _SIZES:
        # 999.5 would round up to 1000 of this unit.
        if abs(amount) < 999.5 or unit == _SIZES[-1]:
            break
        amount /= 1000.0
    if unit == "B":
        return f"{amount:.0f} B"
    return f"{amount:.1f} {unit}" if abs(amount) < 99.95 else f"{amount:.0f} {unit}"


def duration(seconds: float | None) -> str:
    """``4 s``, ``2 m 5 s``, ``2 h 55 m``, ``3 d 4 h``; below a second ``0.4 s``, then ``31 ms``."""
    if seconds is None:
        return UNKNOWN
    if 0.0005 <= seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 1:
        return f"{max(seconds, 0.0):.1f} s"
    total = round(seconds)
    for unit_s, unit, next_s, next_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if total >= unit_s:
            rest = total % unit_s // next_s
            return f"{total // unit_s} {unit} {rest} {next_unit}" if rest else f"{total // unit_s} {unit}"
    return f"{total} s"


def clock(time_ms: int | None, now_ms: int, zone: tzinfo | None = None) -> str:
    """``08:43:00``, in UTC unless ``zone`` says otherwise; with the date when it is not today's."""
    if time_ms is None:
        return UNKNOWN
    moment = datetime.fromtimestamp(time_ms / 1000, zone or UTC)
    today = datetime.fromtimestamp(now_ms / 1000, zone or UTC).date()
    return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%d %H:%M:%S")


def moment(time_ms: int, zone: tzinfo | None = None) -> str:
    """``2026-11-25 13:33:12 UTC``, with the zone's name or distance where it is another."""
    return datetime.fromtimestamp(time_ms / 1000, zone or UTC).strftime("%Y-%m-%d %H:%M:%S %Z")


def offset_range(start: int, end: int) -> str:
    """Half-open: ``[4 310 020, 4 602 119)``."""
    return f"[{count(start)}, {count(end)})"


def axis_count(value: float) -> str:
    """Short tick text: ``8.4 M``, ``120 k``, ``950``."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.0f}"
