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
# Errors of `sendfile` that are about the file; any other is about the socket.
_OF_THE_DISK: Final = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA, errno.ESTALE, errno.EOVERFLOW})


class FileUnreadable(OSError):
    """The bytes of a range could not be had; what of their frame was sent cannot be finished."""


class FileShortened(FileUnreadable):
    """The file was truncated before all bytes of the range were sent."""


class Descriptor:
    """An open file descriptor, closed when nobody holds it any more. ``path`` is where it was opened.

    ``truncated_sizes`` are the sizes that the file was truncated to, one for each change of leader at most.
    """

    __slots__ = ("fd", "path", "truncated_sizes")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path
        self.truncated_sizes: list[int] = []

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # A caller that needs the bytes to be safe has synced them, and got the error when that failed.
        with contextlib.suppress(OSError):
            close(self.fd)


class OsFileRange:
    """See `FileRange`. It keeps the descriptor open, so that the bytes stay also when the file is removed.

    A file that was truncated and has grown again has other bytes there: that counts as truncated.
    """

    __slots__ = ("_descriptor", "_position", "_size", "_truncations_before", "_unreadable")

    def __init__(
        self,
        descriptor: Descriptor,
        position: int,
        size: int,
        unreadable: Callable[[OSError], None],
        truncations_before: int,
    ) -> None:
        """``unreadable`` is called when the disk does not give the bytes."""
        self._descriptor = descriptor
        self._position = position
        self._size = size
        self._unreadable = unreadable
        self._truncations_before = truncations_before

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        self._check_truncations()
        try:
            data = os.pread(self._descriptor.fd, self._size, self._position)
        except OSError as error:
            raise self._failed(error) from error
        if len(data) < self._size:
            raise self._shortened(self._position + len(data))
        return data

    def advance(self, size: int) -> OsFileRange:
        return OsFileRange(
            self._descriptor, self._position + size, self._size - size, self._unreadable, self._truncations_before
        )

    def send_to(self, socket_fd: int) -> int:
        self._check_truncations()
        try:
            sent = self._send_to(socket_fd)
        except OSError as error:
            if error.errno in _OF_THE_DISK:
                raise self._failed(error) from error
            raise
        if not sent:
            raise self._shortened(self._position)
        return sent

    def _send_to(self, socket_fd: int) -> int:
        try:
            return os.sendfile(socket_fd, self._descriptor.fd, self._position, self._size)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        data = os.pread(self._descriptor.fd, min(self._size, COPY_BYTES), self._position)
        return os.write(socket_fd, data) if data else 0

    def _check_truncations(self) -> None:
        sizes = self._descriptor.truncated_sizes
        if len(sizes) > self._truncations_before:
            smallest = min(sizes[self._truncations_before :])
            if smallest < self._position + self._size:
                raise self._shortened(max(smallest, self._position))

    def _shortened(self, at: int) -> FileShortened:
        left = self._position + self._size - at
        return FileShortened(f"{self._descriptor.path} was cut at byte {at} with {left} more to send")

    def _failed(self, error: OSError) -> FileUnreadable:
        self._unreadable(error)
        where = f"{self._size} bytes at {self._position} of {self._descriptor.path}"
        return FileUnreadable(f"{where} could not be read to be sent: {error.strerror}")
