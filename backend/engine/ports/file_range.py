"""Bytes of a file that a socket takes from the page cache, without a copy in this process (`sendfile`)."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Final

# File systems that cannot do it say so by one of these; their bytes are read and written, so many at once.
_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
COPY_BYTES: Final = 1024 * 1024


class FileShortened(OSError):
    """A file was cut before all bytes of a range of it were sent."""


class Descriptor:
    """An open file descriptor, closed when nobody holds it any more."""

    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # What was to be kept has been synced: a failure here loses nothing.
        with contextlib.suppress(OSError):
            close(self.fd)


class OsFileRange:
    """See `FileRange`. It keeps the descriptor open, so that the bytes stay also when the file is removed."""

    __slots__ = ("_descriptor", "_position", "_size")

    def __init__(self, descriptor: Descriptor, position: int, size: int) -> None:
        self._descriptor = descriptor
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        data = os.pread(self._descriptor.fd, self._size, self._position)
        if len(data) < self._size:
            raise self._shortened(len(data))
        return data

    def after(self, size: int) -> OsFileRange:
        return OsFileRange(self._descriptor, self._position + size, self._size - size)

    def send_to(self, socket_fd: int) -> int:
        sent = self._send_to(socket_fd)
        if not sent:
            raise self._shortened(0)
        return sent

    def _send_to(self, socket_fd: int) -> int:
        try:
            return os.sendfile(socket_fd, self._descriptor.fd, self._position, self._size)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        data = os.pread(self._descriptor.fd, min(self._size, COPY_BYTES), self._position)
        return os.write(socket_fd, data) if data else 0

    def _shortened(self, found_bytes: int) -> FileShortened:
        path, wanted = self._descriptor.path, self._size - found_bytes
        return FileShortened(f"{path} was cut at byte {self._position + found_bytes} with {wanted} more to send")
