"""Starts of the product's processes, holes in its samples, and partitions that came or went, as ticks. Pure.

The last start of each process is stored, and earlier ones only as holes in the samples of more than a minute. Names of
topics that were made are not stored: the samples have the number of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from app.components.cluster.activity_timeline import OWN, TICKS_MAX, TOPICS, TimelineTick
from app.components.cluster.totals import history_gaps
from app.components.shared import format as fmt
from backend.store.queries.health import ProcessHealth
from backend.store.queries.overview import ClusterSample

NAMES: Final = ("backend", "observer", "pipeline")


def starts(processes: Iterable[ProcessHealth], since_ms: int) -> list[TimelineTick]:
    """A tick for each start; processes that are one began together."""
    began: dict[int, list[str]] = {}
    for process in sorted(processes, key=lambda process: process.process):
        if process.process in NAMES and process.started_ms >= since_ms:
            began.setdefault(process.started_ms, []).append(process.process)
    return [
        TimelineTick(OWN, at_ms, None, f"{' and '.join(names).capitalize()} started") for at_ms, names in began.items()
    ]


def holes(samples: Sequence[ClusterSample], interval_ms: int, clock: Callable[[int | None], str]) -> list[TimelineTick]:
    """A tick where samples begin again: the backend was down, or reached neither cluster nor database."""
    ticks = []
    for index in sorted(history_gaps(samples, interval_ms)):
        before_ms, at_ms = samples[index - 1].sampled_ms, samples[index].sampled_ms
        lasted = fmt.duration((at_ms - before_ms) / 1000)
        ticks.append(TimelineTick(OWN, at_ms, "warning", f"No samples for {lasted}, from {clock(before_ms)} on"))
    return ticks


def partition_changes(samples: Sequence[ClusterSample]) -> list[TimelineTick]:
    """A tick where the number of partitions differs from the sample before."""
    ticks = []
    for before, after in pairwise(samples):
        more = after.partitions - before.partitions
        if more:
            text = f"{_partitions(abs(more))} {'more' if more > 0 else 'fewer'}, {fmt.count(after.partitions)} in all"
            ticks.append(TimelineTick(TOPICS, after.sampled_ms, None, text))
    return ticks[-TICKS_MAX:]


def _partitions(number: int) -> str:
    return f"{fmt.count(number)} partition{'' if number == 1 else 's'}"
