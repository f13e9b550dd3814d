"""The leader epochs of a partition and where each starts (KIP-101; `LeaderEpochFileCache` of Kafka).

Covers the whole log, the remote part included: deleting local segments never removes an entry. Entries are written to
`leader-epoch-checkpoint` at every change by an atomic rename; they reach the device when the log is flushed, before the
recovery point moves past them. Entries that a power failure may lose lie at or past the recovery point, where recovery
finds them in the batches.

The epoch of a new leader is the exception: it is written before its first record is. Until then nobody can have a
record of it, and the next leader's takes its place. A broker that comes to lead thousands of idle partitions writes
nothing for them, and learns of a disk that has failed when there is something to write.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Final

from backend.engine.log.checkpoint_files import encode_epochs

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class LeaderEpochCache:
    """Ascending (epoch, start offset) entries. `save` receives the checkpoint's bytes after a change."""

    __slots__ = ("_dirty", "_epochs", "_save", "_saved", "_starts", "begun")

    def __init__(self, entries: Iterable[tuple[int, int]] = (), save: Callable[[bytes], None] | None = None) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._save = save
        # Whether the file holds changes that have not been synced to the device.
        self._dirty = False
        # Whether the file has what is here, but for an epoch that has begun.
        self._saved = True
        # The latest epoch is to be written before its first record is.
        self.begun = False
        for epoch, start in entries:
            self._insert(epoch, start)

    def save_with(self, save: Callable[[bytes], None]) -> None:
        """From now on changes go there: the log has moved."""
        self._save = save

    def take_dirty(self) -> bool:
        """Whether the file holds changes that the device has not; the caller syncs it."""
        dirty, self._dirty = self._dirty, False
        return dirty

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, start offset) pairs, ascending."""
        return tuple(zip(self._epochs, self._starts, strict=True))

    @property
    def is_empty(self) -> bool:
        return not self._epochs

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    @property
    def earliest_entry(self) -> tuple[int, int] | None:
        return (self._epochs[0], self._starts[0]) if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes that `epoch` starts at `start_offset`; True when that changed anything.

        Ignored when the latest entry has the same epoch and does not start later. Entries with an epoch or a start at
        or past the new one give way.
        """
        if not self._insert(epoch, start_offset):
            return False
        self._changed()
        return True

    def begin(self, epoch: int, start_offset: int) -> None:
        """As :meth:`assign` for a leader that has no record yet: :meth:`save_begun` is due before the first one."""
        if self._insert(epoch, start_offset):
            self.begun = True

    def save_begun(self) -> None:
        """Writes what has begun."""
        self._changed()

    def assign_all(self, entries: Iterable[tuple[int, int]]) -> None:
        """:meth:`assign` for many entries with one write (used when the cache is rebuilt from the remote tier)."""
        changed = [self._insert(epoch, start) for epoch, start in entries]
        if any(changed):
            self._changed()

    def prepend(self, entries: Iterable[tuple[int, int]]) -> None:
        """Adds what lies before the first entry; where the two do not agree, what is here wins."""
        together = LeaderEpochCache((*entries, *self.entries))
        if together.entries != self.entries:
            self._epochs, self._starts = together._epochs, together._starts
            self._changed()

    def _insert(self, epoch: int, start: int) -> bool:
        if epoch < 0 or start < 0:
            raise ValueError(f"leader epoch {epoch} with start offset {start} cannot be; both start at 0")
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and start >= starts[-1]:
            return False
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start)
        return True

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which an offset was written; None below the first entry."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else None

    def previous_epoch(self, epoch: int) -> int | None:
        """The greatest epoch below the one given."""
        at = bisect_left(self._epochs, epoch) - 1
        return self._epochs[at] if at >= 0 else None

    def next_epoch(self, epoch: int) -> int | None:
        """The smallest epoch above the one given."""
        at = bisect_right(self._epochs, epoch)
        return self._epochs[at] if at < len(self._epochs) else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset, excluded) of the greatest epoch <= the one asked for.

        (-1, -1) when undefined (KIP-279).
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if above == 0:
            return epoch, self._starts[0]
        return self._epochs[above - 1], self._starts[above]

    def epoch_of_last_record(self, log_end_offset: int) -> int:
        """Leader epoch of the last record of a log with this end, -1 when there was none.

        An epoch that has begun without a record does not count.
        """
        if log_end_offset == 0:
            return UNDEFINED_EPOCH
        epoch = self.epoch_for_offset(log_end_offset - 1)
        if epoch is None and self._epochs:
            # All records are deleted; what is left of the entries says in which epoch the last one was written.
            return self._epochs[0]
        return UNDEFINED_EPOCH if epoch is None else epoch

    def entries_in_range(self, start_offset: int, end_offset: int) -> tuple[tuple[int, int], ...]:
        """The entries of `[start_offset, end_offset)` as a segment carries them: the first one raised to the start.

        A negative `start_offset` keeps every entry from the first (KIP-405's leader epoch index).
        """
        copy = LeaderEpochCache(self.entries)
        if start_offset >= 0:
            copy._drop_start(start_offset)
        copy._drop_end(end_offset)
        return copy.entries

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes entries that start at or past `end_offset`."""
        if end_offset < 0:
            return
        unwritten = self.begun and bisect_left(self._starts, end_offset) == len(self._starts) - 1
        if not self._drop_end(end_offset):
            return
        if unwritten:
            self.begun = False  # the file has never had it
        else:
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes entries that start at or before `start_offset`, keeping its epoch with that start."""
        if self._drop_start(start_offset):
            self._changed()

    def _drop_end(self, end_offset: int) -> bool:
        at = bisect_left(self._starts, end_offset)
        if at == len(self._starts):
            return False
        del self._epochs[at:]
        del self._starts[at:]
        return True

    def _drop_start(self, start_offset: int) -> bool:
        at = bisect_right(self._starts, start_offset)
        if at == 0 or (at == 1 and self._starts[0] == start_offset):
            return False
        kept = self._epochs[at - 1]
        del self._epochs[: at - 1]
        del self._starts[: at - 1]
        self._epochs[0], self._starts[0] = kept, start_offset
        return True

    def clear(self) -> None:
        """Forgets everything (the log was replaced)."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._changed()

    def encode(self) -> bytes:
        """The bytes of `leader-epoch-checkpoint`."""
        return encode_epochs(self.entries)

    def save_again(self) -> None:
        """Writes the file if it could not be written when something changed."""
        if not self._saved:
            self._changed()

    def _changed(self) -> None:
        self._dirty, self._saved = True, False
        if self._save is not None:
            self._save(self.encode())
        self._saved, self.begun = True, False
