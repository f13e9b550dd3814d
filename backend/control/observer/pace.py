"""How often to look: the watch over a large cluster must not become its load.

One replica costs about 160 us of CPU a round on both sides together (6,000 replicas every 2 s took half a core), the
settings of one topic about 500 us. The intervals below keep each to about a twelfth and a twentieth of a core.
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
