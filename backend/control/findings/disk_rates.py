"""Fill rates of disks: used bytes of each log directory's volume over the last half hour, one point a minute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

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


def rates(history: DiskHistory) -> dict[Volume, float]:
    """Bytes an hour by volume, for those that were watched for ten minutes."""
    result = {}
    for volume, points in history.items():
        if len(points) >= 2 and points[-1][0] - points[0][0] >= SPAN_MS_MIN:
            (first_ms, first), (last_ms, last) = points[0], points[-1]
            result[volume] = (last - first) * 3_600_000 / (last_ms - first_ms)
    return result
