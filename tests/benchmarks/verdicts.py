"""The target of a row of the benchmark, and whether it is met. Pure: figures in, words out."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MET, MISSED, NOT_MEASURED, NONE = "met", "missed", "not measured", ""
# A limit in the name of a figure that is measured on ebbline alone: an upper one unless it says otherwise.
_TARGET: Final = re.compile(r"\(target: (at least )?([\d.]+)\)")


@dataclass(frozen=True, slots=True)
class Target:
    """The target: a ratio to Apache Kafka, a figure of ebbline's own, or both; at least so much where higher is
    better, at most so much elsewhere.
    """

    ratio: float | None = None
    own: float | None = None
    higher_is_better: bool = True

    def __str__(self) -> str:
        bound = ">=" if self.higher_is_better else "<="
        parts = [f"{bound} {self.ratio:g}x"] if self.ratio is not None else []
        parts += [f"{bound} {self.own:,g}"] if self.own is not None else []
        return " and ".join(parts)

    def verdict(self, ours: Sequence[float], theirs: Sequence[float]) -> str:
        """Of the medians. A missed half is a miss, whatever the other is; a half without figures is not measured."""
        if self.ratio is None and self.own is None:
            return NONE
        if not ours:
            return NOT_MEASURED
        mine = statistics.median(ours)
        halves: list[bool | None] = []
        if self.own is not None:
            halves.append(self._reached(mine, self.own))
        if self.ratio is not None:
            halves.append(self._reached(mine / statistics.median(theirs), self.ratio) if theirs else None)
        if False in halves:
            return MISSED
        return NOT_MEASURED if None in halves else MET

    def _reached(self, value: float, bound: float) -> bool:
        return value >= bound if self.higher_is_better else value <= bound


NO_TARGET: Final = Target()


def target_alone(name: str) -> str:
    """The limit that a figure's name tells, or nothing."""
    match = _TARGET.search(name)
    return "" if match is None else f"{'>=' if match[1] else '<='} {match[2]}"


def verdict_alone(name: str, value: float) -> str:
    """Whether a figure is within the limit that its name tells."""
    match = _TARGET.search(name)
    if match is None:
        return NONE
    limit = float(match[2])
    return MET if (value >= limit if match[1] else value <= limit) else MISSED
