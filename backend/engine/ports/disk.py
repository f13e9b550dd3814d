"""Files. Paths are plain strings; errors are the operating system's (OSError)."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from backend.engine.ports.file_range import Descriptor, OsFileRange
from backend.engine.ports.program import file_limit
from backend.protocol.buffers import Buffer, Chunk

# A range keeps its file open until a socket has taken it, also when the log has closed it to save descriptors. Their
# numbers are given out lowest first: from this share of the limit on, bytes are read instead, and no more is held so.
RANGES_SHARE: Final = 0.5


class File(Protocol):
    """An open file that is read by position and appended at its end."""

    def append(self, chunks: Sequence[Buffer]) -> int:
        """Writes all bytes at the end with as few calls as possible; returns how many."""
        ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes from ``position``; shorter only at the end of the file."""
        ...

    def range(self, size: int, position: int, unreadable: Callable[[OSError], None]) -> Chunk:
        """The bytes that `pread` would give, to be sent; they may be read only then, also after `close`.

        `unreadable` is called when the disk does not give them.
        """
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Overwrites in place."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Data reaches the device (fdatasync)."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """Folders and files, as the engine uses them."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, time_ms: int) -> None: ...

    def list_dir(self, path: str) -> list[str]:
        """Names in the folder, sorted."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def read(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        """All or nothing: temporary file, fsync, rename, fsync of the folder."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic replace."""
        ...

    def remove(self, path: str) -> None:
        """Missing is fine."""
        ...

    def remove_tree(self, path: str) -> None:
        """Missing is fine."""
        ...

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...

    def lock(self, path: str) -> File:
        """Exclusive lock file held until closed; BlockingIOError when another process holds it."""
        ...


class OsFile:
    """A file descriptor."""

    __slots__ = ("_descriptor", "_end", "_fd", "_ranges")

    def __init__(self, fd: int, path: str, *, ranges: bool = False) -> None:
        """`ranges`: whether they are given out, which keep the descriptor open after `close`."""
        self._descriptor: Descriptor | None = Descriptor(fd, path)
        self._ranges = ranges
        self._fd = fd
        self._end = os.fstat(fd).st_size

    def append(self, chunks: Sequence[Buffer]) -> int:
        total = len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks))
        written = os.pwritev(self._fd, chunks, self._end)
        if written < total:
            data = memoryview(b"".join(chunks))
            while written < total:
                written += os.pwrite(self._fd, data[written:], self._end + written)
        self._end += total
        return total

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def range(self, size: int, position: int, unreadable: Callable[[OSError], None]) -> Chunk:
        descriptor = self._descriptor
        if not self._ranges or descriptor is None:
            return self.pread(size, position)
        return OsFileRange(
            descriptor, position, min(size, self._end - position), unreadable, len(descriptor.truncated_sizes)
        )

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data)
        done = 0
        while done < len(view):
            done += os.pwrite(self._fd, view[done:], position + done)
        self._end = max(self._end, position + len(view))

    def size(self) -> int:
        return self._end

    def truncate(self, size: int) -> None:
        if self._descriptor is not None:
            self._descriptor.truncated_sizes.append(size)
        os.ftruncate(self._fd, size)
        self._end = size

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        self._descriptor = None
        self._fd = -1


class OsDisk:
    """The machine's file system."""

    def __init__(self) -> None:
        self._ranges_below = int(file_limit() * RANGES_SHARE)

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        fd = os.open(path, flags, 0o600)
        return OsFile(fd, path, ranges=fd < self._ranges_below)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if sync:
            self.sync_dir(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        try:
            os.remove(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def sync_dir(self, path: str) -> None:
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        return shutil.disk_usage(path).free

    def total_bytes(self, path: str) -> int:
        return shutil.disk_usage(path).total

    def lock(self, path: str) -> OsFile:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise
        return OsFile(fd, path)
