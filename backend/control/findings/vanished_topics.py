"""Topics that are gone from the cluster's metadata, where many went at once. Pure.

One topic that is deleted is a change like others. A tenth of a cluster within a minute, or most of a small one, is an
accident, or a view that has become smaller: a proxy, another cluster behind the same address, a right that is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from backend.control.findings.thresholds import DEFAULTS, Thresholds

# So long an accident stays a finding: somebody has seen it by then, or nobody missed them.
REMEMBERED_MS: Final = 3_600_000
# One topic is somebody's work, however much of the cluster it was.
MOST_TOPICS_MIN: Final = 2
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
    lost: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    is_many: bool = False

    def next(self, present: Mapping[str, int], at_ms: int, limits: Thresholds = DEFAULTS) -> TopicMemory:
        """The memory after another look. Topics that came back, and those that went long ago, are forgotten."""
        if present == self.present and not self.lost:
            return self
        went = {name: (at_ms, count) for name, count in self.present.items() if name not in present}
        kept_ms = REMEMBERED_MS if self.is_many else limits.gone_together_s * 1000
        lost = {
            name: entry
            for name, entry in {**self.lost, **went}.items()
            if name not in present and 0 <= at_ms - entry[0] < kept_ms
        }
        is_many = bool(lost) and (self.is_many or _is_many(present, lost, limits))
        return TopicMemory(present, lost, is_many=is_many)

    @property
    def vanished(self) -> VanishedTopics | None:
        """The loss that is to be reported; None: there is none."""
        if not self.is_many:
            return None
        return VanishedTopics(
            since_ms=min(at_ms for at_ms, _ in self.lost.values()),
            topics=len(self.lost),
            partitions=sum(partitions for _, partitions in self.lost.values()),
            first=tuple(sorted(self.lost)[:NAMED_MAX]),
        )


def _is_many(present: Mapping[str, int], lost: Mapping[str, tuple[int, int]], limits: Thresholds) -> bool:
    """Whether a share of a large cluster went, or most of one of any size: by topics, or by their partitions."""
    all_topics = len(present) + len(lost)
    lost_partitions = sum(partitions for _, partitions in lost.values())
    all_partitions = sum(present.values()) + lost_partitions
    most = len(lost) > limits.gone_most_share * all_topics or lost_partitions > limits.gone_most_share * all_partitions
    return len(lost) >= max(limits.gone_topics, limits.gone_share * all_topics) or (
        most and len(lost) >= MOST_TOPICS_MIN
    )
