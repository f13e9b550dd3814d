"""Snapshots of the metadata log on disk (KIP-630): names, what makes one complete, and the files of one folder.

A snapshot `<endOffset>-<epoch>.checkpoint` lies beside the log's segments and stands for all records below its end
offset. It is written as `….checkpoint.part`, reaches the device, and only then gets its name; nothing ever changes a
file that has the name. There is no checksum of the whole: each batch has its own, and the footer says that it is all.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from backend.engine.ports.disk import Disk, File
from backend.engine.raft.voter_directories import UNKNOWN, VoterDirectories, directories_in
from backend.protocol import cluster_metadata, codec
from backend.protocol import messages as m
from backend.protocol.buffers import Buffer
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.control_records import ControlType, control_type
from backend.protocol.record_batches.record_batch import BatchHeader, crc_valid, iter_batches, iter_records

SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
DELETED_SUFFIX: Final = ".checkpoint.deleted"
CORRUPT_SUFFIX: Final = ".checkpoint.corrupt"
# The id of a bootstrap.checkpoint and of an empty log; never a file in the log's folder.
BOOTSTRAP_ID: Final = (0, 0)
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_HEADER_BYTES: Final = 4096

_log = logging.getLogger(__name__)


class BadSnapshot(ValueError):
    """The bytes are no complete snapshot; the message says what is wrong."""


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """Offset behind the last record that the snapshot stands for, and that record's leader epoch."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"

    def __str__(self) -> str:
        return f"{self.end_offset}-{self.epoch}"


