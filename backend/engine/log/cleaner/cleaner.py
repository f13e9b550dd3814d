"""One cleaning of one log, as steps for worker threads (`Cleaner` of Kafka; KIP-58, KIP-98, KIP-534).

First the dirty part is read and the last offset of each key noted, as far as the memory goes; then every segment up to
there is copied without the records that have a newer one. The cleaner reads files of sealed segments, which nobody
changes, through its own descriptors. The steps are an iterator: between two of them the driver, `log_cleaner`,
waits for the throttle, checks whether the log was truncated, and puts finished segments in place.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from backend.engine.log.cleaner.batch_filter import BatchFilter, FilterStats, LastRecord
from backend.engine.log.cleaner.cleanable_logs import GroupedSegment, group
from backend.engine.log.cleaner.cleaned_transactions import CleanedTransactions
from backend.engine.log.cleaner.offset_map import OffsetMap
from backend.engine.log.file_names import CLEANED_SUFFIX, LOG_SUFFIX, TXN_INDEX_SUFFIX, file_name
from backend.engine.log.log_config import LogConfig
from backend.engine.log.log_errors import CorruptLog
from backend.engine.log.segments.log_segment import BatchEntry, LogSegment
from backend.engine.log.segments.transaction_index import AbortedTxn, decode_txn_index, search_aborted
from backend.engine.ports.disk import Disk, File
from backend.protocol.buffers import Buffer
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.control_records import control_type
from backend.protocol.record_batches.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    crc_valid,
    iter_batches,
    iter_records,
    parse_header,
)


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """The segments to clean and the settings, as they were when the cleaning began."""

    dir: str
    config: LogConfig
    segments: tuple[GroupedSegment, ...]  # sealed, from the first one up to `first_uncleanable`
    first_dirty: int
    first_uncleanable: int
    later_aborted: tuple[AbortedTxn, ...]  # noted in segments from `first_uncleanable` on
    last_records: Mapping[int, LastRecord]
    now_ms: int


@dataclass(slots=True)
class CleanerStats:
    """Counts of one cleaning; bytes are those of the `.log` files."""

    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    buffer_utilization: float = 0.0
    elapsed_ms: int = 0
    records: FilterStats = field(default_factory=FilterStats)


@dataclass(frozen=True, slots=True)
class Moved:
    """A step read and wrote so many bytes."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A segment is complete, on the device, and takes the place of the segments with these base offsets.

    The driver puts it into the log before the next step, or closes the iterator, which removes it.
    """

    segment: LogSegment
    bases: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The log is clean below this offset."""

    end_offset: int


CleaningStep = Moved | Cleaned | Done


