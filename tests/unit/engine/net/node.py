"""A listener with handlers of the test's choice, and a client that sends raw frames to it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from backend.engine.apis import api_versions
from backend.engine.apis.api_declaration import Api, ApiTable
from backend.engine.apis.services import Services
from backend.engine.common.event_sink import NullEventSink
from backend.engine.config import BrokerConfig
from backend.engine.config.listeners import ListenerAddress
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.metrics import BrokerMetrics
from backend.engine.net.listener import Listener
from backend.engine.ports import system_ports
from backend.engine.ports.network import Network
from backend.protocol import frames
from backend.protocol.messages import Message


@dataclass
class StandingMetadata:
    """Metadata that does not change."""

    image: MetadataImage


class RawClient:
    """Frames to one port over asyncio streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, message: Message, version: int, correlation_id: int) -> None:
        self.writer.write(b"".join(frames.encode_request(message, version, correlation_id, "test")))

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def answer(self, cls: type[Message], version: int) -> tuple[int, Any]:
        return frames.decode_response(cls, version, await self.frame())

    async def has_an_answer(self, within_s: float = 0.2) -> bool:
        """Whether a frame begins to come."""
        try:
            await asyncio.wait_for(self.reader.readexactly(4), within_s)
        except TimeoutError:
            return False
        return True

    async def is_closed(self) -> bool:
        """Waits for the other side's end of the connection."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


class Node:
    """One listener under test."""

    def __init__(self, services: Services, listener: Listener, port: int) -> None:
        self.services = services
        self.listener = listener
        self.port = port
        self._clients: list[RawClient] = []

    async def client(self) -> RawClient:
        client = RawClient(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        return client

    def close_clients(self) -> None:
        for client in self._clients:
            client.writer.close()


@asynccontextmanager
async def node(
    *apis: Api[Any],
    port: int = 0,
    protocol: str = "PLAINTEXT",
    properties: Mapping[str, str] | None = None,
    network: Network | None = None,
    **settings: str,
) -> AsyncIterator[Node]:
    """A broker's listener that serves ApiVersions and the given APIs; it is named as its security protocol."""
    ports = system_ports()
    absent: Any = None
    metadata: Any = StandingMetadata(MetadataImage(offset=7))
    services = Services(
        node_id=1,
        cluster_id="test",
        config=BrokerConfig.parse(
            {**(properties or {}), **{name.replace("_", "."): value for name, value in settings.items()}}
        ),
        ports=replace(ports, network=network or ports.network),
        metadata=metadata,
        log_manager=absent,
        controller_channel=absent,
        events=NullEventSink(),
        metrics=BrokerMetrics(1),
        remote_log_manager=None,
        controller=None,
        apis=ApiTable([*api_versions.APIS, *apis]),
    )
    address = ListenerAddress(protocol, "127.0.0.1", port, protocol)
    listener = Listener(services.ports, services.config, address, "broker")
    made = Node(services, listener, listener.bind())
    listener.start(services)
    try:
        yield made
    finally:
        made.close_clients()
        await listener.close()
        services.ports.workers.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs one test's coroutine on a fresh loop, within a time that only a hang reaches."""

    async def bounded() -> None:
        await asyncio.wait_for(test(), 30)

    asyncio.run(bounded())


def pipelined(api: Api[Any]) -> Api[Any]:
    return replace(api, pipelined=True)
