"""How often to look: the watch over a large cluster must not become its load.

Measured, for both sides and the database together: a round over 6,000 partitions with three replicas each, on a process
per broker, takes 2.5 s of CPU; a topic's settings 0.4 ms a look. With the intervals below these partitions are sampled
every 90 s, which is 2.8 % of a core, with one replica each every 78 s, and all settings every 60 s.
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
