"""Connections of the API that wait for their client: they make room, and not for ever."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from backend.control.http import connections
from backend.control.http.api_server import ApiServer
from backend.control.http.connections import CONNECTIONS_MAX, HALF_OPEN_MAX
from tests.certificates import Authority

# A thousand connections to a running server, and its time-outs.
pytestmark = pytest.mark.outside

T = TypeVar("T")
HOST = "127.0.0.1"
TOO_MANY = CONNECTIONS_MAX + 10


async def _hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def _echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


APP = Starlette(routes=[Route("/", _hello), Route("/echo", _echo, methods=["POST"])])


def served(body: Callable[[int], Awaitable[T]], tls: tuple[Path, Path] | None = None) -> T:
    """Returns the result of `body`, which is called with the port of a running server."""

    async def main() -> T:
        server = ApiServer(APP, HOST, 0, tls)
        await server.start()
        try:
            return await body(server.port)
        finally:
            await server.stop()

    try:
        return asyncio.run(main())
    finally:
        # The loop ends with handshakes under way, whose sockets asyncio leaves to the collector.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@contextmanager
def silent(port: int, count: int, first: bytes = b"", trust: ssl.SSLContext | None = None) -> Iterator[None]:
    """So many connections that send this and then nothing."""
    with ExitStack() as held:
        for _ in range(count):
            made = held.enter_context(socket.create_connection((HOST, port), timeout=30))
            if trust is not None:
                made = held.enter_context(trust.wrap_socket(made, server_hostname=HOST))
            if first:
                made.sendall(first)
        yield


async def status(port: int, trust: ssl.SSLContext | None = None) -> int:
    scheme = "http" if trust is None else "https"
    async with httpx.AsyncClient(verify=trust or False, timeout=30) as client:
        return (await client.get(f"{scheme}://{HOST}:{port}/")).status_code


@pytest.mark.parametrize(
    "first",
    [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"],
    ids=["silent", "half a head", "answered", "half a body"],
)
def test_connections_that_wait_for_their_client_make_room(first: bytes) -> None:
    async def body(port: int) -> list[int]:
        await asyncio.to_thread(stack.enter_context, silent(port, TOO_MANY, first))
        return [await status(port) for _ in range(3)]

    with ExitStack() as stack:
        assert served(body) == [200, 200, 200]


@pytest.mark.parametrize("half_open", [True, False])
def test_connections_over_tls_make_room(tmp_path: Path, half_open: bool) -> None:
    authority = Authority()
    pem = authority.identity("api").write_pem(tmp_path / "api.pem")
    trust = ssl.create_default_context(cadata=authority.pem)
    count = HALF_OPEN_MAX + 50 if half_open else TOO_MANY

    async def body(port: int) -> int:
        await asyncio.to_thread(stack.enter_context, silent(port, count, trust=None if half_open else trust))
        return await status(port, trust)

    with ExitStack() as stack:
        assert served(body, (pem, pem)) == 200


@pytest.mark.parametrize("tls", [True, False])
def test_a_connection_without_a_request_is_closed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    monkeypatch.setattr(connections, "FIRST_REQUEST_S", 0.2)
    pem = Authority().identity("api").write_pem(tmp_path / "api.pem")

    async def body(port: int) -> bytes:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"" if tls else b"GET / HTTP/1.1\r\nHos")
        left = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return left

    assert served(body, (pem, pem) if tls else None) == b""
