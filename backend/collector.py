"""When Python's garbage collector looks for cycles: in the processes that hold or read very many rows."""

from __future__ import annotations

from typing import Final

# Nearly all goes by counts of references, only cycles wait for the collector. Python's 700 let it walk everything that
# thousands of partitions are made of several times a round of the observer: a third of such a cluster's CPU at rest.
# What waits is at most 100,000 containers before the middle generation is looked through: some 20 MB.
GC_THRESHOLDS: Final = (10_000, 10, 10)

# For processes that store batches of records: a transaction of 20,000 makes some 120,000 containers, which go by counts
# of references when it ends, and the collector walked through all of them several times. What waits: 40 MB.
GC_THRESHOLDS_OF_BATCHES: Final = (200_000, 10, 10)
