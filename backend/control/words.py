"""Numbers as the product writes them: decimal bytes, grouped counts."""

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
