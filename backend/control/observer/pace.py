"""How often to look: the watch over a large cluster must not become its load.

6,000 replicas of 1,000 topics, sampled every 2 s, took half a core for both sides together, measured on a busy machine.
With the intervals below they are sampled every 12 s, and all settings every 20 s.
"""

from __future__ import annotations

from typing import Final

MS_PER_REPLICA: Final = 2
SETTINGS_INTERVAL_MS: Final = 10_000
SETTINGS_MS_PER_TOPIC: Final = 20


def round_interval_ms(wanted_ms: int, replicas: int) -> int:
    """Between two rounds: what is set, or more when the cluster has more replicas than fit."""
    return max(wanted_ms, replicas * MS_PER_REPLICA)


def settings_interval_ms(topics: int) -> int:
    """Between two looks at all settings; one that follows a change of ours does not wait."""
    return max(SETTINGS_INTERVAL_MS, topics * SETTINGS_MS_PER_TOPIC)
