"""Frames over real sockets, and whole messages in-process: sizes, pauses, limits, slow readers."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from backend.engine.ports.in_process_network import InProcessNetwork
from backend.engine.ports.network import Connection, FrameTooLarge, Network, NoRoom, Transport
from backend.engine.ports.socket_connection import FRAME_FIRST_BYTES, OUTPUT_HIGH_BYTES, SCRATCH_BYTES
from backend.engine.ports.socket_network import SocketNetwork


class Recorder:
    """Keeps what a connection delivers."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.closed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.arrived = asyncio.Event()

    def on_frame(self, frame: bytearray) -> None:
        self.frames.append(bytes(frame))
        self.arrived.set()

    def on_closed(self, error: BaseException | None) -> None:
        self.closed.set_result(error)

    async def have(self, count: int) -> list[bytes]:
        while len(self.frames) < count:
            self.arrived.clear()
            await self.arrived.wait()
        return self.frames


def run(
    test: Callable[[Recorder, Recorder], Coroutine[Any, Any, None]],
    *,
    frame_bytes_max: int = 1 << 26,
    transports: tuple[Transport | None, Transport | None] = (None, None),
    network: Network | None = None,
) -> None:
    """Plays with both ends of one connection: (client, server). `transports` are the server's and the client's."""

    async def bounded() -> None:
        net = network or SocketNetwork()
        accepted: asyncio.Future[Recorder] = asyncio.get_running_loop().create_future()

        def accept(connection: Connection) -> Recorder:
            recorder = Recorder(connection)
            accepted.set_result(recorder)
            return recorder

        server = net.listen("127.0.0.1", 0, accept, frame_bytes_max=frame_bytes_max, transport=transports[0])
        server.start()
        made: list[Recorder] = []

        def handler(connection: Connection) -> Recorder:
            made.append(Recorder(connection))
            return made[0]

        await net.connect("127.0.0.1", server.port, handler, timeout_ms=5000, transport=transports[1])
        far = await accepted
        try:
            await test(made[0], far)
        finally:
            server.close()
            made[0].connection.close()
            far.connection.close()

    asyncio.run(asyncio.wait_for(bounded(), 30))


def between_neighbours() -> Network:
    return InProcessNetwork(SocketNetwork())


either_network = pytest.mark.parametrize("network", [SocketNetwork, between_neighbours])


def framed(body: bytes) -> list[bytes]:
    return [len(body).to_bytes(4, "big"), body]


