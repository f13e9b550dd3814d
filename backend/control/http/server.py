"""Runs the API on uvicorn inside the event loop of this process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import uvicorn
from starlette.applications import Starlette

# Open connections; a dashboard and a few scripts need a dozen. More get 503 from uvicorn.
CONNECTIONS_MAX: Final = 200
STOP_TIMEOUT_S: Final = 3


class ApiServerError(Exception):
    """The API cannot be served. The message is one sentence for people."""


# The date in the answers is so old at most.
DATE_S: Final = 1.0


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = asyncio.Event()

    async def main_loop(self) -> None:
        """As uvicorn's, which asks ten times a second whether it should end: this one is told."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), DATE_S)

    def end(self) -> None:
        """Running calls end, no more are taken."""
        self.should_exit = True
        self._ended.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals to the process, which stops everything in order."""
        yield


class ApiServer:
    """One listening socket, with TLS when it has a certificate (PEM: certificate and key files)."""

    def __init__(self, app: Starlette, host: str, port: int, tls: tuple[Path, Path] | None = None) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                loop="none",
                server_header=False,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_graceful_shutdown=STOP_TIMEOUT_S,
                timeout_keep_alive=30,
                # Nobody stands in front of it: who calls, and how, is what the connection says.
                proxy_headers=False,
                ssl_certfile=None if tls is None else str(tls[0]),
                ssl_keyfile=None if tls is None else str(tls[1]),
            )
        )
        self._task: asyncio.Task[None] | None = None
        self.port = port

    async def start(self) -> None:
        """Listens. Raises ApiServerError when the port, or the certificate, cannot be had."""
        self._check_tls()
        listening = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET, socket.SOCK_STREAM)
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

    def _check_tls(self) -> None:
        if self._tls is None:
            return
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*self._tls)
        except (OSError, ssl.SSLError) as error:
            raise ApiServerError(
                f"The control API's certificate {self._tls[0]} with the key {self._tls[1]} cannot be used: {error}."
            ) from error

    async def stop(self) -> None:
        """Lets running calls end, for a moment."""
        if self._task is None:
            return
        self._server.end()
        await self._task
