"""The time of day in Kafka's unit. The control plane's decisions get it as an argument; its loops ask here."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
