"""An axis of offsets in percent of its width: where things go, which ticks, which labels beside which. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from app.components.shared import format as fmt

TICKS_MAX: Final = 7
# As many as a partition has offsets to mark: at worst each label needs a separate level.
LEVELS: Final = 5
RIGHT_UNTIL_PERCENT: Final = 85.0
# Labels are placed for a plot of this width; below the width of a tablet they become a list.
PLOT_PX: Final = 1000
CHAR_PX: Final = 6.6
LABEL_GAP_PX: Final = 14
EDGE_PX: Final = 4


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
class OffsetMarker:
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
    """The place of a marker's label; level 0 is next to the plot."""

    marker: OffsetMarker
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


def place(markers: Iterable[OffsetMarker], axis: Axis) -> list[Placed]:
    """A place for each label: never on another, not on another's line if there is room, at last on the top level."""
    placed: list[Placed] = []
    for marker in markers:
        percent = axis.percent(marker.offset)
        wants_left = marker.left or percent > RIGHT_UNTIL_PERCENT
        places = [
            Placed(marker, percent, level, left) for level in range(LEVELS) for left in (wants_left, not wants_left)
        ]
        free = [
            candidate
            for candidate in places
            if _inside(candidate) and not any(_covers(candidate, other) for other in placed)
        ]
        clear = [
            candidate
            for candidate in free
            if not any(_crosses(candidate, other) or _crosses(other, candidate) for other in placed)
        ]
        placed.append(next(iter(clear or free or places[-2:])))
    return placed


def _line_px(label: Placed) -> float:
    return label.percent / 100 * PLOT_PX


def _interval(label: Placed) -> tuple[float, float]:
    at_px, width = _line_px(label), label.marker.width_px
    return (at_px - width, at_px) if label.left else (at_px, at_px + width)


def _inside(label: Placed) -> bool:
    low, high = _interval(label)
    return low >= 0 and high <= PLOT_PX


def _covers(label: Placed, other: Placed) -> bool:
    """Both labels are on one level and too close; at two sides of nearly one line they are not."""
    if label.level != other.level:
        return False
    (low, high), (other_low, other_high) = _interval(label), _interval(other)
    gap = 0 if label.left != other.left and abs(_line_px(label) - _line_px(other)) < LABEL_GAP_PX else LABEL_GAP_PX
    return low < other_high + gap and other_low < high + gap


def _crosses(upper: Placed, lower: Placed) -> bool:
    """The line up to the one label goes through the other; along its edge is no harm."""
    low, high = _interval(lower)
    return upper.level > lower.level and low + EDGE_PX < _line_px(upper) < high - EDGE_PX
