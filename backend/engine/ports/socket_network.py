"""Listening and connecting over TCP."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from backend.engine.ports.frame_buffers import FrameBuffers, buffers_for
from backend.engine.ports.network import FRAME_BYTES_MAX, Accept, Connection, FrameHandler, Transport
from backend.engine.ports.program import file_limit
from backend.engine.ports.socket_connection import SocketConnection

ACCEPT_BACKLOG = 512
# Without free file descriptors accept fails at once and again: a pause leaves time for other connections to end.
ACCEPT_PAUSE_S = 0.1
# The system gives a new descriptor the lowest free number, so its number says how many are open. Above this
# share of the limit no connection is accepted: the rest is for the files of logs, which must open.
CONNECTIONS_SHARE = 0.75

_log = logging.getLogger(__name__)


class SocketServer:
    """A bound TCP socket."""

    def __init__(self, sock: socket.socket, accept: Accept, frame_bytes_max: int, transport: Transport) -> None:
        self._sock = sock
        self._accept = accept
        self._transport = transport
        self._frame_bytes_max = frame_bytes_max
        self._buffers = buffers_for(frame_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._port = int(sock.getsockname()[1])
        self._descriptors_max = int(file_limit() * CONNECTIONS_SHARE)

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        self._accept_again()

    def _on_acceptable(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError as error:
            if not isinstance(error, (BlockingIOError, InterruptedError)):
                _log.warning("Listener on port %d could not accept a connection: %s", self._port, error)
                self._loop.remove_reader(self._sock.fileno())
                self._loop.call_later(ACCEPT_PAUSE_S, self._accept_again)
            return
        if sock.fileno() >= self._descriptors_max:
            _log.warning(
                "Listener on port %d refused a connection: the process has %d files and connections open, of %d at most"
                " while it takes more; raise its limit of open files",
                self._port, sock.fileno(), self._descriptors_max,
            )  # fmt: skip
            sock.close()
            return
        try:
            connection = self._transport(sock, self._loop, self._frame_bytes_max, self._buffers)
        except OSError:
            # The peer was gone before we looked.
            sock.close()
            return
        connection.start(self._accept(connection))

    def _accept_again(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock.fileno(), self._on_acceptable)

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()


class SocketNetwork:
    """TCP of this machine."""

    def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        transport: Transport | None = None,
    ) -> SocketServer:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(ACCEPT_BACKLOG)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        return SocketServer(sock, accept, frame_bytes_max, transport or SocketConnection)

    async def connect(
        self,
        host: str,
        port: int,
        handler: Callable[[Connection], FrameHandler],
        *,
        timeout_ms: float,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        transport: Transport | None = None,
    ) -> Connection:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(timeout_ms / 1000.0):
                await loop.sock_connect(sock, (host, port))
                connection = (transport or SocketConnection)(sock, loop, frame_bytes_max, FrameBuffers())
                connection.start(handler(connection))
                try:
                    await connection.ready()
                except BaseException:
                    connection.close()
                    raise
        except BaseException:
            sock.close()
            raise
        return connection
