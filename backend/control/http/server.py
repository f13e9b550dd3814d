"""Runs the API on uvicorn inside the event loop of this process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.applications import Starlette

# Open connections; a dashboard and a few scripts need a dozen. More get 503 from uvicorn.
CONNECTIONS_MAX: Final = 200
STOP_TIMEOUT_S: Final = 3


class ApiServerError(Exception):
    """The API cannot be served. The message is one sentence for people."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals to the process, which stops everything in order."""
        yield


class ApiServer:
    """One listening socket."""

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        self._host, self._port = host, port
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
            )
        )
        self._task: asyncio.Task[None] | None = None
        self.port = port

    async def start(self) -> None:
        """Listens. Raises ApiServerError when the port cannot be had."""
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

    async def stop(self) -> None:
        """Lets running calls end, for a moment."""
        if self._task is None:
            return
        self._server.should_exit = True
        await self._task
