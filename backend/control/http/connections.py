"""Limits of the API's connections: one that waits for its client makes room for the next one, and ends in time.

uvicorn has a limit of connections, above which it answers 503, and a time for those that have been answered. A
connection that has sent nothing, or half a request, would count for as long as its client likes: 200 of them, without a
token, shut everybody else out.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

# Open connections; a dashboard and a few scripts need a dozen. One more closes the one that has waited for its client
# longest; while all are being answered it gets 503 from uvicorn.
CONNECTIONS_MAX: Final = 200
# Accepted, but not through with TLS. Beside CONNECTIONS_MAX they are what this API takes of the process's descriptors.
HALF_OPEN_MAX: Final = 100
# From the connection to the end of the first request's head; an honest client needs two round trips.
FIRST_REQUEST_S: Final = 10.0
# A further request, or the body of one: a megabyte at 35 kB/s. Above uvicorn's own time for answered connections.
NEXT_REQUEST_S: Final = 30.0


class ApiProtocol(H11Protocol):
    """One connection, which knows since when it waits for its client."""

    def __init__(self, *args: Any, opening: PendingHandshakes, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._opening = opening
        self.waits_since_s = time.monotonic()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        self._opening.is_through(transport)
        super().connection_made(transport)
        self.waits_since_s = time.monotonic()
        while len(self.connections) >= CONNECTIONS_MAX and self._close_longest_waiting():
            pass

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self.waits_since_s = time.monotonic()

    def on_response_complete(self) -> None:
        self.waits_since_s = time.monotonic()
        super().on_response_complete()

    @property
    def waits(self) -> bool:
        """Whether it is the client's turn: to send a request, or the rest of one."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def is_overdue(self, now_s: float) -> bool:
        """Whether the client has let its turn pass."""
        limit_s = FIRST_REQUEST_S if self.cycle is None else NEXT_REQUEST_S
        return self.waits and now_s - self.waits_since_s > limit_s

    def abort(self) -> None:
        """Closes at once: with TLS an orderly end would wait for its peer."""
        self.connections.discard(self)
        self.transport.abort()

    def _close_longest_waiting(self) -> bool:
        waiting = [
            connection
            for connection in self.connections
            if isinstance(connection, ApiProtocol) and connection is not self and connection.waits
        ]
        if not waiting:
            return False
        min(waiting, key=lambda connection: connection.waits_since_s).abort()
        return True


class PendingHandshakes:
    """Connections between their acceptance and the end of their TLS handshake, oldest first."""

    def __init__(self) -> None:
        self._accepted: dict[int, tuple[socket.socket, float]] = {}

    def accepted(self, sock: socket.socket) -> None:
        """One more, for which the oldest may have to go."""
        self._accepted.pop(sock.fileno(), None)
        self._accepted[sock.fileno()] = (sock, time.monotonic())
        if len(self._accepted) > HALF_OPEN_MAX:
            self._end(next(iter(self._accepted)))

    def is_through(self, transport: asyncio.BaseTransport) -> None:
        """From now on it is one of uvicorn's."""
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self._accepted.pop(sock.fileno(), None)

    def end_overdue(self, now_s: float) -> None:
        """Ends what has taken too long, and forgets what has ended by itself."""
        for descriptor, (sock, since_s) in list(self._accepted.items()):
            if sock.fileno() < 0:
                del self._accepted[descriptor]
            elif now_s - since_s > FIRST_REQUEST_S:
                self._end(descriptor)

    def _end(self, descriptor: int) -> None:
        sock, _ = self._accepted.pop(descriptor)
        try:
            # Its transport, which owns it, hears of the end and closes it.
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


class ApiSocket(socket.socket):
    """A listening socket that registers the connections it has accepted."""

    def __init__(self, family: int, opening: PendingHandshakes) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._opening = opening

    def accept(self) -> tuple[socket.socket, Any]:
        sock, address = super().accept()
        self._opening.accepted(sock)
        return sock, address
