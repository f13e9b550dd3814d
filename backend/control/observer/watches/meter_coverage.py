"""Brokers whose own metrics are read: reads of the remote tier are seen there only. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backend.control.observer.watches.broker_numbers import BrokerNumbers

# Three readings: a page that comes late once is no loss.
SILENT_MS: Final = 45_000


@dataclass(frozen=True, slots=True)
class MeterCoverage:
    """`read_ms`: when the metrics of a broker of the cluster were last read, None: never. `before`: brokers that showed
    theirs once.
    """

    read_ms: Mapping[int, int | None] = field(default_factory=dict)
    before: frozenset[int] = frozenset()

    def facts(self, at_ms: int) -> dict[str, Any]:
        """As the heartbeat carries them: brokers without metrics, and those whose metrics have stopped, since when."""
        stopped = {i: ms for i, ms in self.read_ms.items() if ms is not None and at_ms - ms >= SILENT_MS}
        return {
            "never": sorted(i for i, ms in self.read_ms.items() if ms is None),
            "stopped": sorted(stopped),
            "since_ms": min(stopped.values(), default=None),
        }


def remember_coverage(
    last: MeterCoverage, brokers: Iterable[int], numbers: Mapping[int, BrokerNumbers], at_ms: int
) -> MeterCoverage:
    """The memory with this reading. A broker that is away shows nothing; back again it has time to."""
    read = {i for i, n in numbers.items() if n.at_ms is not None and any(v is not None for v in n.values.values())}
    before = last.before | read
    read_ms = {
        i: at_ms if i in read or (i in before and i not in last.read_ms) else last.read_ms.get(i) for i in brokers
    }
    return MeterCoverage(read_ms, before)
