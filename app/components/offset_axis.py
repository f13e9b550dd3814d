"""An axis of offsets in percent of its width: where things go, which ticks, which labels beside which. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from app.components import format as fmt

TICKS_MAX: Final = 7
LEVELS: Final = 3
RIGHT_UNTIL_PERCENT: Final = 85.0
# Labels are placed for a plot of this width; below the width of a tablet they become a list.
PLOT_PX: Final = 1000
CHAR_PX: Final = 6.6
LABEL_GAP_PX: Final = 14


@dataclass(frozen=True, slots=True)
class Axis:
    """From ``start`` to ``end``, both shown; never empty."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return max(1, self.end - self.start)

    def percent(self, offset: int) -> float:
        """0 to 100; what lies outside is put on the edge."""
        return min(100.0, max(0.0, 100 * (offset - self.start) / self.length))

    def span(self, start: int, end: int) -> tuple[float, float] | None:
        """Left edge and width of ``[start, end)``; None when nothing of it is shown."""
        if end <= start or end <= self.start or start >= self.end:
            return None
        left = self.percent(start)
        return left, self.percent(end) - left


@dataclass(frozen=True, slots=True)
class Marker:
    """An offset with a name; ``value`` is how it is written, ``left``: it rather stands at the left of its line."""

    name: str
    value: str
    offset: int
    left: bool = False

    @property
    def width_px(self) -> float:
        return max(len(self.name), len(self.value)) * CHAR_PX


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a marker's label goes; level 0 is next to the plot."""

    marker: Marker
    percent: float
    level: int
    left: bool


def ticks(axis: Axis, most: int = TICKS_MAX) -> list[tuple[int, str]]:
    """Round offsets on the axis with short text, at most ``most``."""
    rough = axis.length / most
    power = 10 ** floor(log10(rough)) if rough >= 1 else 1
    step = next(int(power * factor) for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = ceil(axis.start / step) * step
    return [(value, tick_text(value, step)) for value in range(first, axis.end + 1, step)]


def tick_text(value: int, step: int) -> str:
    """``8.4 M``; in full when the step is too fine for that."""
    for limit, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= limit:
            decimals = max(0, ceil(log10(limit / step))) if step < limit else 0
            return f"{value / limit:.{decimals}f} {unit}" if decimals <= 2 else fmt.count(value)
    return fmt.count(value)


def place(markers: Iterable[Marker], axis: Axis) -> list[Placed]:
    """A place for each label so that none covers another or another's line; the last level takes what is left."""
    found: list[Placed] = []
    taken: list[list[tuple[float, float]]] = [[] for _ in range(LEVELS)]
    for marker in markers:
        percent = axis.percent(marker.offset)
        at_px = percent / 100 * PLOT_PX
        wants_left = marker.left or percent > RIGHT_UNTIL_PERCENT
        sides = (True, False) if wants_left else (False, True)
        places = [(level, left) for level in range(LEVELS) for left in sides]
        level, left = next((place for place in places if _fits(marker, at_px, *place, taken)), (LEVELS - 1, wants_left))
        taken[level].append(_interval(marker, at_px, left))
        found.append(Placed(marker, percent, level, left))
    return found


def _interval(marker: Marker, at_px: float, left: bool) -> tuple[float, float]:
    return (at_px - marker.width_px, at_px) if left else (at_px, at_px + marker.width_px)


def _fits(marker: Marker, at_px: float, level: int, left: bool, taken: Sequence[Sequence[tuple[float, float]]]) -> bool:
    low, high = _interval(marker, at_px, left)
    if low < 0 or high > PLOT_PX:
        return False
    free = all(high + LABEL_GAP_PX <= a or low >= b + LABEL_GAP_PX or high == a or low == b for a, b in taken[level])
    crossed = any(a < at_px < b for below in taken[:level] for a, b in below)
    return free and not crossed
