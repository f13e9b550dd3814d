"""The parts of an encoded message: buffers, and ranges of files that are sent without being read."""

from __future__ import annotations

from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class FileRange(Protocol):
    """Bytes of an open file, whose number is all that an encoder has to know."""

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes:
        """Reads them all; OSError."""
        ...

    def advance(self, size: int) -> FileRange:
        """The rest behind the first `size` bytes."""
        ...

    def send_to(self, socket_fd: int) -> int:
        """The number of bytes that the socket has taken; BlockingIOError when it takes none now, or another OSError."""
        ...


Chunk: TypeAlias = Buffer | FileRange
