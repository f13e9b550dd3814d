"""Text for people: decimal bytes, grouped counts, times, invalid values."""

from __future__ import annotations

from typing import Final

NARROW_SPACE: Final = "\u202f"
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def in_bytes(size_bytes: int) -> str:
    """`143 GB`, `3.9 TB`: decimal units, one decimal below 100, none from 100 on."""
    value = float(size_bytes)
    for unit in _UNITS:
        if round(value, 1) < 1000 or unit == _UNITS[-1]:
            digits = 0 if unit == "B" or value >= 99.95 else 1
            return f"{value:.{digits}f} {unit}"
        value /= 1000
    raise AssertionError("unreachable: the last unit takes everything")


def grouped(number: int) -> str:
    """`9 120 447`, with narrow no-break spaces."""
    return f"{number:,}".replace(",", NARROW_SPACE)


def describe_invalid(problem: str) -> str:
    """Pydantic's message about a value; of a validator of ours the sentence alone."""
    return problem.removeprefix("Value error, ")


def in_time(duration_ms: int) -> str:
    """`45 s`, `12 m`, `2 h 55 m`, `3 d 4 h`: the two largest units, whole."""
    seconds = max(0, duration_ms) // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if minutes == 0:
        return f"{seconds} s"
    if hours == 0:
        return f"{minutes} m" + (f" {seconds % 60} s" if minutes < 10 and seconds % 60 else "")
    if days == 0:
        return f"{hours} h" + (f" {minutes % 60} m" if minutes % 60 else "")
    return f"{days} d" + (f" {hours % 24} h" if hours % 24 else "")