def parse_file_name(name: str) -> SnapshotId | None:
    """The id in a snapshot file's name; None for any other name."""
    match = _NAME.fullmatch(name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """A whole snapshot; `batches` are its records, each group as it was written."""

    last_contained_ms: int
    batches: tuple[tuple[object, ...], ...] = field(repr=False)

    @property
    def record_count(self) -> int:
        return sum(len(batch) for batch in self.batches)


Decode = Callable[[bytes | None], object]


def _decode(value: bytes | None) -> object:
    return cluster_metadata.decode(value)[0]


class SnapshotReader:
    """A snapshot's records, batch by batch, so that a large one is never in memory as records.

    Nothing that was read counts before `batches` has come to its end: the last thing it looks for is the footer.
    """

    def __init__(self, data: Buffer, decode: Decode = _decode) -> None:
        self._data = data
        self._decode = decode
        # Append time of the last record that the snapshot stands for, ms; known once its first batch has been read.
        self.last_contained_ms = 0

    def batches(self) -> Iterator[list[object]]:
        """Each group of records as it was written. BadSnapshot when it is damaged or its end is missing."""
        try:
            yield from self._batches()
        except DecodeError as error:
            raise BadSnapshot(str(error)) from error

    def _batches(self) -> Iterator[list[object]]:
        data, decode = self._data, self._decode
        headers = footers = end = 0
        for position, batch in iter_batches(data):
            if not crc_valid(data, position, batch):
                raise BadSnapshot(f"the batch at byte {position} has a wrong CRC")
            if footers:
                raise BadSnapshot(f"the batch at byte {position} follows the footer")
            end = position + batch.size_bytes
            if batch.is_control:
                for kind, value in _controls(data, position):
                    if kind == ControlType.SNAPSHOT_HEADER:
                        headers += 1
                        self.last_contained_ms = last_contained_ms(value)
                    footers += kind == ControlType.SNAPSHOT_FOOTER
            elif not headers:
                raise BadSnapshot("it does not begin with a snapshot header")
            else:
                yield [decode(record.value) for record in iter_records(data, position)]
        if headers != 1:
            raise BadSnapshot(f"it has {headers} snapshot headers instead of one")
        if not footers or end != len(data):
            raise BadSnapshot("its end is missing: there is no footer")


def read_content(data: Buffer) -> SnapshotContent:
    """The snapshot in a file's bytes. BadSnapshot when it is damaged or its end is missing."""
    reader = SnapshotReader(data)
    batches = tuple(tuple(batch) for batch in reader.batches())
    return SnapshotContent(reader.last_contained_ms, batches)


def _controls(data: Buffer, position: int) -> Iterator[tuple[int, Buffer]]:
    for record in iter_records(data, position):
        yield control_type(record.key), record.value or b""


def last_contained_ms(value: Buffer) -> int:
    """The append time of the last record that a snapshot stands for, from its header's value. DecodeError."""
    return codec.decode(m.SnapshotHeaderRecord, 0, value)[0].last_contained_log_timestamp


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot's size and times for retention; `written_ms` is when it was written, also if it was fetched since."""

    id: SnapshotId
    size_bytes: int
    last_contained_ms: int
    written_ms: int = 0


def keep_from(
    snapshots: Sequence[StoredSnapshot],
    log_bytes: int,
    *,
    retention_bytes: int,
    retention_ms: int,
    now_ms: int,
    needed_from: int | None,
) -> SnapshotId | None:
    """The snapshot that the log is to start at from now on; None: nothing goes (`KafkaMetadataLog.maybeClean`).

    Snapshots oldest first. The newest always stays. One step: the caller asks again with what is left. `needed_from`
    is the lowest offset that a live follower still reads: it is waited for until the total is twice the limit.
    """
    if len(snapshots) < 2:
        return None
    oldest, following = snapshots[0], snapshots[1]
    total = log_bytes + sum(snapshot.size_bytes for snapshot in snapshots)
    too_large = 0 <= retention_bytes < total
    too_old = 0 <= retention_ms < now_ms - oldest.last_contained_ms
    if not too_large and not too_old:
        return None
    waited_for = needed_from is not None and needed_from < following.id.end_offset
    if waited_for and (retention_bytes < 0 or total <= 2 * retention_bytes):
        return None
    return following.id


class SnapshotFiles:
    """The snapshots of one folder. Calls that touch a file's content block: on a worker thread."""

    def __init__(self, disk: Disk, folder: str) -> None:
        """Looks what is there and removes what an interrupted run has left. OSError."""
        self._disk = disk
        self.folder = folder
        self._ids: list[SnapshotId] = []
        # Times of each: of the last record that it contains, and of its first batch.
        self._times: dict[SnapshotId, tuple[int, int]] = {}
        for name in disk.list_dir(folder):
            parsed = parse_file_name(name)
            if parsed is not None:
                self._ids.append(parsed)
            elif name.endswith((PART_SUFFIX, DELETED_SUFFIX)):
                disk.remove(f"{folder}/{name}")
        self._ids.sort()

    @property
    def ids(self) -> tuple[SnapshotId, ...]:
        """Oldest first."""
        return tuple(self._ids)

    @property
    def latest(self) -> SnapshotId | None:
        return self._ids[-1] if self._ids else None

    def path(self, snapshot_id: SnapshotId) -> str:
        return f"{self.folder}/{snapshot_id.file_name}"

    def size(self, snapshot_id: SnapshotId) -> int:
        """Bytes of the file. OSError."""
        return self._disk.size(self.path(snapshot_id))

    def read(self, snapshot_id: SnapshotId) -> bytes:
        """The whole file. OSError."""
        return self._disk.read(self.path(snapshot_id))

    def read_part(self, snapshot_id: SnapshotId, position: int, size: int) -> bytes:
        """Reads up to `size` bytes from `position`. OSError."""
        file = self._disk.open(self.path(snapshot_id))
        try:
            return file.pread(size, position)
        finally:
            file.close()

    def stored(self) -> list[StoredSnapshot]:
        """The snapshots for retention, oldest first. A file whose header cannot be read counts as of 1970."""
        return [
            StoredSnapshot(snapshot_id, self.size(snapshot_id), *self._times_of(snapshot_id))
            for snapshot_id in self.ids
        ]

    def _times_of(self, snapshot_id: SnapshotId) -> tuple[int, int]:
        times = self._times.get(snapshot_id)
        if times is None:
            times = 0, 0
            head = self.read_part(snapshot_id, 0, _HEADER_BYTES)
            try:
                position, batch = next(iter(iter_batches(head)), (0, None))
                if isinstance(batch, BatchHeader) and batch.is_control:
                    contained_ms = max(last_contained_ms(value) for _, value in _controls(head, position))
                    times = contained_ms, batch.max_timestamp
            except (DecodeError, ValueError):
                _log.warning("Snapshot %s has a header that cannot be read", self.path(snapshot_id))
            self._times[snapshot_id] = times
        return times

    def voter_directories(self, snapshot_id: SnapshotId) -> VoterDirectories | None:
        """The directory of each voter, which stands right behind the header. OSError.

        None for a file whose beginning is damaged: the log may have the times.
        """
        head = self.read_part(snapshot_id, 0, _HEADER_BYTES)
        try:
            return next((directories for _, directories in directories_in(head)), UNKNOWN)
        except (DecodeError, ValueError):
            return None

    def write(self, snapshot_id: SnapshotId, chunks: Iterable[Buffer], unique: str) -> int:
        """A new snapshot from its bytes, frozen; how many bytes. On failure nothing is left of it. OSError."""
        part = PartialSnapshot(self._disk, self.folder, snapshot_id, unique)
        try:
            for chunk in chunks:
                part.append(chunk)
            return part.freeze()
        except BaseException:
            part.discard()
            raise

    def added(self, snapshot_id: SnapshotId) -> None:
        """A frozen file counts from now on; on the loop's thread."""
        if snapshot_id not in self._ids:
            self._ids.append(snapshot_id)
            self._ids.sort()

    def forget_before(self, snapshot_id: SnapshotId) -> list[str]:
        """Older snapshots are renamed and count no more; the paths, to be removed. OSError."""
        expired = [older for older in self._ids if older < snapshot_id]
        return [self._set_aside(older, DELETED_SUFFIX) for older in expired]

    def set_corrupt_aside(self, snapshot_id: SnapshotId) -> str:
        """A file that is no snapshot counts no more, but stays to be looked at; its new path. OSError."""
        return self._set_aside(snapshot_id, CORRUPT_SUFFIX)

    def _set_aside(self, snapshot_id: SnapshotId, suffix: str) -> str:
        path = self.path(snapshot_id)
        target = path.removesuffix(SUFFIX) + suffix
        self._disk.rename(path, target)
        self._ids.remove(snapshot_id)
        self._times.pop(snapshot_id, None)
        return target


class PartialSnapshot:
    """A snapshot on its way: written here, or fetched piece by piece. Blocks: on a worker thread."""

    def __init__(self, disk: Disk, folder: str, snapshot_id: SnapshotId, unique: str) -> None:
        self.id = snapshot_id
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{snapshot_id.file_name.removesuffix(SUFFIX)}-{unique}{PART_SUFFIX}"
        self._file: File | None = disk.open(self._path, create=True)

    @property
    def size_bytes(self) -> int:
        assert self._file is not None, "frozen or discarded"
        return self._file.size()

    def append(self, data: Buffer) -> None:
        assert self._file is not None, "frozen or discarded"
        self._file.append([data])

    def check(self) -> None:
        """BadSnapshot unless what has been written is a complete snapshot."""
        for _ in SnapshotReader(self._disk.read(self._path)).batches():
            pass

    def freeze(self) -> int:
        """fsync, close, rename, fsync of the folder; the size. It counts from `SnapshotFiles.added` on."""
        file, self._file = self._file, None
        assert file is not None, "frozen or discarded"
        size = file.size()
        try:
            file.sync()
        finally:
            file.close()
        self._disk.rename(self._path, f"{self._folder}/{self.id.file_name}")
        self._disk.sync_dir(self._folder)
        return size

    def discard(self) -> None:
        """Nothing is left of it."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        self._disk.remove(self._path)
