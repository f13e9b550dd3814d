"""The offsets of one partition's log but its end, which is `LocalLog`'s.

The offsets of a tiered log, and the ranges between them (KIP-405). "Pending upload" begins behind the highest remote
offset and is on local disks alone.

    log start          local start         highest remote     high watermark    log end
        |---------- remote only ------------|                       |              |
        |------------------- tiered ------------------|             |              |
                            |---------------------- local ------------------------|
                                                      |------ pending upload ------|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

NO_REMOTE_OFFSET: Final = -1


class LogOffsets:
    """Values and the way each may move. Others read the values and call a method to move one.

    The caller sees to leader epochs, producers and listeners after a move.

    Invariant: log start <= local log start, log start <= high watermark <= log end.
    """

    __slots__ = ("_on_high_watermark", "high_watermark", "highest_remote", "local_log_start", "log_start")

    def __init__(self, log_start: int, local_log_start: int, on_high_watermark: Callable[[], None]) -> None:
        """`on_high_watermark` is called with every new one."""
        # First offset of the partition, remote part included.
        self.log_start = log_start
        # First offset on the local disk, as far as the log is tiered.
        self.local_log_start = local_log_start
        self.high_watermark = log_start
        # Last offset known to be in the remote tier; never persisted.
        self.highest_remote = NO_REMOTE_OFFSET
        self._on_high_watermark = on_high_watermark

    def move_high_watermark(self, offset: int, log_end: int) -> bool:
        """Sets it, moved into `[log start, log end]`; True when it changed. May lower it."""
        clamped = min(max(offset, self.log_start), log_end)
        if clamped == self.high_watermark:
            return False
        self._set_high_watermark(clamped)
        return True

    def _set_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        self._on_high_watermark()

    def move_log_start(self, offset: int) -> None:
        """Raises it. Local start moves with it."""
        self.log_start = offset
        self.local_log_start = max(self.local_log_start, offset)

    def move_local_log_start(self, offset: int) -> None:
        """Raises local start alone: the log is tiered."""
        self.local_log_start = offset

    def move_highest_remote(self, offset: int) -> None:
        """Only moves up; a truncation below it takes it back."""
        self.highest_remote = max(self.highest_remote, offset)

    def forget_highest_remote(self) -> None:
        """No copy counts any more."""
        self.highest_remote = NO_REMOTE_OFFSET

    def truncate(self, end_offset: int) -> None:
        """The log ends here now. Copies from here on belong to another history: other records may come, and those are
        not copied yet.
        """
        self.highest_remote = min(self.highest_remote, end_offset - 1)
        self.log_start = min(self.log_start, end_offset)
        self.local_log_start = min(self.local_log_start, end_offset)

    def start_over(self, offset: int, log_start: int) -> None:
        """Nothing local is left; the log goes on at `offset`."""
        self.highest_remote = min(self.highest_remote, offset - 1)
        self.log_start = log_start
        self.local_log_start = offset
        self._set_high_watermark(offset)

    def take_over(self, other: LogOffsets, first_local: int) -> None:
        """Becomes those of a log with the same records, whose local part begins at `first_local` here."""
        self.log_start = other.log_start
        self.local_log_start = max(other.local_log_start, first_local)
        self.high_watermark, self.highest_remote = other.high_watermark, other.highest_remote
