"""The offsets of one replica of a tiered partition, the ranges they bound and what must hold between them (KIP-405).

log start          local start         highest remote     high watermark    log end
    |---------- remote only ------------|                       |              |
    |------------------- tiered ------------------|             |              |
                        |---------------------- local ------------------------|
                                                  |------ pending upload ------|
"""

from dataclasses import dataclass
from typing import Final

from backend.tiering.ids import OffsetRange

UNKNOWN: Final = -1
"""Kafka's "no such offset": nothing is tiered, or this replica does not know yet (it starts without knowing)."""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Offsets of one replica at one moment. `highest_remote` is inclusive, as Kafka keeps it; ranges are half-open."""

    log_start: int
    local_start: int
    high_watermark: int
    log_end: int
    highest_remote: int = UNKNOWN

    @property
    def local(self) -> OffsetRange:
        """Offsets that this replica has on its disk."""
        return OffsetRange(self.local_start, self.log_end)

    @property
    def remote_only(self) -> OffsetRange:
        """Offsets that can be read from the remote tier alone."""
        return OffsetRange(self.log_start, self.local_start)

    @property
    def tiered(self) -> OffsetRange:
        """Offsets of the remote tier as far as this replica knows; empty when nothing is known."""
        return OffsetRange(self.log_start, max(self.log_start, self.highest_remote + 1))

    @property
    def both(self) -> OffsetRange:
        """Offsets on disk and in the remote tier: local data that retention may drop."""
        start = max(self.log_start, self.local_start)
        return OffsetRange(start, max(start, self.highest_remote + 1))

    @property
    def pending_upload(self) -> OffsetRange:
        """Offsets that only local disks have; empty when this replica does not know where it begins."""
        start = self.earliest_pending_upload
        return (
            OffsetRange(self.log_end, self.log_end)
            if start == UNKNOWN
            else OffsetRange(start, max(start, self.log_end))
        )

    @property
    def earliest_pending_upload(self) -> int:
        """First offset that is not tiered (KIP-1023, ListOffsets -6 as the log has it); UNKNOWN until that is known."""
        if self.highest_remote == UNKNOWN:
            return self.log_start if self.local_start == self.log_start else UNKNOWN
        return max(self.highest_remote + 1, self.log_start)

    def check(self) -> None:
        """Raises AssertionError when the offsets contradict each other: our own fault, never a peer's."""
        assert self.log_start >= 0, self
        assert self.log_start <= self.local_start, self
        assert self.local_start <= self.high_watermark, self
        assert self.high_watermark <= self.log_end, self
        assert self.highest_remote >= UNKNOWN, self
