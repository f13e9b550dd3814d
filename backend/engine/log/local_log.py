"""The segments of one log and what is done to their files (`LocalLog` of Kafka).

Knows offsets of the local disk only; leader epochs, producers, the high watermark and the remote part are
`unified_log`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar, cast

from backend.engine.log.file_names import SWAP_SUFFIX
from backend.engine.log.log_config import INT32_MAX, LogConfig
from backend.engine.log.segments.log_segment import BatchEntry, LogSegment
from backend.engine.log.segments.log_segments import LogSegments
from backend.engine.ports.disk import Disk
from backend.engine.ports.random import Random
from backend.protocol.buffers import Buffer, Chunk

# Sealed segments of a log that stay open: readers of old data are few, and each costs a descriptor and its indexes.
OPEN_SEALED_SEGMENTS_MAX: Final = 4
# Base offset and length: what must be read of a batch to know its size.
_SIZE_PREFIX_BYTES: Final = 12
# Records below this are read and leave with what surrounds them, in one system call; above it the copies cost more.
# It must not be below `protocol.codegen.encoder.JOIN_BYTES`: a range cannot be joined with anything.
RANGE_BYTES_MIN: Final = 32 * 1024

R_co = TypeVar("R_co", bound=Chunk, covariant=True)


class ReadInfo(NamedTuple, Generic[R_co]):
    """Raw batches of one segment. The last batch may be cut off, unless it is the only one."""

    records: R_co
    start_offset: int
    segment_base_offset: int
    position: int


@dataclass(frozen=True, slots=True)
class FlushWork:
    """Files to sync on a worker thread before the recovery point may move to `up_to_offset`."""

    paths: tuple[str, ...]
    dir: str
    up_to_offset: int


def sync_files(disk: Disk, work: FlushWork) -> None:
    """Syncs the files of a flush and their folder. Blocking; any thread.

    Files that retention removed meanwhile are skipped.
    """
    for path in work.paths:
        try:
            file = disk.open(path)
        except FileNotFoundError:
            continue
        try:
            file.sync()
        finally:
            file.close()
    disk.sync_dir(work.dir)


class LocalLog:
    """Appends to, reads from and truncates the segments of one folder. Raises OSError and `CorruptLog`."""

    def __init__(
        self,
        disk: Disk,
        random: Random,
        log_dir: str,
        segments: LogSegments,
        config: LogConfig,
        on_work: Callable[[], None],
        on_unreadable: Callable[[OSError], None],
    ) -> None:
        """`on_work` is called when there is something to flush or to remove, `on_unreadable` when the disk fails while
        records are being sent to a reader.
        """
        self.disk = disk
        self.dir = log_dir
        self.segments = segments
        self.config = config
        self.end_offset = segments.active.next_offset
        self._random = random
        self._roll_jitter_ms = self._random_jitter()
        self._open_sealed: dict[int, LogSegment] = {}
        self._deleted_paths: list[str] = []
        self._on_work = on_work
        self._on_unreadable = on_unreadable

    def _random_jitter(self) -> int:
        spread = min(self.config.segment_jitter_ms, self.config.effective_segment_ms)
        return self._random.randrange(spread) if spread > 0 else 0

    # --- append

    def must_roll(self, size_bytes: int, timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether an append of that size needs a new segment first (`LogSegment.shouldRoll`)."""
        config, segment = self.config, self.segments.active
        if segment.size_bytes > config.segment_bytes - size_bytes:
            # A new segment would not hold it either when the active one is empty.
            return segment.size_bytes > 0 or segment.base_offset != self.end_offset
        if segment.is_full(config.segment_index_bytes) or last_offset - segment.base_offset > INT32_MAX:
            return True
        if segment.size_bytes == 0:
            return False
        first_ms = segment.first_timestamp
        if first_ms is not None and first_ms >= 0:
            waited_ms = timestamp - first_ms
        else:
            waited_ms = now_ms - (segment.created_ms if segment.created_ms is not None else now_ms)
        return waited_ms > config.effective_segment_ms - self._roll_jitter_ms

    def append(self, records: Buffer, batches: Sequence[BatchEntry], now_ms: int) -> LogSegment:
        """Writes whole batches at the log end; the segment that took them."""
        segment = self.segments.active
        interval = self.config.index_interval_bytes
        segment.append(records, batches, index_interval_bytes=interval, now_ms=now_ms)
        self.end_offset = segment.next_offset
        return segment

    def roll(self, base_offset: int) -> LogSegment:
        """Seals the active segment and starts the next at `base_offset`; an empty one at that offset starts afresh."""
        active = self.segments.active
        if active.base_offset != base_offset:
            active.seal()
            self._keep_open(active)
        elif active.size_bytes:
            raise ValueError(f"{active} has data and cannot be rolled at its own base")
        else:
            active.files.close()
        segment = LogSegment.create(self.disk, self.dir, base_offset)
        self.segments.add(segment)
        self.end_offset = base_offset
        self._on_work()
        self._roll_jitter_ms = self._random_jitter()
        return segment

    # --- read

    def read(self, start_offset: int, max_bytes: int, up_to_offset: int, min_one_message: bool) -> ReadInfo[bytes]:
        """Raw batches from the first that ends at or past `start_offset`, below `up_to_offset`, of one segment."""
        info = self._read(start_offset, max_bytes, up_to_offset, min_one_message, to_send=False)
        return cast("ReadInfo[bytes]", info)

    def read_file_range(
        self, start_offset: int, max_bytes: int, up_to_offset: int, min_one_message: bool
    ) -> ReadInfo[Chunk]:
        """As `read`, but that many bytes stay in their file until a socket takes them."""
        return self._read(start_offset, max_bytes, up_to_offset, min_one_message, to_send=True)

    def _read(
        self, start_offset: int, max_bytes: int, up_to_offset: int, min_one_message: bool, *, to_send: bool
    ) -> ReadInfo[Chunk]:
        segments = self.segments
        at = max(0, segments.floor_index(start_offset))
        while at < len(segments) and start_offset < up_to_offset:
            segment = segments[at]
            if start_offset < segment.next_offset:
                info = self._read_segment(segment, start_offset, max_bytes, up_to_offset, min_one_message, to_send)
                if info is not None:
                    return info
            at += 1
        active = segments.active
        return ReadInfo(b"", start_offset, active.base_offset, active.size_bytes)

    def _read_segment(
        self,
        segment: LogSegment,
        start_offset: int,
        max_bytes: int,
        up_to_offset: int,
        min_one_message: bool,
        to_send: bool,
    ) -> ReadInfo[Chunk] | None:
        if segment.sealed:
            self._keep_open(segment)
        position = segment.position_of(start_offset)
        end = segment.size_bytes if up_to_offset >= segment.next_offset else segment.position_of(up_to_offset)
        available = end - position
        if available <= 0:
            return None
        size = min(max_bytes, available)
        if size <= 0 and not min_one_message:
            return ReadInfo(b"", start_offset, segment.base_offset, position)
        as_range = to_send and size >= RANGE_BYTES_MIN
        data = segment.files.pread(_SIZE_PREFIX_BYTES if as_range else max(size, _SIZE_PREFIX_BYTES), position)
        batch_bytes = int.from_bytes(data[8:12], "big") + _SIZE_PREFIX_BYTES
        if batch_bytes > size:
            if not min_one_message:
                # Part of a batch is of no use (Kafka: `ReplicaManager.readFromLog`).
                return ReadInfo(b"", start_offset, segment.base_offset, position)
            size = min(batch_bytes, available)
            as_range = to_send and size >= RANGE_BYTES_MIN
            data = b"" if as_range else segment.files.pread(size, position)
        records = segment.files.range(size, position, self._on_unreadable) if as_range else data
        return ReadInfo(records, start_offset, segment.base_offset, position)

    def _keep_open(self, segment: LogSegment) -> None:
        recent = self._open_sealed
        recent.pop(segment.base_offset, None)
        recent[segment.base_offset] = segment
        if len(recent) > OPEN_SEALED_SEGMENTS_MAX:
            recent.pop(next(iter(recent))).release()

    # --- truncation

    def drop(self, segments: Sequence[LogSegment]) -> None:
        """Takes segments out of the log and renames their files to `.deleted`."""
        for segment in segments:
            self._open_sealed.pop(segment.base_offset, None)
            self.segments.remove(segment)
            self._deleted_paths.extend(segment.files.rename_deleted())
            self._on_work()

    def replace(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Puts a segment that compaction made in the place of consecutive sealed ones (`LocalLog.replaceSegments`).

        The files of `new` are complete and on the device under `.cleaned`. Once they are renamed to `.swap`, the loader
        finishes the swap after a crash; before, it keeps the old segments.
        """
        new.files.change_suffix(SWAP_SUFFIX)
        self.segments.replace(old, new)
        for segment in old:
            self._open_sealed.pop(segment.base_offset, None)
            self._deleted_paths.extend(segment.files.rename_deleted())
            self._on_work()
        new.files.change_suffix("")
        new.release()

    def truncate_to(self, offset: int) -> int:
        """Truncates at an offset in or past the first segment; the new log end (see `LogSegment.truncate_to`)."""
        self.drop([s for s in self.segments.starting_at_or_after(offset) if s is not self.segments[0]])
        active = self.segments.active
        self._open_sealed.pop(active.base_offset, None)
        self.end_offset = active.truncate_to(offset)
        return self.end_offset

    def replace_all(self, offset: int) -> None:
        """Drops every segment and starts an empty one at `offset`.

        The newest first: what a crash leaves of them begins where the log began, and is not taken for a later part.
        """
        self.drop(list(self.segments)[::-1])
        self.segments.add(LogSegment.create(self.disk, self.dir, offset))
        self.end_offset = offset

    @property
    def has_deleted_paths(self) -> bool:
        """Whether :meth:`take_deleted_paths` would return any."""
        return bool(self._deleted_paths)

    def take_deleted_paths(self) -> list[str]:
        """Files renamed to `.deleted` since the last call."""
        taken, self._deleted_paths = self._deleted_paths, []
        return taken

    def rename_dir(self, log_dir: str) -> None:
        """Gives the folder another name; open files stay open."""
        self.disk.rename(self.dir, log_dir)
        self.dir = log_dir
        for segment in self.segments:
            segment.files.dir = log_dir

    def close_files(self) -> None:
        """Closes descriptors without writing anything."""
        for segment in self.segments:
            segment.files.close()
        self._open_sealed.clear()
