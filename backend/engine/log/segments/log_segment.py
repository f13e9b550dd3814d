"""One segment of a partition log: a `.log` file and its indexes (`LogSegment`, `FileRecords` of Kafka).

A segment is active (the last one, being appended to) or sealed. The indexes of the active segment live in memory and
are written when it is sealed or the log closes; those of a sealed segment are read when first needed. The log lets go
of the descriptor and the indexes of sealed segments that have not been read lately (:meth:`release`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import Final, NamedTuple

from backend.engine.log.log_errors import CorruptLog, DamagedIndex
from backend.engine.log.segments.offset_index import OffsetIndex
from backend.engine.log.segments.segment_files import SegmentFiles
from backend.engine.log.segments.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from backend.engine.log.segments.time_index import NO_TIMESTAMP, TimeIndex
from backend.engine.log.segments.transaction_index import AbortedTxn, decode_txn_index
from backend.engine.ports.disk import Disk
from backend.protocol.buffers import Buffer
from backend.protocol.record_batches.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, parse_header

# Base offset, length and last offset delta: what finding an offset needs of a batch header.
_SCAN: Final = Struct(">qi11xi")
# One read covers the distance between two index entries of the default interval (4096) and a header.
SCAN_BYTES: Final = 4096 + HEADER_BYTES
# Ends of recent appends whose position is known without a scan; 256 of about 100 bytes are 25 kB for an active segment.
RECENT_ENDS_MAX: Final = 256


class BatchEntry(NamedTuple):
    """A batch as far as its segment's indexes are concerned."""

    last_offset: int
    size_bytes: int
    max_timestamp: int


class BatchPosition(NamedTuple):
    """The place of a batch in the `.log` file."""

    base_offset: int
    last_offset: int
    position: int
    size_bytes: int