class Cleaner:
    """Use: one `steps` for each log; `stats` are of the last one."""

    def __init__(self, disk: Disk, *, dedupe_buffer_bytes: int, load_factor: float, io_buffer_bytes: int) -> None:
        self._disk = disk
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._load_factor = load_factor
        self._io_buffer_bytes = max(io_buffer_bytes, HEADER_BYTES)
        self.stats = CleanerStats()

    def steps(self, work: CleaningJob) -> Generator[CleaningStep]:
        """Blocking between two steps. Raises `CorruptLog`, OSError, ValueError when the memory holds no single batch.

        Closing the iterator early removes what is unfinished.
        """
        self.stats = CleanerStats()
        offsets = OffsetMap(self._dedupe_buffer_bytes, self._load_factor)
        yield from self._build_map(work, offsets)
        end = offsets.latest_offset + 1
        if end <= work.first_dirty:
            raise ValueError(
                f"the memory for keys holds {offsets.capacity}, fewer than the first dirty batch of {work.dir} has; "
                "raise log.cleaner.dedupe.buffer.size or lower log.cleaner.threads"
            )
        self.stats.buffer_utilization = offsets.utilization * self._load_factor
        keep = BatchFilter(
            offsets,
            CleanedTransactions(),
            work.last_records,
            work.now_ms,
            work.config.delete_retention_ms,
            work.first_uncleanable,
            self.stats.records,
        )
        for segments in group([s for s in work.segments if s.base_offset < end], work.config):
            yield from self._clean_group(work, segments, keep)
        yield Done(end)

    # --- the map of keys

    def _build_map(self, work: CleaningJob, offsets: OffsetMap) -> Iterator[CleaningStep]:
        transactions = CleanedTransactions()
        for segment in work.segments:
            if segment.next_offset <= work.first_dirty:
                continue
            transactions.add_aborted(self._aborted(work, segment.base_offset, segment.next_offset))
            for chunk in self._chunks(work, segment):
                for position, header in iter_batches(chunk):
                    if not self._note(header, chunk[position : position + header.size_bytes],
                                      work.first_dirty, offsets, transactions):  # fmt: skip
                        return
                self.stats.map_bytes_read += len(chunk)
                yield Moved(len(chunk))
            # Offsets may be missing at the end of a segment.
            offsets.latest_offset = max(offsets.latest_offset, segment.next_offset - 1)

    def _note(
        self, header: BatchHeader, data: memoryview, start: int, offsets: OffsetMap, transactions: CleanedTransactions
    ) -> bool:
        """Puts the keys of a batch into the map; False when it is full."""
        if not crc_valid(data, 0, header):
            raise CorruptLog(f"the CRC of the batch at offset {header.base_offset} does not match its bytes")
        try:
            if header.is_control:
                kind = next((control_type(record.key) for record in iter_records(data)), None)
                transactions.end(header, kind)
            elif not transactions.is_aborted(header):
                for record in iter_records(data):
                    if record.key is not None and record.offset >= start:
                        if offsets.is_full:
                            return False
                        offsets.put(record.key, record.offset)
        except DecodeError as error:
            raise CorruptLog(f"the batch at offset {header.base_offset} cannot be read: {error}") from None
        if header.last_offset >= start:
            offsets.latest_offset = max(offsets.latest_offset, header.last_offset)
        return True

    # --- copying

    def _clean_group(
        self, work: CleaningJob, segments: Sequence[GroupedSegment], keep: BatchFilter
    ) -> Iterator[CleaningStep]:
        base = segments[0].base_offset
        cleaned = LogSegment.create(self._disk, work.dir, base, CLEANED_SUFFIX)
        try:
            for segment in segments:
                keep.transactions.add_aborted(self._aborted(work, segment.base_offset, segment.next_offset))
                for chunk in self._chunks(work, segment):
                    written = self._copy(work, chunk, keep, cleaned)
                    self.stats.bytes_read += len(chunk)
                    self.stats.bytes_written += written
                    yield Moved(len(chunk) + written)
            self._complete(work, cleaned, segments[-1])
            yield Cleaned(cleaned, tuple(segment.base_offset for segment in segments))
        finally:
            # In the log it has other names.
            if cleaned.files.file_suffix == CLEANED_SUFFIX:
                cleaned.files.remove_files()

    def _copy(self, work: CleaningJob, chunk: memoryview, keep: BatchFilter, cleaned: LogSegment) -> int:
        parts: list[Buffer] = []
        entries: list[BatchEntry] = []
        for position, header in iter_batches(chunk):
            kept, aborted = keep.apply(header, chunk[position : position + header.size_bytes])
            if aborted is not None:
                cleaned.add_aborted(aborted)
            if kept is not None:
                parts.append(kept)
                left = parse_header(kept)
                entries.append(BatchEntry(left.last_offset, left.size_bytes, left.max_timestamp))
        if not entries:
            return 0
        data = b"".join(parts)
        interval = work.config.index_interval_bytes
        cleaned.append(data, entries, index_interval_bytes=interval, now_ms=work.now_ms)
        return len(data)

    def _complete(self, work: CleaningJob, cleaned: LogSegment, last: GroupedSegment) -> None:
        """Index files; everything reaches the device; the file's time stays that of the old segment."""
        cleaned.seal()
        cleaned.next_offset = last.next_offset
        for path in cleaned.files.paths:
            if self._disk.exists(path):
                file = self._disk.open(path)
                try:
                    file.sync()
                finally:
                    file.close()
        self._disk.sync_dir(work.dir)
        cleaned.files.close()
        modified_ms = self._disk.modified_ms(f"{work.dir}/{file_name(last.base_offset, LOG_SUFFIX)}")
        self._disk.set_modified_ms(cleaned.files.log_path, modified_ms)

    # --- reading

    def _chunks(self, work: CleaningJob, segment: GroupedSegment) -> Iterator[memoryview]:
        """The file in whole batches, about as many as the buffer holds, one at least."""
        path = f"{work.dir}/{file_name(segment.base_offset, LOG_SUFFIX)}"
        file = self._disk.open(path)
        try:
            position = 0
            while position < segment.size_bytes:
                data = self._read(file, path, position, segment.size_bytes - position)
                yield data
                position += len(data)
        finally:
            file.close()

    def _read(self, file: File, path: str, position: int, left: int) -> memoryview:
        data = file.pread(min(self._io_buffer_bytes, left), position)
        try:
            whole = _whole_batches(data)
            if not whole:
                size_bytes = parse_header(data).size_bytes
                if size_bytes > left:
                    raise DecodeError(f"a batch of {size_bytes} bytes is cut off after {left}")
                data = file.pread(size_bytes, position)
                whole = _whole_batches(data)
        except DecodeError as error:
            raise CorruptLog(f"{path} is corrupt at byte {position}: {error}") from None
        if not whole:
            raise CorruptLog(f"{path} is corrupt at byte {position}: it ends after {len(data)} bytes")
        return memoryview(data)[:whole]

    def _aborted(self, work: CleaningJob, start: int, end: int) -> list[AbortedTxn]:
        """Aborted transactions with records in `[start, end)`; their markers may lie in later segments."""
        aborted: list[AbortedTxn] = []
        for segment in work.segments:
            if segment.next_offset <= start:
                continue
            path = f"{work.dir}/{file_name(segment.base_offset, TXN_INDEX_SUFFIX)}"
            if self._disk.exists(path):
                part, complete = search_aborted(decode_txn_index(self._disk.read(path)), start, end)
                aborted.extend(part)
                if complete:
                    return aborted
        aborted.extend(search_aborted(work.later_aborted, start, end)[0])
        return aborted


def _whole_batches(data: bytes) -> int:
    end = 0
    for position, header in iter_batches(data):
        end = position + header.size_bytes
    return end
