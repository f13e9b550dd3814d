"""TCP without sockets: connections between processes, with delay, black holes in one direction, resets, crashes.

Bytes of one direction of one connection stay in order, as TCP keeps them; those of different connections overtake each
other. What a black hole swallows comes late, once the hole is gone, as TCP would send it again, or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from backend.engine.ports.network import (
    FRAME_BYTES_MAX,
    Accept,
    Connection,
    FrameHandler,
    FrameTooLarge,
    Transport,
)
from backend.protocol.buffers import Chunk

if TYPE_CHECKING:
    from tests.simulation.loop import VirtualLoop
    from tests.simulation.machine import Process
    from tests.simulation.trace import Trace

# A connection that is refused or lost shows so after a moment; a black hole never answers.
REFUSED_MS: Final = 1.0
FAR_END_LOST_MS: Final = (50.0, 3000.0)
EPHEMERAL_PORT: Final = 40_000


@dataclass(slots=True)
class Weather:
    """How the network behaves now. Delays are of one message, in ms."""

    delay_ms: tuple[float, float] = (0.05, 0.6)
    # Part of the messages that are late (a lost packet that is sent again), and how late.
    late: float = 0.0
    late_ms: tuple[float, float] = (20.0, 400.0)
    # Part of the messages whose connection breaks instead.
    reset: float = 0.0
    # (from, to) that do not reach each other.
    holes: set[tuple[int, int]] = field(default_factory=set)


class VirtualConnection:
    """One end of a connection."""

    def __init__(self, fabric: Fabric, process: Process, peer: str, frame_bytes_max: int) -> None:
        self._fabric = fabric
        self.process = process
        self._peer = peer
        self._frame_bytes_max = frame_bytes_max
        self.far: VirtualConnection | None = None
        self.handler: FrameHandler | None = None
        self._input = bytearray()
        self._paused = False
        self._closing = False
        self._closed = False
        # When the last bytes sent from here arrive, so that the next do not overtake them.
        self.arrives_s = 0.0
        # Bytes that wait behind a black hole.
        self.held: list[bytes] = []

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def output_bytes(self) -> int:
        return 0

    @property
    def closed(self) -> bool:
        return self._closed

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self.process.alive and not (self._closed or self._closing):
            self._fabric.carry(self, b"".join(map(bytes, chunks)))

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        if self._input:
            self._fabric.loop.call_soon(self.deliver)

    def limit_frames(self, bytes_max: int) -> None:
        self._frame_bytes_max = bytes_max

    def close(self) -> None:
        if not self._closed:
            self._fabric.hang_up(self)
            self.end(None)

    def close_after_flush(self) -> None:
        self._closing = True
        self.close()

    async def ready(self) -> None:
        """Nothing comes before the first frame."""

    # From the network

    def arrive(self, data: bytes) -> None:
        """Bytes of the far end."""
        if not self._closed and self.process.alive:
            self._fabric.trace.message(self.process.node_id, data)
            self._input += data
            self.deliver()

    def deliver(self) -> None:
        """Hands whole frames up."""
        # A connection in the backlog has no handler yet.
        while self.handler is not None and len(self._input) >= 4 and not (self._paused or self._closed):
            size = int.from_bytes(self._input[:4], "big", signed=True)
            if not 0 <= size <= self._frame_bytes_max:
                self._fabric.hang_up(self)
                self.end(FrameTooLarge(f"{self._peer} announced a frame of {size} bytes"))
                return
            if len(self._input) < 4 + size:
                return
            frame = self._input[4 : 4 + size]
            del self._input[: 4 + size]
            self.handler.on_frame(frame)

    def end(self, error: BaseException | None) -> None:
        """The connection is over on this side."""
        if not self._closed:
            self._closed = True
            self._fabric.forget(self)
            if self.handler is not None:
                self.handler.on_closed(error)

    def vanish(self) -> None:
        """The process has ended; no peer is notified."""
        self._closed = True
        self._fabric.forget(self)


class VirtualServer:
    """A bound port."""

    def __init__(self, fabric: Fabric, process: Process, port: int, accept: Accept, frame_bytes_max: int) -> None:
        self._fabric = fabric
        self.process = process
        self._port = port
        self.accept = accept
        self.frame_bytes_max = frame_bytes_max
        self.serving = False
        self.backlog: list[VirtualConnection] = []

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        self.serving = True
        for connection in self.backlog:
            self.welcome(connection)
        self.backlog.clear()

    def welcome(self, connection: VirtualConnection) -> None:
        if not connection.closed:
            connection.handler = self.accept(connection)
            connection.deliver()

    def close(self) -> None:
        self._fabric.servers.pop(self._port, None)
        for connection in self.backlog:
            connection.close()


class Fabric:
    """All wires of a world."""

    def __init__(self, loop: VirtualLoop, random: Random, trace: Trace) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.weather = Weather()
        self.servers: dict[int, VirtualServer] = {}
        self._connections: dict[VirtualConnection, None] = {}
        self._next_port = EPHEMERAL_PORT

    def ephemeral_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def blocked(self, source: int, target: int) -> bool:
        return (source, target) in self.weather.holes

    def delay_s(self) -> float:
        weather, random = self.weather, self.random
        low, high = weather.late_ms if weather.late and random.random() < weather.late else weather.delay_ms
        return (low + (high - low) * random.random()) / 1000.0

    def join(self, near: VirtualConnection, far: VirtualConnection) -> None:
        near.far, far.far = far, near
        self._connections[near] = None
        self._connections[far] = None

    def forget(self, connection: VirtualConnection) -> None:
        self._connections.pop(connection, None)

    def carry(self, near: VirtualConnection, data: bytes) -> None:
        far = near.far
        assert far is not None
        if near.held or self.blocked(near.process.node_id, far.process.node_id):
            near.held.append(data)
            return
        weather = self.weather
        if weather.reset and self.random.random() < weather.reset:
            self.reset(near)
            return
        near.arrives_s = max(near.arrives_s, self.loop.time() + self.delay_s())
        self.loop.call_at(near.arrives_s, far.arrive, data, context=far.process.context)

    def hang_up(self, near: VirtualConnection) -> None:
        """The far end learns of it, unless it cannot be reached."""
        far = near.far
        if far is None or far.closed or self.blocked(near.process.node_id, far.process.node_id):
            return
        near.arrives_s = max(near.arrives_s, self.loop.time() + self.delay_s())
        self.loop.call_at(near.arrives_s, far.end, None, context=far.process.context)

    def reset(self, connection: VirtualConnection) -> None:
        """Both ends lose the connection."""
        for end in (connection, connection.far):
            if end is not None and not end.closed:
                self.loop.call_soon(end.end, ConnectionResetError("reset"), context=end.process.context)

    def clear_holes(self, holes: set[tuple[int, int]]) -> None:
        """These reach each other again; what was held comes now, or its connection breaks."""
        self.weather.holes -= holes
        for connection in list(self._connections):
            far = connection.far
            if not connection.held or far is None or self.blocked(connection.process.node_id, far.process.node_id):
                continue
            held, connection.held = connection.held, []
            if self.random.random() < 0.5:
                self.reset(connection)
                continue
            for data in held:
                self.carry(connection, data)

    def lose(self, process: Process, *, at_once: bool) -> None:
        """A process is gone with its ends; the far ends notice at once (its machine says so) or late."""
        for port in [port for port, server in self.servers.items() if server.process is process]:
            del self.servers[port]
        for connection in [connection for connection in self._connections if connection.process is process]:
            far = connection.far
            connection.vanish()
            if far is None or far.closed:
                continue
            delay_s = self.delay_s() if at_once else self.random.uniform(*FAR_END_LOST_MS) / 1000.0
            self.loop.call_at(
                max(connection.arrives_s, self.loop.time() + delay_s),
                far.end,
                ConnectionResetError("the far end is gone"),
                context=far.process.context,
            )


class VirtualNetwork:
    """One process's network port."""

    def __init__(self, fabric: Fabric, process: Process) -> None:
        self._fabric = fabric
        self._process = process

    def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        transport: Transport | None = None,
    ) -> VirtualServer:
        assert transport is None, "the simulation has no TLS"
        if port in self._fabric.servers:
            raise OSError(98, "Address already in use")
        server = VirtualServer(self._fabric, self._process, port, accept, frame_bytes_max)
        self._fabric.servers[port] = server
        return server

    async def connect(
        self,
        host: str,
        port: int,
        handler: Callable[[Connection], FrameHandler],
        *,
        timeout_ms: float,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        transport: Transport | None = None,
    ) -> VirtualConnection:
        fabric, near = self._fabric, self._process.node_id
        async with asyncio.timeout(timeout_ms / 1000.0):
            # The way there and back.
            await asyncio.sleep(fabric.delay_s())
            server = fabric.servers.get(port)
            target = port_owner(port)
            while fabric.blocked(near, target) or fabric.blocked(target, near):
                await asyncio.sleep(1.0)
            await asyncio.sleep(fabric.delay_s())
        server = fabric.servers.get(port)
        if server is None:
            raise ConnectionRefusedError(111, "Connection refused")
        from_port = fabric.ephemeral_port()
        near_end = VirtualConnection(fabric, self._process, f"{host}:{port}", frame_bytes_max)
        far_end = VirtualConnection(fabric, server.process, f"{host}:{from_port}", server.frame_bytes_max)
        fabric.join(near_end, far_end)
        near_end.handler = handler(near_end)
        if server.serving:
            fabric.loop.call_soon(server.welcome, far_end, context=server.process.context)
        else:
            server.backlog.append(far_end)
        return near_end


def port_owner(port: int) -> int:
    """The node that listens there: ports are 1000 times the node's number, and a few more."""
    return port // 1000
