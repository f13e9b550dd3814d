"""Room for unfinished frames: what counts, and who makes room."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import ExitStack

import pytest

from backend.engine.ports import frame_buffers, socket_connection
from backend.engine.ports.frame_buffers import FRAMES_AT_A_TIME, ROOM_BYTES_MIN, FrameBuffers, buffers_for
from backend.engine.ports.network import Connection, NoRoom
from backend.engine.ports.socket_network import SocketNetwork

MIB = 1024 * 1024


class Frame:
    """An unfinished frame of so many bytes, with the time it takes as a whole."""

    def __init__(self, buffers: FrameBuffers, size: int, expected_s: float = 0.0, host: str = "a") -> None:
        self.host, self.held_bytes, self._expected_s, self._buffers = host, 0, expected_s, buffers
        self.dropped = False
        self.there = self.more(size)

    def more(self, size: int) -> bool:
        taken = self._buffers.reserve(self, size)
        self.held_bytes += size if taken else 0
        return taken

    def expected_s(self) -> float:
        return self._expected_s

    def make_room(self) -> None:
        self.dropped = True
        self._buffers.release(self)


def test_what_comes_too_slowly_makes_room_the_slowest_first() -> None:
    buffers = FrameBuffers(10 * MIB)
    quick, slow, slowest = Frame(buffers, 2 * MIB), Frame(buffers, 4 * MIB, 40.0), Frame(buffers, 4 * MIB, 400.0)
    assert Frame(buffers, MIB).there
    assert (quick.dropped, slow.dropped, slowest.dropped) == (False, False, True)
    assert buffers.held_bytes == 7 * MIB


def test_frames_that_will_come_whole_are_kept_and_one_more_is_refused() -> None:
    buffers = FrameBuffers(10 * MIB)
    kept = [Frame(buffers, 5 * MIB, 29.0) for _ in range(2)]
    assert not Frame(buffers, 1).there
    assert not any(frame.dropped for frame in kept)


def test_the_address_that_holds_most_makes_room_first() -> None:
    buffers = FrameBuffers(12 * MIB)
    greedy = [Frame(buffers, 5 * MIB, 50.0, "greedy") for _ in range(2)]
    other = Frame(buffers, 2 * MIB, 500.0, "other")
    assert Frame(buffers, MIB, host="third").there
    assert not other.dropped
    assert sum(frame.dropped for frame in greedy) == 1


def test_small_frames_are_dropped_many_at_a_time() -> None:
    buffers = FrameBuffers(8 * MIB)
    held = [Frame(buffers, 1024, 100.0) for _ in range(8 * 1024)]
    assert Frame(buffers, 1).there
    assert sum(frame.dropped for frame in held) == ROOM_BYTES_MIN // 1024


def test_before_a_login_there_is_little_room() -> None:
    buffers = buffers_for(512 * 1024)
    assert buffers.bytes_max == FRAMES_AT_A_TIME * 512 * 1024
    assert buffers.wider is not None
    assert buffers.wider.bytes_max == frame_buffers.UNFINISHED_BYTES_MAX
    assert buffers_for(100 * MIB).bytes_max == frame_buffers.UNFINISHED_BYTES_MAX


class Kept:
    """Keeps what a connection delivers, and how it ends."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames: list[int] = []
        self.ends: list[BaseException | None] = []

    def on_frame(self, frame: bytearray) -> None:
        self.frames.append(len(frame))

    def on_closed(self, error: BaseException | None) -> None:
        self.ends.append(error)


@pytest.mark.parametrize("sent", [5, 70_000])
def test_connections_that_announce_large_frames_do_not_shut_others_out(
    monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    """520 of them shut out every frame above 64 KiB on their listener."""
    monkeypatch.setattr(frame_buffers, "UNFINISHED_BYTES_MAX", 16 * MIB)
    monkeypatch.setattr(frame_buffers, "ROOM_BYTES_MIN", MIB)
    monkeypatch.setattr(socket_connection, "PACE_KNOWN_S", 0.0)

    async def play() -> tuple[list[Kept], int]:
        made: list[Kept] = []

        def accept(connection: Connection) -> Kept:
            made.append(Kept(connection))
            return made[-1]

        server = SocketNetwork().listen("127.0.0.1", 0, accept)
        server._buffers.bytes_max = 16 * MIB
        server.start()
        with ExitStack() as held:
            for _ in range(520):
                client = held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                client.sendall(struct.pack(">i", 95_000_000) + bytes(sent))
                await asyncio.sleep(0)
            while len(made) < 520:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            for _ in range(3):
                writer.write(struct.pack(">i", 8 * MIB) + bytes(8 * MIB))
            await writer.drain()
            for _ in range(500):
                if len(made[-1].frames) == 3:
                    break
                await asyncio.sleep(0.01)
            held_bytes = server._buffers.held_bytes
            writer.close()
        server.close()
        return made, held_bytes

    made, held_bytes = asyncio.run(play())
    assert made[-1].frames == [8 * MIB] * 3
    dropped = [end for kept in made[:-1] for end in kept.ends if isinstance(end, NoRoom)]
    assert held_bytes <= 16 * MIB
    assert bool(dropped) == (sent > 5)
