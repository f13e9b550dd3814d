"""Nodes of one event loop: what differs from TCP between them, and what must not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from backend.engine.common.log_context import NodeFilter, logging_as_node
from backend.engine.ports.disk import OsDisk
from backend.engine.ports.file_range import FileUnreadable
from backend.engine.ports.in_process_network import InProcessConnection, InProcessNetwork
from backend.engine.ports.network import Connection, FrameTooLarge
from backend.engine.ports.socket_connection import OUTPUT_HIGH_BYTES, SocketConnection
from backend.engine.ports.socket_network import SocketNetwork
from tests.unit.engine.ports.test_network import Recorder, between_neighbours, framed, run


def with_network(test: Callable[[InProcessNetwork, list[Recorder]], Awaitable[None]]) -> None:
    """Plays with a network; the list holds those who were accepted."""

    async def bounded() -> None:
        await asyncio.wait_for(test(InProcessNetwork(SocketNetwork()), []), 30)

    asyncio.run(bounded())


def test_neighbours_need_no_socket_and_know_each_other_by_address() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        assert isinstance(client.connection, InProcessConnection)
        assert server.connection.peer.rpartition(":")[0] == "127.0.0.1"
        client.connection.send(framed(b"there"))
        assert await server.have(1) == [b"there"]
        server.connection.send(framed(b"back"))
        assert await client.have(1) == [b"back"]

    run(play, network=between_neighbours())


def test_a_frame_comes_in_a_later_turn_never_within_the_sending() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        client.connection.send(framed(b"x"))
        assert server.frames == []
        assert await server.have(1) == [b"x"]

    run(play, network=between_neighbours())


def test_what_was_sent_before_the_end_is_read_before_it() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        server.connection.pause_reading()
        client.connection.send(framed(b"last words"))
        client.connection.close()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not server.connection.closed
        server.connection.resume_reading()
        assert await server.closed is None
        assert server.frames == [b"last words"]
        # Ignored, as everywhere.
        server.connection.send(framed(b"too late"))

    run(play, network=between_neighbours())


def test_an_end_that_waits_for_its_peer_to_read_hears_of_its_end() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        server.connection.pause_reading()
        client.connection.send(framed(bytes(OUTPUT_HIGH_BYTES + 1)))
        server.connection.send(framed(b"not read"))
        await asyncio.sleep(0)
        assert client.frames == []
        server.connection.close()
        assert await client.closed is None
        assert client.frames == [b"not read"]
        assert client.connection.output_bytes == server.connection.output_bytes == 0

    run(play, network=between_neighbours())


def test_nothing_is_kept_for_an_end_that_is_closed() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        server.connection.close()
        client.connection.send(framed(b"to nobody"))
        assert client.connection.output_bytes == 0
        assert await client.closed is None
        assert server.frames == []

    run(play, network=between_neighbours())


def test_frames_of_one_turn_are_handed_up_in_one() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        for number in range(100):
            client.connection.send(framed(b"%d" % number))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(server.frames) == 100

    run(play, network=between_neighbours())


def test_an_end_that_is_closed_while_it_reads_reads_no_more() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        def close_at_first(frame: bytearray) -> None:
            Recorder.on_frame(server, frame)
            server.connection.close()

        server.on_frame = close_at_first  # type: ignore[method-assign]  # the test's own recorder
        client.connection.send(framed(b"1"))
        client.connection.send(framed(b"2"))
        assert await server.closed is None
        assert await client.closed is None
        assert server.frames == [b"1"]

    run(play, network=between_neighbours())


def test_who_is_refused_or_met_by_an_error_hears_of_the_end_and_of_nothing_else() -> None:
    async def play(network: InProcessNetwork, accepted: list[Recorder]) -> None:
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))

        def refuse(connection: Connection) -> Recorder:
            accepted.append(Recorder(connection))
            if len(accepted) == 1:
                connection.close()
                return accepted[-1]
            raise RuntimeError("the node's own trouble")

        server = network.listen("127.0.0.1", 0, refuse)
        server.start()
        for number in (1, 2):
            callers: list[Recorder] = []

            def called(connection: Connection, callers: list[Recorder] = callers) -> Recorder:
                callers.append(Recorder(connection))
                return callers[0]

            await network.connect("127.0.0.1", server.port, called, timeout_ms=5000)
            assert await callers[0].closed is None
            assert len(accepted) == number
            assert accepted[-1].connection.closed
        assert reported == ["the node's own trouble"]
        server.close()

    with_network(play)


def test_each_end_acts_under_the_name_of_its_own_node() -> None:
    names: list[str] = []

    def note(who: str) -> None:
        record = logging.makeLogRecord({})
        NodeFilter().filter(record)
        names.append(f"{who}: {record.__dict__['node']}")

    class Named(Recorder):
        def on_frame(self, frame: bytearray) -> None:
            note("frame")
            super().on_frame(frame)

    async def play(network: InProcessNetwork, accepted: list[Recorder]) -> None:
        def accept(connection: Connection) -> Recorder:
            note("accept")
            accepted.append(Named(connection))
            return accepted[0]

        with logging_as_node(1):
            server = network.listen("127.0.0.1", 0, accept)
            server.start()
        callers: list[Recorder] = []

        def called(connection: Connection) -> Recorder:
            callers.append(Named(connection))
            return callers[0]

        with logging_as_node(2):
            client = await network.connect("127.0.0.1", server.port, called, timeout_ms=5000)
        client.send(framed(b"there"))
        while not accepted:
            await asyncio.sleep(0)
        await accepted[0].have(1)
        accepted[0].connection.send(framed(b"back"))
        await callers[0].have(1)
        assert names == ["accept: [node 1] ", "frame: [node 1] ", "frame: [node 2] "]
        client.close()
        server.close()

    with_network(play)


def test_a_frame_above_the_limit_ends_both_ends() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        server.connection.limit_frames(10)
        client.connection.send(framed(bytes(10)))
        client.connection.send(framed(bytes(11)))
        assert isinstance(await server.closed, FrameTooLarge)
        assert server.frames == [bytes(10)]
        assert await client.closed is None

    run(play, network=between_neighbours())


def test_a_handler_that_raises_is_logged_and_gets_the_next_frame() -> None:
    async def play(client: Recorder, server: Recorder) -> None:
        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))

        def fail_once(frame: bytearray) -> None:
            Recorder.on_frame(server, frame)
            if len(server.frames) == 1:
                raise RuntimeError("the first frame")

        server.on_frame = fail_once  # type: ignore[method-assign]  # the test's own recorder
        client.connection.send(framed(b"1"))
        client.connection.send(framed(b"2"))
        assert await server.have(2) == [b"1", b"2"]
        assert reported == ["the first frame"]

    run(play, network=between_neighbours())


def test_records_of_a_file_arrive_and_a_file_that_was_cut_ends_the_connection(tmp_path: Path) -> None:
    def ignored(error: OSError) -> None:
        raise AssertionError(error)

    async def play(client: Recorder, server: Recorder) -> None:
        file = OsDisk().open(str(tmp_path / "log"), create=True)
        file.append([b"0123456789"])
        records = file.range(10, 0, ignored)
        server.connection.send([(10).to_bytes(4, "big"), records])
        assert await client.have(1) == [b"0123456789"]
        file.truncate(5)
        server.connection.send([(10).to_bytes(4, "big"), records])
        assert isinstance(await server.closed, FileUnreadable)
        assert await client.closed is None
        file.close()

    run(play, network=between_neighbours())


def test_a_port_that_is_bound_and_not_served_yet_keeps_its_callers_waiting() -> None:
    async def play(network: InProcessNetwork, accepted: list[Recorder]) -> None:
        def accept(connection: Connection) -> Recorder:
            accepted.append(Recorder(connection))
            return accepted[-1]

        server = network.listen("127.0.0.1", 0, accept)
        early = await network.connect("127.0.0.1", server.port, Recorder, timeout_ms=5000)
        early.send(framed(b"early"))
        assert isinstance(early, SocketConnection)
        assert accepted == []
        server.start()
        while not accepted:
            await asyncio.sleep(0.001)
        assert await accepted[0].have(1) == [b"early"]
        late = await network.connect("127.0.0.1", server.port, Recorder, timeout_ms=5000)
        assert isinstance(late, InProcessConnection)
        while len(accepted) < 2:
            await asyncio.sleep(0)
        in_between = Recorder(await network.connect("127.0.0.1", server.port, Recorder, timeout_ms=5000))
        server.close()
        while not in_between.connection.closed:
            await asyncio.sleep(0)
        assert len(accepted) == 2
        late.send(framed(b"goes on"))
        assert await accepted[1].have(1) == [b"goes on"]
        with pytest.raises(OSError, match="Connect call failed"):
            await network.connect("127.0.0.1", server.port, Recorder, timeout_ms=5000)
        early.close()
        late.close()
        accepted[0].connection.close()

    with_network(play)


def test_the_same_port_of_another_address_is_somebody_else() -> None:
    async def play(network: InProcessNetwork, accepted: list[Recorder]) -> None:
        server = network.listen("127.0.0.1", 0, Recorder)
        server.start()
        with pytest.raises(OSError, match="Connect call failed"):
            await network.connect("127.0.0.2", server.port, Recorder, timeout_ms=5000)
        server.close()

    with_network(play)


def test_a_protected_port_is_reached_through_its_protection() -> None:
    async def play(network: InProcessNetwork, accepted: list[Recorder]) -> None:
        def accept(connection: Connection) -> Recorder:
            accepted.append(Recorder(connection))
            return accepted[-1]

        server = network.listen("127.0.0.1", 0, accept, transport=SocketConnection)
        server.start()
        client = await network.connect("127.0.0.1", server.port, Recorder, timeout_ms=5000)
        assert isinstance(client, SocketConnection)
        while not accepted:
            await asyncio.sleep(0.001)
        server.close()
        client.close()
        accepted[0].connection.close()

    with_network(play)
