"""Sizes of the parts of the bootstrap race's topic. Pure.

The flag of KIP-1023 matters only where the leader's local log starts above 0, so the topic gets a beginning that is in
the remote tier alone; of the leader's local log a given share is copied to the remote tier as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# A share is made of whole segments, 5 % of the local log each. Kafka's smallest segment is 1 MiB.
SEGMENTS: Final = 20
PERCENT_STEP: Final = 100 // SEGMENTS
PERCENT_MIN: Final = PERCENT_STEP
PERCENT_MAX: Final = 100 - PERCENT_STEP
SIZE_BYTES_MIN: Final = SEGMENTS << 20
# At the 30 MB/s that a small machine produces and copies, 10 GB take six minutes.
SIZE_BYTES_MAX: Final = 10_000_000_000
HEAD_SEGMENTS: Final = 2
# Content of the active segment while the closed ones are awaited, in hundredths of a segment.
SLACK_PERCENT: Final = 10
# A segment closes up to one batch early: 20 segments of 64 batches leave at most a third of a segment over.
BATCHES_PER_SEGMENT: Final = 64
BATCH_BYTES_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class BootstrapPlan:
    """Bytes to produce one after the other; `segment_bytes` is the topic's setting."""

    size_bytes: int
    tiered_percent: int

    @property
    def segment_bytes(self) -> int:
        return self.size_bytes // SEGMENTS

    @property
    def batch_bytes(self) -> int:
        return min(BATCH_BYTES_MAX, self.segment_bytes // BATCHES_PER_SEGMENT)

    @property
    def slack_bytes(self) -> int:
        return self.segment_bytes * SLACK_PERCENT // 100

    @property
    def head_bytes(self) -> int:
        """Bytes that become remote only, and the beginning of the next segment."""
        return HEAD_SEGMENTS * self.segment_bytes + self.slack_bytes

    @property
    def tiered_bytes(self) -> int:
        """Then what is copied and stays local too."""
        return self.size_bytes * self.tiered_percent // 100

    @property
    def rest_bytes(self) -> int:
        """At last what is on the leader only."""
        return self.size_bytes - self.tiered_bytes - self.slack_bytes

    @property
    def total_bytes(self) -> int:
        """Everything that is produced."""
        return self.head_bytes + self.tiered_bytes + self.rest_bytes

    @property
    def disk_bytes(self) -> int:
        """The most that lies on this machine at once.

        The leader's log, the remote copy, and two replicas: the files of the first one are removed a minute after it.
        """
        return 2 * self.total_bytes + 2 * self.size_bytes


def refusal(size_bytes: int, tiered_percent: int) -> str | None:
    """Why no race can be run with these numbers; one sentence."""
    if not SIZE_BYTES_MIN <= size_bytes <= SIZE_BYTES_MAX:
        return f"The size is between {SIZE_BYTES_MIN} and {SIZE_BYTES_MAX} bytes, not {size_bytes}."
    if not PERCENT_MIN <= tiered_percent <= PERCENT_MAX or tiered_percent % PERCENT_STEP:
        return (
            f"The tiered share is {PERCENT_MIN} to {PERCENT_MAX} % in steps of {PERCENT_STEP},"
            f" because it is made of whole segments, not {tiered_percent} %."
        )
    return None
