"""Connections to a broker with two listeners until it takes no more: whether each is answered, waits or is closed.

Run against a real broker it shows what the test expects::

    PYTHONPATH=. python tests/interop/connection_limits.py INTERNAL_PORT EXTERNAL_PORT

The broker is alone; brokers use the listener INTERNAL, `SETTINGS` are set, and nobody else is connected.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from typing import Final

from backend.protocol import frames
from backend.protocol import messages as m
from tests.wire import exactly

SETTINGS: Final = {"max.connections": "4", "listener.name.external.max.connections": "2"}
# So long an answer is waited for that is not expected.
PATIENCE_S: Final = 1.0
WAIT_S: Final = 20.0

ANSWERED: Final = "answered"
WAITS: Final = "waits"
CLOSED: Final = "closed"


class Connection:
    """One client that asks for the versions."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._is_requested = False

    def state(self, *, expects_answer: bool = True) -> str:
        """The result of a question, which is asked once and waited for again."""
        self._socket.settimeout(WAIT_S if expects_answer else PATIENCE_S)
        try:
            if not self._is_requested:
                request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
                self._socket.sendall(b"".join(bytes(chunk) for chunk in frames.encode_request(request, 4, 1, "test")))
                self._is_requested = True
            (size,) = struct.unpack(">i", exactly(self._socket, 4))
            exactly(self._socket, size)
        except TimeoutError:
            return WAITS
        except OSError:
            return CLOSED
        self._is_requested = False
        return ANSWERED

    def close(self) -> None:
        self._socket.close()


def run(internal: int, external: int) -> list[tuple[str, str]]:
    """(what was done, what became of the connection)."""
    outcomes: list[tuple[str, str]] = []

    def record(label: str, connection: Connection, *, expects_answer: bool = True) -> None:
        outcomes.append((label, connection.state(expects_answer=expects_answer)))
        # The least recently used one is known by its time.
        time.sleep(0.05)

    first, second = Connection(external), Connection(external)
    record("external 1 of 2", first)
    record("external 2 of 2", second)
    third = Connection(external)
    record("external 3 of 2", third, expects_answer=False)
    first.close()
    record("external 3, when 1 is gone", third)
    record("external 2", second)
    first_internal, second_internal = Connection(internal), Connection(internal)
    record("internal, 3 of 4", first_internal)
    record("internal, 4 of 4", second_internal)
    third_internal = Connection(internal)
    record("internal, 5 of 4", third_internal)
    record("external 3, used longest ago", third, expects_answer=False)
    record("external 2, used after it", second)
    fourth = Connection(external)
    record("external, 5 of 4", fourth, expects_answer=False)
    first_internal.close()
    record("external, when an internal one is gone", fourth)
    for connection in (second, third, fourth, second_internal, third_internal):
        connection.close()
    return outcomes


def main() -> None:
    for label, state in run(*map(int, sys.argv[1:3])):
        print(f"{label}: {state}")


if __name__ == "__main__":
    main()
