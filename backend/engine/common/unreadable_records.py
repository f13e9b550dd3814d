"""Records of internal topics that a broker cannot read: skipped, so that the following ones are read, and counted.

Kafka refuses such batches when they are produced, and so does this engine; logs of earlier versions may hold them, and
any record that a client writes into `__remote_log_metadata` may say what no version of the format explains.
"""

from __future__ import annotations

import logging
from typing import Final

# Lines for a partition: the 1st record, the 10th, the 100th and so on. So such records cannot fill the log.
_LINES_AT: Final = frozenset(10**power for power in range(19))

_log = logging.getLogger(__name__)


class UnreadableRecords:
    """The unreadable records of one broker since its start. Written on the loop's thread; any may read `counts`."""

    def __init__(self) -> None:
        # By topic and partition: how many, and the highest offset, behind which nothing was noted yet.
        self._counted: dict[tuple[str, int], tuple[int, int]] = {}

    def note(self, topic: str, partition: int, offset: int, reason: str, *, last_offset: int | None = None) -> None:
        """A record, or all of a batch up to `last_offset`, cannot be read. Counted once, however often it is read."""
        last = offset if last_offset is None else last_offset
        count, highest = self._counted.get((topic, partition), (0, -1))
        if last <= highest:
            return
        count += 1
        self._counted[topic, partition] = count, last
        if count in _LINES_AT:
            place = f"record {offset}" if last == offset else f"records {offset} to {last}"
            _log.warning(
                "Passed over %s of %s-%d (%d there since the start): cannot be read: %s",
                place, topic, partition, count, reason,
            )  # fmt: skip

    @property
    def counts(self) -> dict[str, int]:
        """The number by topic; a batch counts once."""
        totals: dict[str, int] = {}
        for (topic, _), (count, _) in self._counted.copy().items():
            totals[topic] = totals.get(topic, 0) + count
        return totals
