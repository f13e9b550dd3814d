"""The speed of this machine now.

A machine that is shared with others made 18 to 37 million within an hour: a figure whose target is a number, not a
ratio, says little without this one.
"""

from __future__ import annotations

import statistics
import time
from typing import Final

ADDITIONS: Final = 1_000_000
LOOKS: Final = 7


def million_additions_per_s() -> float:
    """Returns the additions per second of one core in plain Python; the median of several short runs."""
    rates = []
    for _ in range(LOOKS):
        began_s = time.perf_counter()
        total = 0
        for number in range(ADDITIONS):
            total += number
        rates.append(ADDITIONS / (time.perf_counter() - began_s) / 1e6)
    return statistics.median(rates)
