"""How Python's interpreter is set in the processes that hold, read or store very many rows."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Thresholds of the garbage collector, which looks for cycles. Nearly all goes by counts of references, only cycles wait
# for the collector. Python's 700 let it walk everything that thousands of partitions are made of several times a round
# of the observer: a third of such a cluster's CPU at rest. At most 100,000 containers wait before the middle generation
# is looked through: some 20 MB.
GC_THRESHOLDS: Final = (10_000, 10, 10)
# Where batches of records are stored: 10,000 records are 30,000 containers before their transaction begins, those of
# two transactions are there at once, and the collector walked through all of them several times, a quarter of the time.
# At most 400,000 containers wait, some 80 MB.
GC_THRESHOLDS_OF_BATCHES: Final = (200_000, 2, 10)
# A thread that lets go of the interpreter's lock at each call of the system or of the database then waits this long for
# one that computes. With Python's 5 ms the brokers' loop loses seconds of a start, while the control plane is imported
# on another thread, and the thread that stores a batch the time of three statements.
SWITCH_INTERVAL_S: Final = 0.0005


@contextmanager
def tuned(thresholds: tuple[int, int, int]) -> Iterator[None]:
    """The collector with these thresholds and the short interval, for a part of a program; then as they were."""
    before, interval_s = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        sys.setswitchinterval(interval_s)
