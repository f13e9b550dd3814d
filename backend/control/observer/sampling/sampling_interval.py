"""The sampling interval: watching a large cluster must not become its load.

Measured, for both sides and the database together: a round over 6,000 partitions with three replicas each, on a process
per broker, takes 1.2 s of CPU while nothing happens there, and 2.5 s when all of it is new. With the intervals below
these partitions are sampled every 90 s, with one replica each every 78 s, and all settings every 60 s. Between two such
rounds the offsets of those that move are listed, here every 12 s.
"""

from __future__ import annotations

from typing import Final

MS_PER_PARTITION: Final = 12
MS_PER_REPLICA: Final = 1
# Metadata and DescribeLogDirs of all: every 20 s of 10,000 partitions.
MS_PER_STATE: Final = 2
# With the jitter of 10 % and a round that takes 3 s, offsets that move are 30 s old at most. From 12,000 partitions on
# that is more often than the 2 ms: decoded and compared, the states of 10,000 x 3 take some 0.1 s of a core, and so
# those of 50,000 every 24 s take 2 %.
MOVING_INTERVAL_MS_MAX: Final = 24_000
SETTINGS_INTERVAL_MS: Final = 10_000
SETTINGS_MS_PER_TOPIC: Final = 60
# A new topic is to be seen soon. Where topics never cease to come and go sampling costs this many times as much.
SOONER: Final = 4


def round_interval_ms(wanted_ms: int, partitions: int, replicas: int) -> int:
    """Between two rounds: what is set, or more when the cluster has more partitions and replicas than fit."""
    return max(wanted_ms, partitions * MS_PER_PARTITION + replicas * MS_PER_REPLICA)


def moving_interval_ms(wanted_ms: int, partitions: int) -> int:
    """Between two rounds that list the offsets of moving partitions only; what is set may be more than the limit."""
    return max(wanted_ms, min(MOVING_INTERVAL_MS_MAX, partitions * MS_PER_STATE))


class SamplingInterval:
    """The pause before the next round: the interval, or a part of it when topics have just come or gone."""

    def __init__(self, wanted_ms: int) -> None:
        self._wanted_ms = wanted_ms
        self._topics: frozenset[bytes] | None = None
        self._sooner = False

    def interval_ms(self, partitions: int, replicas: int) -> int:
        """The interval for a cluster of that size."""
        return round_interval_ms(self._wanted_ms, partitions, replicas)

    def moving_ms(self, partitions: int) -> int:
        """Between two rounds, whole or not, of a cluster whose brokers tell the sizes of their logs."""
        return moving_interval_ms(self._wanted_ms, partitions)

    def observe_topics(self, topics: frozenset[bytes]) -> None:
        """The ids of the topics that a round has found."""
        self._sooner = self._topics is not None and topics != self._topics
        self._topics = topics

    def next_ms(self, interval_ms: int) -> int:
        """The pause now. The one after it is the interval again, unless another round sees topics come or go."""
        sooner, self._sooner = self._sooner, False
        return min(interval_ms, max(self._wanted_ms, interval_ms // SOONER)) if sooner else interval_ms


def settings_interval_ms(topics: int) -> int:
    """Between two readings of all settings; one that follows a change of ours does not wait."""
    return max(SETTINGS_INTERVAL_MS, topics * SETTINGS_MS_PER_TOPIC)
