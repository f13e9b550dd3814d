"""Disks over time: fill rates of the last half hour, one point a minute; log directories of silent brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from backend.store.queries.overview import BrokerRow

WINDOW_MS: Final = 1_800_000
POINT_MS: Final = 60_000
# A rate of less time than this is a burst, not a rate.
SPAN_MS_MIN: Final = 600_000
Volume = tuple[int, str]
"""(broker id, path)."""
DiskHistory = Mapping[Volume, tuple[tuple[int, int], ...]]
"""(time, used bytes) per volume, oldest first; 31 points at most."""


def remember(history: DiskHistory, brokers: Iterable[BrokerRow], at_ms: int) -> DiskHistory:
    """The history with this round; volumes that are not there any more are forgotten."""
    result: dict[Volume, tuple[tuple[int, int], ...]] = {}
    for broker in brokers:
        for directory in broker.log_dirs or []:
            volume = broker.broker_id, str(directory.get("path"))
            points = history.get(volume, ())
            total, usable = directory.get("total_bytes"), directory.get("usable_bytes")
            if (
                total is not None
                and usable is not None
                and broker.reachable
                and (not points or at_ms - points[-1][0] >= POINT_MS)
            ):
                points = (*points, (at_ms, total - usable))
            result[volume] = tuple(point for point in points if at_ms - point[0] <= WINDOW_MS)
    return result


LogDirs = Mapping[int, list[dict[str, Any]]]
"""Log directories of each broker, as of its last response."""


def remember_log_dirs(before: LogDirs, brokers: Iterable[BrokerRow]) -> LogDirs:
    """The newest log directories of brokers that are still registered."""
    return {
        broker.broker_id: before[broker.broker_id] if broker.log_dirs is None else broker.log_dirs
        for broker in brokers
        if broker.log_dirs is not None or broker.broker_id in before
    }


def with_last_log_dirs(brokers: Iterable[BrokerRow], last: LogDirs) -> list[BrokerRow]:
    """The brokers; a silent one has the log directories of its last response: a full disk may be why it is silent."""
    return [
        replace(broker, log_dirs=last[broker.broker_id])
        if not broker.reachable and broker.log_dirs is None and broker.broker_id in last
        else broker
        for broker in brokers
    ]


def rates(history: DiskHistory) -> dict[Volume, float]:
    """Bytes an hour by volume, for those that were watched for ten minutes."""
    result = {}
    for volume, points in history.items():
        if len(points) >= 2 and points[-1][0] - points[0][0] >= SPAN_MS_MIN:
            (first_ms, first), (last_ms, last) = points[0], points[-1]
            result[volume] = (last - first) * 3_600_000 / (last_ms - first_ms)
    return result
