"""How often to look: the watch over a large cluster must not become its load.

A partition costs some 0.2 ms of CPU a round, for both sides and the database together, each of its replicas 0.02 ms
more, a topic's settings 0.4 ms a look. With the intervals below a large cluster takes some 2 % of a core for its
samples and 0.7 % for its settings, however large it is: 6,000 partitions of 1,000 topics are sampled every 78 s with
one replica each and every 90 s with three, and all settings every 60 s.
"""

from __future__ import annotations

from typing import Final

MS_PER_PARTITION: Final = 12
MS_PER_REPLICA: Final = 1
SETTINGS_INTERVAL_MS: Final = 10_000
SETTINGS_MS_PER_TOPIC: Final = 60


def round_interval_ms(wanted_ms: int, partitions: int, replicas: int) -> int:
    """Between two rounds: what is set, or more when the cluster has more partitions and replicas than fit."""
    return max(wanted_ms, partitions * MS_PER_PARTITION + replicas * MS_PER_REPLICA)


def settings_interval_ms(topics: int) -> int:
    """Between two looks at all settings; one that follows a change of ours does not wait."""
    return max(SETTINGS_INTERVAL_MS, topics * SETTINGS_MS_PER_TOPIC)
