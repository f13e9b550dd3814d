"""Breaks of a line: between samples so far apart that some must have been missed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from backend.store.history.sample_retention import TIERS

T = TypeVar("T")
# A round or two may be late on a busy machine; that is no gap.
GAP_INTERVALS: Final = 3
GAP_MS_MIN: Final = 60_000


def gaps(at_ms: Sequence[int], interval_ms: int, spacing_ms: int = 0) -> frozenset[int]:
    """Indices of the samples that come after a gap; ``at_ms`` rises, its last is taken for now.

    A gap is longer than three sample intervals and longer than a minute. Where samples are kept at a wider
    ``spacing_ms``, or retention has thinned them with their age, it is also longer than two of those distances.
    """
    indexes = set()
    for index in range(1, len(at_ms)):
        age_ms = at_ms[-1] - at_ms[index - 1]
        spacing = max((spacing_ms, *(tier.every_ms for tier in TIERS if age_ms > tier.after_ms)))
        if at_ms[index] - at_ms[index - 1] > max(GAP_INTERVALS * interval_ms, GAP_MS_MIN, 2 * spacing):
            indexes.add(index)
    return frozenset(indexes)


def broken(values: Sequence[T], before: frozenset[int], missing: T) -> list[T]:
    """``values`` with ``missing`` put where the gaps are, so that no line crosses them."""
    drawn: list[T] = []
    for index, value in enumerate(values):
        if index in before:
            drawn.append(missing)
        drawn.append(value)
    return drawn


def broken_times(at_ms: Sequence[int], before: frozenset[int]) -> list[int]:
    """Times for :func:`broken` values: those of a gap lie in its middle."""
    drawn: list[int] = []
    for index, moment in enumerate(at_ms):
        if index in before:
            drawn.append((at_ms[index - 1] + moment) // 2)
        drawn.append(moment)
    return drawn
