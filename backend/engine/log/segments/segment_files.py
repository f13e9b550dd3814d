"""The files of one segment: their names, the open `.log`, renaming and removal (see `segment`)."""

from __future__ import annotations

from collections.abc import Callable

from backend.engine.log.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from backend.engine.ports.disk import Disk, File
from backend.protocol.buffers import Chunk


class SegmentFiles:
    """A `.log` file and its indexes in the folder of a partition."""

    __slots__ = ("_base_offset", "_disk", "_file", "dir", "file_suffix")

    def __init__(self, disk: Disk, log_dir: str, base_offset: int, file_suffix: str = "") -> None:
        self._disk = disk
        self.dir = log_dir
        self.file_suffix = file_suffix  # behind the usual name while compaction makes the segment
        self._base_offset = base_offset
        self._file: File | None = None

    # --- names

    def _path(self, suffix: str) -> str:
        return f"{self.dir}/{file_name(self._base_offset, suffix)}{self.file_suffix}"

    @property
    def log_path(self) -> str:
        return self._path(LOG_SUFFIX)

    @property
    def offset_index_path(self) -> str:
        return self._path(OFFSET_INDEX_SUFFIX)

    @property
    def time_index_path(self) -> str:
        return self._path(TIME_INDEX_SUFFIX)

    @property
    def txn_index_path(self) -> str:
        """May not exist: see :attr:`txn_index_empty`."""
        return self._path(TXN_INDEX_SUFFIX)

    @property
    def paths(self) -> tuple[str, str, str, str]:
        return self.log_path, self.offset_index_path, self.time_index_path, self.txn_index_path

    # --- the open file

    def create(self) -> None:
        """Makes an empty `.log` file and keeps it open."""
        self._file = self._disk.open(self.log_path, create=True)

    @property
    def file(self) -> File:
        """The `.log` file, opened when needed."""
        if self._file is None:
            self._file = self._disk.open(self.log_path)
        return self._file

    def pread(self, size: int, position: int) -> bytes:
        """Raw bytes of the `.log` file."""
        file = self._file
        return (self.file if file is None else file).pread(size, position)

    def range(self, size: int, position: int, unreadable: Callable[[OSError], None]) -> Chunk:
        """The same bytes, to be sent (see `File.range`)."""
        return self.file.range(size, position, unreadable)

    def sync(self) -> None:
        """Everything written of this segment reaches the device."""
        self.file.sync()

    def close(self) -> None:
        """Closes the descriptor."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def change_suffix(self, file_suffix: str) -> None:
        """Renames the files, the `.log` first: a recovery reads from its name how far compaction came."""
        before = self.paths
        self.file_suffix = file_suffix
        for source, target in zip(before, self.paths, strict=True):
            if self._disk.exists(source):
                self._disk.rename(source, target)

    def remove_files(self) -> None:
        """Closes and removes every file."""
        self.close()
        for path in self.paths:
            self._disk.remove(path)

    def rename_deleted(self) -> list[str]:
        """Closes and gives every file the suffix `.deleted`; returns the new paths, to be removed later."""
        self.close()
        renamed: list[str] = []
        for path in self.paths:
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED_SUFFIX)
                renamed.append(path + DELETED_SUFFIX)
        return renamed

    # --- sizes and times from the file system

    @property
    def index_sizes(self) -> tuple[int, int]:
        """Bytes of the offset and of the time index of a sealed segment."""
        return self._disk.size(self.offset_index_path), self._disk.size(self.time_index_path)

    @property
    def modified_ms(self) -> int:
        """When the `.log` file was last written."""
        return self._disk.modified_ms(self.log_path)