@either_network
@pytest.mark.parametrize(
    "size",
    [0, 1, SCRATCH_BYTES - 5, SCRATCH_BYTES - 4, SCRATCH_BYTES - 3, SCRATCH_BYTES, 3 * SCRATCH_BYTES + 7, 5_000_000],
)
def test_a_frame_of_any_size_arrives_whole_between_others(size: int, network: Callable[[], Network]) -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        body = bytes(index % 251 for index in range(1000)) * (size // 1000 + 1)
        for frame in (b"first", body[:size], b"last"):
            client.connection.send(framed(frame))
        assert await server.have(3) == [b"first", body[:size], b"last"]

    run(play, network=network())


def test_a_frame_may_arrive_byte_by_byte() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        for byte in b"".join(framed(b"abc")):
            client.connection.send([bytes([byte])])
            await asyncio.sleep(0.001)
        assert await server.have(1) == [b"abc"]

    run(play)


@either_network
def test_a_paused_connection_delivers_nothing_until_it_is_resumed(network: Callable[[], Network]) -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        first: list[bytes] = []

        def pause_on_first(frame: bytearray) -> None:
            Recorder.on_frame(server, frame)
            if len(server.frames) == 1:
                server.connection.pause_reading()

        server.on_frame = pause_on_first  # type: ignore[method-assign]  # the test's own recorder
        for index in range(200):
            client.connection.send(framed(b"%d" % index * 500))
        await server.have(1)
        for _ in range(20):
            await asyncio.sleep(0)
        first = list(server.frames)
        assert len(first) == 1
        server.connection.resume_reading()
        assert [frame[:3] for frame in await server.have(200)][-1] == b"199"

    run(play, network=network())


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", (1001).to_bytes(4, "big")])
def test_a_length_outside_the_limit_closes_the_connection(length: bytes) -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        client.connection.send([length, b"abc"])
        assert isinstance(await server.closed, FrameTooLarge)
        assert server.frames == []

    run(play, frame_bytes_max=1000)


@either_network
def test_a_frame_of_any_size_arrives_whole(network: Callable[[], Network]) -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        bodies = [
            (b"%07d" % size) * (size // 7) + bytes(size % 7)
            for size in (SCRATCH_BYTES, FRAME_FIRST_BYTES, FRAME_FIRST_BYTES + 1, 3 * FRAME_FIRST_BYTES + 17, 5)
        ]
        for body in bodies:
            client.connection.send(framed(body))
        assert await server.have(len(bodies)) == bodies

    run(play, network=network())


def test_an_announced_length_takes_no_memory_before_its_bytes_come() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        tracemalloc.start()
        try:
            client.connection.send([(1 << 26).to_bytes(4, "big"), b"abc"])
            client.connection.close_after_flush()
            assert await server.closed is None
            assert tracemalloc.get_traced_memory()[1] < 2 * FRAME_FIRST_BYTES
        finally:
            tracemalloc.stop()
        assert server.frames == []

    run(play)


def test_unfinished_frames_together_have_a_limit() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        server.connection._buffers.bytes_max = 3 * FRAME_FIRST_BYTES  # type: ignore[attr-defined]
        body = bytes(3 * FRAME_FIRST_BYTES)
        client.connection.send(framed(body))
        assert await server.have(1) == [body]
        assert server.connection._buffers.held_bytes == 0  # type: ignore[attr-defined]
        client.connection.send([(4 * FRAME_FIRST_BYTES).to_bytes(4, "big"), body])
        assert isinstance(await server.closed, NoRoom)
        assert server.connection._buffers.held_bytes == 0  # type: ignore[attr-defined]

    run(play)


@either_network
def test_output_that_nobody_reads_stops_reading_from_that_peer(network: Callable[[], Network]) -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        client.connection.pause_reading()
        chunk = bytes(1 << 20)
        while server.connection.output_bytes <= OUTPUT_HIGH_BYTES:
            server.connection.send(framed(chunk))
        client.connection.send(framed(b"too early"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert server.frames == []
        client.connection.resume_reading()
        assert await server.have(1) == [b"too early"]

    run(play, network=network())


def test_frames_of_one_read_wait_while_nobody_takes_their_answers_and_come_once_they_are_taken() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        answer = bytes(1 << 20)
        count = 100
        sizes: list[int] = []

        def answer_at_once(frame: bytearray) -> None:
            server.connection.send(framed(answer))
            sizes.append(server.connection.output_bytes)
            Recorder.on_frame(server, frame)

        server.on_frame = answer_at_once  # type: ignore[method-assign]  # the test's own recorder
        client.connection.pause_reading()
        client.connection.send([chunk for index in range(count) for chunk in framed(b"%d" % index)])
        await server.have(1)
        for _ in range(50):
            await asyncio.sleep(0)
        # Besides the limit, the system's own buffers have taken some.
        assert len(server.frames) < count // 2
        assert server.connection.output_bytes > OUTPUT_HIGH_BYTES
        client.connection.resume_reading()
        assert await server.have(count) == [b"%d" % index for index in range(count)]
        assert max(sizes) <= OUTPUT_HIGH_BYTES + len(answer) + 4
        assert len(await client.have(count)) == count

    run(play)


def test_one_answer_above_the_limit_stops_what_was_read_together_with_its_request() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        answer = bytes(3 * OUTPUT_HIGH_BYTES)

        def answer_at_once(frame: bytearray) -> None:
            server.connection.send(framed(answer))
            Recorder.on_frame(server, frame)

        server.on_frame = answer_at_once  # type: ignore[method-assign]  # the test's own recorder
        client.connection.pause_reading()
        client.connection.send([*framed(b"first"), *framed(b"second")])
        await server.have(1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert server.frames == [b"first"]
        client.connection.resume_reading()
        assert await server.have(2) == [b"first", b"second"]
        assert await client.have(2) == [answer, answer]

    run(play, frame_bytes_max=4 * OUTPUT_HIGH_BYTES)


@either_network
def test_close_after_flush_sends_everything_first(network: Callable[[], Network]) -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        body = bytes(8_000_000)
        server.connection.send(framed(body))
        server.connection.close_after_flush()
        assert await client.have(1) == [body]
        assert await client.closed is None

    run(play, network=network())


def test_a_taken_port_is_an_error_at_once() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        port = int(client.connection.peer.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            SocketNetwork().listen("127.0.0.1", port, Recorder)

    run(play)
