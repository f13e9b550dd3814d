"""Requests to exactly the broker asked for: clients choose theirs themselves."""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

from backend.protocol import frames
from backend.protocol.messages import Message

R = TypeVar("R", bound=Message)


class Connection:
    """One that stays; its requests are answered in order."""

    def __init__(self, port: int, client_id: str = "test", *, timeout_s: float = 30.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id

    def send(self, request: Message, version: int) -> None:
        """Without waiting for the answer."""
        chunks = frames.encode_request(request, version, 1, self._client_id)
        self._socket.sendall(b"".join(bytes(chunk) for chunk in chunks))

    def ask(self, request: Message, version: int, response: type[R]) -> R:
        """The answer; OSError when there is none."""
        self.send(request, version)
        (size,) = struct.unpack(">i", exactly(self._socket, 4))
        return frames.decode_response(response, version, exactly(self._socket, size))[1]

    def close(self) -> None:
        self._socket.close()


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
