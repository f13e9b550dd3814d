"""Throttles of moves: kafka-reassign-partitions sets them before a move, and takes them away when a person verifies it.

Until then they are no leftovers, for a while. Times are of a clock that nobody sets. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from backend.control.findings.finding_context import ThrottleKey, ThrottleSetting
from backend.store.writes.samples import PartitionSample

# A person who waits for a move verifies it within minutes.
VERIFIED_WITHIN_MS: Final = 600_000
# A short move has ended when all settings are read next.
SEEN_WITHIN_MS: Final = 20_000


@dataclass(frozen=True, slots=True)
class MoveThrottles:
    """`used_ms`: when a move last used a throttle; `moved_ms`: when a topic or a broker last took part in a move."""

    used_ms: Mapping[ThrottleKey, int] = field(default_factory=dict)
    moved_ms: Mapping[str | int, int] = field(default_factory=dict)

    def in_use(self, at_ms: int) -> frozenset[ThrottleKey]:
        """Throttles that a move uses, or has used a short while ago."""
        return frozenset(key for key, used_ms in self.used_ms.items() if at_ms - used_ms < VERIFIED_WITHIN_MS)


def remember_throttles(
    before: MoveThrottles, throttles: Iterable[ThrottleSetting], partitions: Iterable[PartitionSample], at_ms: int
) -> MoveThrottles:
    """The memory with this round. A throttle that is taken away is forgotten: set again it is another one."""
    moved_ms = {place: ms for place, ms in before.moved_ms.items() if at_ms - ms < SEEN_WITHIN_MS}
    for row in partitions:
        if row.adding_replicas or row.removing_replicas:
            moved_ms[row.topic] = at_ms
            moved_ms |= dict.fromkeys((*row.replicas, *row.adding_replicas, *row.removing_replicas), at_ms)
    used_ms = {}
    for throttle in throttles:
        last_ms = _moved_ms(throttle, moved_ms)
        if last_ms == at_ms or (last_ms is not None and throttle.key not in before.used_ms):
            used_ms[throttle.key] = last_ms
        else:
            used_ms[throttle.key] = before.used_ms.get(throttle.key, at_ms - VERIFIED_WITHIN_MS)
    return MoveThrottles(used_ms, moved_ms)


def _moved_ms(throttle: ThrottleSetting, moved_ms: Mapping[str | int, int]) -> int | None:
    if throttle.topic is not None:
        return moved_ms.get(throttle.topic)
    if throttle.broker_id is not None and throttle.broker_id >= 0:
        return moved_ms.get(throttle.broker_id)
    return max(moved_ms.values(), default=None)  # the default of all brokers
