"""How often to look: the watch over a large cluster must not become its load.

A replica costs some 0.15 ms of CPU a round, for both sides and the database together, a topic's settings 0.4 ms a look.
With the intervals below a large cluster takes some 3 % of a core for its samples and 0.7 % for its settings, however
large it is: 6,000 replicas of 1,000 topics are sampled every 30 s, and all settings every 60 s.
"""

from __future__ import annotations

from typing import Final

MS_PER_REPLICA: Final = 5
SETTINGS_INTERVAL_MS: Final = 10_000
SETTINGS_MS_PER_TOPIC: Final = 60


def round_interval_ms(wanted_ms: int, replicas: int) -> int:
    """Between two rounds: what is set, or more when the cluster has more replicas than fit."""
    return max(wanted_ms, replicas * MS_PER_REPLICA)


def settings_interval_ms(topics: int) -> int:
    """Between two looks at all settings; one that follows a change of ours does not wait."""
    return max(SETTINGS_INTERVAL_MS, topics * SETTINGS_MS_PER_TOPIC)