class LogSegment:
    """Offsets `[base_offset, next_offset)` of a partition. Not for use by several threads at once."""

    def __init__(self, disk: Disk, log_dir: str, base_offset: int, file_suffix: str = "") -> None:
        self._disk = disk
        self.files = SegmentFiles(disk, log_dir, base_offset, file_suffix)
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.sealed = False
        # Whether an index file was found to make no sense.
        self.damaged = False
        # Largest timestamp so far and the last offset of the batch that has it; None until a sealed segment is asked.
        self._max: tuple[int, int] | None = (NO_TIMESTAMP, base_offset)
        self.first_timestamp: int | None = None  # largest timestamp of the first batch: what segment.ms counts from
        self.created_ms: int | None = None  # when the first batch came
        self._offset_index: OffsetIndex | None = OffsetIndex(base_offset)
        self._time_index: TimeIndex | None = TimeIndex(base_offset)
        self._aborted: list[AbortedTxn] | None = []
        self._bytes_since_index = 0
        # The index limit under which there is room for another entry, since the last one; -1 when it is not known.
        self._room_with_bytes = -1
        self._recent_ends: dict[int, int] = {}

    # --- life

    @classmethod
    def create(cls, disk: Disk, log_dir: str, base_offset: int, file_suffix: str = "") -> LogSegment:
        """A fresh, empty, active segment; leftovers under its names are removed."""
        segment = cls(disk, log_dir, base_offset, file_suffix)
        for path in segment.files.paths:
            disk.remove(path)
        segment.files.create()
        return segment

    @classmethod
    def open_sealed(
        cls, disk: Disk, log_dir: str, base_offset: int, next_offset: int, file_suffix: str = ""
    ) -> LogSegment:
        """A segment that has a successor at `next_offset`; reads nothing but the file's size."""
        segment = cls(disk, log_dir, base_offset, file_suffix)
        segment.size_bytes = disk.size(segment.files.log_path)
        segment.next_offset = next_offset
        segment.sealed = True
        segment._forget_indexes()
        return segment

    def reset(self) -> None:
        """Empties indexes and offsets, in memory and on disk.

        The file's batches are then given to :meth:`index_recovered`.
        """
        self._offset_index, self._time_index = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        self._max, self._bytes_since_index, self.size_bytes = (NO_TIMESTAMP, self.base_offset), 0, 0
        self._aborted = []
        self._room_with_bytes = -1
        self.next_offset = self.base_offset
        self.first_timestamp = self.created_ms = None
        self.sealed = False
        for path in (self.files.offset_index_path, self.files.time_index_path, self.files.txn_index_path):
            self._disk.remove(path)

    def index_recovered(self, batches: Sequence[BatchEntry], *, index_interval_bytes: int) -> None:
        """Indexes batches that are in the file already (`LogSegment.recover`)."""
        if self.first_timestamp is None and batches:
            self.first_timestamp = batches[0].max_timestamp
        self._index(batches, index_interval_bytes)

    def start_appending(self) -> None:
        """After a load: the next batch gets no index entry, as in Kafka."""
        self._bytes_since_index = 0

    def adopt(self, offset_index: OffsetIndex, time_index: TimeIndex, *, size_bytes: int, first_timestamp: int) -> None:
        """Takes over index files that cover the file up to `size_bytes`.

        The batches behind go to :meth:`index_recovered`.
        """
        self._offset_index, self._time_index, self._aborted = offset_index, time_index, None
        self._max = time_index.last
        self._room_with_bytes = -1
        self.size_bytes = size_bytes
        self.next_offset = offset_index.last[0]
        self.first_timestamp = first_timestamp
        self.sealed = False

    def _forget_indexes(self) -> None:
        self._room_with_bytes = -1
        self._offset_index = self._time_index = self._aborted = self._max = None

    def seal(self) -> None:
        """No more appends: the time index gets its last entry, the index files get exactly their used bytes."""
        self.write_indexes()
        self.sealed = True
        self._recent_ends.clear()

    def write_indexes(self) -> None:
        """Writes the index files of an active segment, trimmed, as Kafka does at a roll and at a clean stop."""
        if self.sealed:
            return
        timestamp, offset = self.max_timestamp_and_offset
        self.time_index.maybe_append(timestamp, offset)
        self._disk.write_atomic(self.files.offset_index_path, self.offset_index.encode(), sync=False)
        self._disk.write_atomic(self.files.time_index_path, self.time_index.encode(), sync=False)

    def release(self) -> None:
        """Closes the descriptor and drops the indexes of a sealed segment; the next read opens them again."""
        self.files.close()
        if self.sealed:
            maximum = self._max
            self._forget_indexes()
            self._max = maximum

    def __repr__(self) -> str:
        return f"LogSegment({self.files.log_path}, next_offset={self.next_offset}, size_bytes={self.size_bytes})"

    # --- indexes

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            with self._index_errors():
                index = OffsetIndex.decode(self.base_offset, self._disk.read(self.files.offset_index_path))
                self._check_within(index.last[0], index.last[1])
                self._offset_index = index
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            with self._index_errors():
                index = TimeIndex.decode(self.base_offset, self._disk.read(self.files.time_index_path))
                self._check_within(index.last[1])
                self._time_index = index
        return self._time_index

    @property
    def aborted_transactions(self) -> list[AbortedTxn]:
        """The transaction index, in the order of the markers."""
        if self._aborted is None:
            with self._index_errors():
                exists = self._disk.exists(self.files.txn_index_path)
                self._aborted = decode_txn_index(self._disk.read(self.files.txn_index_path)) if exists else []
        return self._aborted

    @contextmanager
    def _index_errors(self) -> Iterator[None]:
        """An index that is missing or makes no sense is made again; nobody waits for it, since that may take long."""
        if self.damaged:
            raise DamagedIndex(self.base_offset, f"{self.files.log_path}: its indexes are being made again")
        try:
            yield
        except (ValueError, FileNotFoundError) as error:
            if not self.sealed:
                raise CorruptLog(f"{self.files.log_path}: an index cannot be used: {error}") from error
            self.damaged = True
            raise DamagedIndex(self.base_offset, f"{self.files.log_path}: an index cannot be used: {error}") from error

    def _check_within(self, offset: int, position: int = 0) -> None:
        """The last entry of an index must lie in the segment."""
        inside = self.base_offset <= offset < max(self.next_offset, self.base_offset + 1)
        if not inside or position > self.size_bytes:
            raise ValueError(f"an index leads to offset {offset} at byte {position}, outside of the segment")

    def check_index_files(self) -> None:
        """Reads the index files of a sealed segment whole, as somebody else is about to. Blocking; any thread. Raises
        DamagedIndex and OSError.
        """
        base_offset, read = self.base_offset, self._disk.read
        try:
            offsets = OffsetIndex.decode(base_offset, read(self.files.offset_index_path))
            self._check_within(*offsets.last)
            self._check_within(TimeIndex.decode(base_offset, read(self.files.time_index_path)).last[1])
            if self._disk.exists(self.files.txn_index_path):
                decode_txn_index(read(self.files.txn_index_path))
        except (ValueError, FileNotFoundError) as error:
            raise DamagedIndex(base_offset, f"{self.files.log_path}: an index cannot be used: {error}") from error

    def forget_damage(self) -> None:
        """The index files of a sealed segment have been made again: they are read when they are next needed."""
        self.damaged = False
        self._forget_indexes()

    @property
    def known_without_aborted(self) -> bool:
        """Whether the transaction index was read before and is empty. Does not read the disk."""
        return self._aborted is not None and not self._aborted

    @property
    def txn_index_empty(self) -> bool:
        return not self.aborted_transactions

    def add_aborted(self, txn: AbortedTxn) -> None:
        """Notes an aborted transaction, in memory and on disk."""
        self.aborted_transactions.append(txn)
        file = self._disk.open(self.files.txn_index_path, create=True)
        try:
            file.append((txn.encode(),))
        finally:
            file.close()

    @property
    def max_timestamp_and_offset(self) -> tuple[int, int]:
        """Largest timestamp, -1 without one, and the last offset of the batch that has it."""
        if self._max is None:
            with self._index_errors():
                self._max = self._last_of_time_index()
        return self._max

    def _last_of_time_index(self) -> tuple[int, int]:
        """Its last entry, for which of a large index only the end is read. ValueError when it cannot be one."""
        size = self._disk.size(self.files.time_index_path)
        if size < TIME_ENTRY_BYTES or self._time_index is not None:
            return self.time_index.last
        file = self._disk.open(self.files.time_index_path)
        try:
            tail_bytes = min(size, 2 * TIME_ENTRY_BYTES)
            tail = file.pread(tail_bytes, size - tail_bytes)
        finally:
            file.close()
        if size % TIME_ENTRY_BYTES:
            raise ValueError(f"the time index has {size} bytes, which is no multiple of {TIME_ENTRY_BYTES}")
        # With the entry before it, what cannot ascend is seen.
        last = TimeIndex.decode(self.base_offset, tail).last
        self._check_within(last[1])
        return last

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of the segment, -1 without one."""
        return self.max_timestamp_and_offset[0]

    @property
    def largest_timestamp(self) -> int:
        """The time that retention and the remote tier use: the largest timestamp, or the file's time without one."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._disk.modified_ms(self.files.log_path)

    @property
    def first_batch_timestamp(self) -> int:
        """Largest timestamp of the first batch, -1 without one; reads its header when it is not known."""
        if self.first_timestamp is None:
            if self.size_bytes < HEADER_BYTES:
                return NO_TIMESTAMP
            self.first_timestamp = parse_header(self.files.pread(HEADER_BYTES, 0)).max_timestamp
        return self.first_timestamp

    def is_full(self, segment_index_bytes: int) -> bool:
        """Whether an index has no room.

        An offset index holds bytes/8 entries; a time index keeps one of its bytes/12 for the roll.
        """
        if self._room_with_bytes == segment_index_bytes:
            return False
        full = (
            len(self.offset_index) >= segment_index_bytes // 8
            or len(self.time_index) >= segment_index_bytes // TIME_ENTRY_BYTES - 1
        )
        if not full:
            self._room_with_bytes = segment_index_bytes
        return full

    # --- appending

    def append(self, records: Buffer, batches: Sequence[BatchEntry], *, index_interval_bytes: int, now_ms: int) -> None:
        """Writes whole batches with one call and indexes them. On OSError nothing counts as written."""
        self.files.file.append((records,))
        if self.first_timestamp is None:
            self.first_timestamp = batches[0].max_timestamp
            self.created_ms = now_ms
        self._index(batches, index_interval_bytes)
        if len(self._recent_ends) >= RECENT_ENDS_MAX:
            self._recent_ends.clear()
        self._recent_ends[self.next_offset] = self.size_bytes

    def _index(self, batches: Sequence[BatchEntry], index_interval_bytes: int) -> None:
        position, counter = self.size_bytes, self._bytes_since_index
        maximum = self.max_timestamp_and_offset
        for last_offset, size_bytes, timestamp in batches:
            if timestamp > maximum[0]:
                maximum = (timestamp, last_offset)
            if counter > index_interval_bytes:
                self._room_with_bytes = -1
                self.offset_index.append(last_offset, position)
                self.time_index.maybe_append(*maximum)
                counter = 0
            counter += size_bytes
            position += size_bytes
        self._max = maximum
        self.size_bytes, self._bytes_since_index = position, counter
        if batches:
            self.next_offset = batches[-1].last_offset + 1

    # --- reading

    def position_of(self, offset: int) -> int:
        """Returns the position of the batch that contains the offset, or of the first one after it.

        The file's end when there is none.
        """
        if offset >= self.next_offset:
            return self.size_bytes
        recent_end = self._recent_ends.get(offset)
        if recent_end is not None:
            return recent_end
        if offset <= self.base_offset:
            return 0
        batch = self.find(offset)
        return self.size_bytes if batch is None else batch.position

    def find(self, offset: int) -> BatchPosition | None:
        """The first batch whose last offset is at or past the one given. Raises `CorruptLog` at what is no batch."""
        indexed, position = self.offset_index.lookup(offset)
        try:
            for batch in self.scan(position):
                if 0 < position == batch.position and batch.base_offset > indexed:
                    raise self._corrupt(position, f"offset {batch.base_offset} is there, the index has {indexed}")
                if batch.last_offset >= offset:
                    return batch
        except CorruptLog as error:
            if not self.sealed or not position:
                raise
            # The rebuild of the index will show which of the two is wrong.
            self.damaged = True
            raise DamagedIndex(self.base_offset, error.message) from error
        return None

    def _batch_at(self, data: bytes, at: int, position: int) -> BatchPosition:
        left = self.size_bytes - position
        if len(data) < at + _SCAN.size:
            raise self._corrupt(position, f"{left} bytes are left, less than a batch header")
        base_offset, length, delta = _SCAN.unpack_from(data, at)
        batch_bytes = length + LOG_OVERHEAD_BYTES
        if batch_bytes < HEADER_BYTES or batch_bytes > left or delta < 0 or base_offset < self.base_offset:
            raise self._corrupt(position, f"a batch of {batch_bytes} bytes at offset {base_offset} cannot be")
        return BatchPosition(base_offset, base_offset + delta, position, batch_bytes)

    def _corrupt(self, position: int, problem: str) -> CorruptLog:
        return CorruptLog(
            f"{self.files.log_path} is corrupt at byte {position}: {problem}; where other replicas exist it is copied"
            " again by itself once another leads, else restore the file"
        )

    def scan(self, position: int) -> Iterator[BatchPosition]:
        """Batches from a batch's start to the end of the file, headers only."""
        data, data_at = b"", position
        while position < self.size_bytes:
            at = position - data_at
            if at + _SCAN.size > len(data):
                data, data_at, at = self.files.pread(min(SCAN_BYTES, self.size_bytes - position), position), position, 0
            batch = self._batch_at(data, at, position)
            yield batch
            position += batch.size_bytes

    def truncate_to(self, offset: int) -> int:
        """Cuts the file before the batch that holds `offset`.

        Returns the log end: `offset`, or the batch's base when it was inside.
        """
        batch = self.find(offset)
        end = offset
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self._truncate_txns(offset)
        if batch is not None:
            self.files.file.truncate(batch.position)
            self.size_bytes = batch.position
            end = min(offset, batch.base_offset)
        self.next_offset = end
        self.sealed = False
        # Files of a time when the segment was longer: missing ones are rebuilt should we stop before they are written
        # again.
        self._disk.remove(self.files.offset_index_path)
        self._disk.remove(self.files.time_index_path)
        self._recent_ends.clear()
        self._bytes_since_index = 0
        if self.size_bytes == 0:
            self.first_timestamp = self.created_ms = None
        self._reload_max()
        return end

    def _truncate_txns(self, offset: int) -> None:
        kept = [txn for txn in self.aborted_transactions if txn.last_offset < offset]
        if len(kept) == len(self.aborted_transactions):
            return
        self._aborted = kept
        if kept:
            self._disk.write_atomic(self.files.txn_index_path, b"".join(txn.encode() for txn in kept), sync=False)
        else:
            self._disk.remove(self.files.txn_index_path)

    def _reload_max(self) -> None:
        maximum = self.time_index.last
        for batch, timestamp in self.scan_timestamps(self.offset_index.last[1]):
            if timestamp > maximum[0]:
                maximum = (timestamp, batch.last_offset)
        self._max = maximum

    def scan_timestamps(self, position: int) -> list[tuple[BatchPosition, int]]:
        """Batches from a position on with their largest timestamps."""
        batches: list[tuple[BatchPosition, int]] = []
        for batch in self.scan(position):
            timestamp = int.from_bytes(self.files.pread(8, batch.position + 35), "big", signed=True)
            batches.append((batch, timestamp))
        return batches
