"""Topics that are gone from the cluster's metadata, where many went at once. Pure.

One topic that is deleted is a change like others. A tenth of a cluster within a minute is an accident, or a view that
has become smaller: a proxy, another cluster behind the same address, a right that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

VANISHED_MIN: Final = 10
VANISHED_SHARE: Final = 0.1
TOGETHER_MS: Final = 60_000
# So long an accident stays a finding: somebody has seen it by then, or nobody missed them.
REMEMBERED_MS: Final = 3_600_000
# Names that a finding shows.
NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class VanishedTopics:
    """Topics that went together and did not come back. `topics` and `partitions` count them, `first` names some."""

    since_ms: int
    topics: int
    partitions: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicMemory:
    """Partitions of each topic of now, and of those that went: when, and with how many partitions."""

    present: Mapping[str, int] = field(default_factory=dict)
    gone: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    is_many: bool = False

    def next(self, present: Mapping[str, int], at_ms: int) -> TopicMemory:
        """The memory after another look. What went and came back, and what went long ago, is forgotten."""
        if present == self.present and not self.gone:
            return self
        went = {name: (at_ms, count) for name, count in self.present.items() if name not in present}
        kept_ms = REMEMBERED_MS if self.is_many else TOGETHER_MS
        gone = {
            name: entry
            for name, entry in {**self.gone, **went}.items()
            if name not in present and 0 <= at_ms - entry[0] < kept_ms
        }
        many = max(VANISHED_MIN, VANISHED_SHARE * (len(present) + len(gone)))
        return TopicMemory(present, gone, is_many=bool(gone) and (self.is_many or len(gone) >= many))

    @property
    def vanished(self) -> VanishedTopics | None:
        """What is to be reported; None: nothing."""
        if not self.is_many:
            return None
        return VanishedTopics(
            since_ms=min(at_ms for at_ms, _ in self.gone.values()),
            topics=len(self.gone),
            partitions=sum(partitions for _, partitions in self.gone.values()),
            first=tuple(sorted(self.gone)[:NAMED_MAX]),
        )
