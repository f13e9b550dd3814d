"""One request on a connection of its own, to exactly the broker asked for: clients choose theirs themselves."""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

from backend.protocol import frames
from backend.protocol.messages import Message

R = TypeVar("R", bound=Message)


def ask(port: int, request: Message, version: int, response: type[R], *, timeout_s: float = 30.0) -> R:
    """The answer; OSError when nobody answers there."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(b"".join(bytes(chunk) for chunk in frames.encode_request(request, version, 1, "test")))
        (size,) = struct.unpack(">i", exactly(connection, 4))
        return frames.decode_response(response, version, exactly(connection, size))[1]


def exactly(connection: socket.socket, size: int) -> bytes:
    """That many bytes."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return data
