"""ListOffsets v11 written by hand, for the sentinels and replica ids that client libraries do not offer.

Bytes as in the message definition (KIP-482 compact strings and arrays), on purpose without this product's codec.
"""

from __future__ import annotations

import socket
import struct

REPLICA_ID_DEBUG = -2
_CORRELATION_ID = 7


def list_offset(address: str, topic: str, partition: int, timestamp: int, *, replica_id: int) -> tuple[int, int, int]:
    """(error, offset, leader epoch) as the broker at `address` answers."""
    name = topic.encode()
    requested = struct.pack(">iiqB", partition, -1, timestamp, 0)
    topics = struct.pack(">BB", 2, len(name) + 1) + name + struct.pack(">B", 2) + requested + b"\x00"
    body = struct.pack(">ib", replica_id, 0) + topics + struct.pack(">iB", 10_000, 0)
    header = struct.pack(">hhih", 2, 11, _CORRELATION_ID, 4) + b"test" + b"\x00"
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        answer = _exactly(connection, size)
    # correlation id, tags, throttle time, one topic, its name, one partition
    at = 4 + 1 + 4
    assert struct.unpack_from(">i", answer)[0] == _CORRELATION_ID
    assert answer[at] == 2
    at += 2 + len(name)
    assert answer[at] == 2
    _, error, _, offset, epoch = struct.unpack_from(">ihqqi", answer, at + 1)
    return error, offset, epoch


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        assert chunk, "the broker closed the connection"
        data += chunk
    return data
