"""Runs the API on uvicorn inside the event loop of this process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import uvicorn
from starlette.applications import Starlette

from backend.control.http.connections import CONNECTIONS_MAX, ApiProtocol, ApiSocket, PendingHandshakes

STOP_TIMEOUT_S: Final = 3


class ApiServerError(Exception):
    """The API cannot be served. The message is one sentence for people."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals to the process, which stops everything in order."""
        yield


class ApiServer:
    """One listening socket, with TLS when it has a certificate (PEM: certificate and key files)."""

    def __init__(self, app: Starlette, host: str, port: int, tls: tuple[Path, Path] | None = None) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._opening = PendingHandshakes()
        self._server = _Server(
            uvicorn.Config(
                app,
                http=partial(ApiProtocol, opening=self._opening),  # type: ignore[arg-type]  # made by calling it
                log_config=None,
                access_log=False,
                lifespan="off",
                loop="none",
                server_header=False,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_graceful_shutdown=STOP_TIMEOUT_S,
                timeout_keep_alive=30,
                # No proxy stands in front of it: the connection itself says who calls, and how.
                proxy_headers=False,
                ssl_certfile=None if tls is None else str(tls[0]),
                ssl_keyfile=None if tls is None else str(tls[1]),
                callback_notify=self._close_overdue,
                timeout_notify=0,  # at each tick of uvicorn's, one a second
            )
        )
        self._task: asyncio.Task[None] | None = None
        self.port = port

    async def start(self) -> None:
        """Listens. Raises ApiServerError when the port, or the certificate, cannot be had."""
        if self._tls is not None:
            check_certificate(*self._tls)
        listening = ApiSocket(socket.AF_INET6 if ":" in self._host else socket.AF_INET, self._opening)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self._host, self._port))
            listening.listen(128)
        except OSError as error:
            listening.close()
            raise ApiServerError(
                f"The control API cannot listen on {self._host}:{self._port}: {error.strerror or error}; "
                "stop what uses the port, or choose another with EBBLINE_API_PORT."
            ) from error
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]), name="control-api")
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.01)

    async def _close_overdue(self) -> None:
        now_s = time.monotonic()
        self._opening.end_overdue(now_s)
        for connection in list(self._server.server_state.connections):
            if isinstance(connection, ApiProtocol) and connection.is_overdue(now_s):
                connection.abort()

    async def stop(self) -> None:
        """Lets running calls end, for a moment."""
        if self._task is None:
            return
        self._server.should_exit = True  # running calls end, no more are taken
        await self._task


def check_certificate(certificate: Path, key: Path) -> None:
    """Raises ApiServerError for PEM files that TLS cannot be served with."""
    try:
        # With no password given, OpenSSL would ask for one at the terminal.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or getattr(error, "reason", None) or "it is no PEM file"
        raise ApiServerError(
            f"The control API's certificate {certificate} with the key {key} cannot be used ({cause}): give a"
            " certificate and its key as PEM files, the key without a password."
        ) from error
