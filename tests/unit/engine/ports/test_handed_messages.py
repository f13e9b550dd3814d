"""In-process messages in the place of frames: order, limits, ends; a listener that takes none gets frames."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import cast

from backend.engine.ports.disk import OsDisk
from backend.engine.ports.file_range import FileUnreadable
from backend.engine.ports.in_process_network import InProcessConnection, InProcessNetwork
from backend.engine.ports.network import Connection, FrameTooLarge, LocalMessage
from backend.engine.ports.socket_connection import OUTPUT_HIGH_BYTES
from backend.engine.ports.socket_network import SocketNetwork
from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.buffers import Chunk
from backend.protocol.frames import RequestHeader
from backend.protocol.local_messages import LocalFetchRequest, LocalFetchResponse
from tests.unit.engine.ports.test_network import Recorder, framed


class Taker(Recorder):
    """Takes both; `log` has them in their order."""

    accepts_messages = True

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.log: list[object] = []

    def on_frame(self, frame: bytearray) -> None:
        self.log.append(bytes(frame))
        super().on_frame(frame)

    def on_message(self, message: LocalMessage) -> None:
        self.log.append(message)

    @property
    def own_end(self) -> InProcessConnection:
        return cast(InProcessConnection, self.connection)


class Failing(Taker):
    """Raises at every message."""

    def on_message(self, message: LocalMessage) -> None:
        raise RuntimeError("a bug")


class Deaf(Taker):
    """Knows messages and takes none, as where a peer has to prove first who it is."""

    accepts_messages = False


Play = Callable[[Taker, Taker], Awaitable[None]]


def run(test: Play, *, server_type: type[Taker] = Taker) -> None:
    """Plays with (client, server), once the server's end is accepted."""

    async def bounded() -> None:
        network = InProcessNetwork(SocketNetwork())
        accepted: asyncio.Future[Taker] = asyncio.get_running_loop().create_future()

        def accept(connection: Connection) -> Taker:
            accepted.set_result(server_type(connection))
            return accepted.result()

        server = network.listen("127.0.0.1", 0, accept)
        server.start()
        made: list[Taker] = []

        def called(connection: Connection) -> Taker:
            made.append(Taker(connection))
            return made[0]

        await network.connect("127.0.0.1", server.port, called, timeout_ms=5000)
        assert not made[0].own_end.accepts_messages, "nobody is there yet"
        far = await accepted
        await asyncio.sleep(0)
        try:
            await test(made[0], far)
        finally:
            server.close()

    asyncio.run(asyncio.wait_for(bounded(), 30))


def fetch_request(partitions: int = 1) -> LocalFetchRequest:
    topic = m.FetchRequest.Topics(topic_id=bytes(16))
    topic.partitions = [m.FetchRequest.Topics.Partitions(partition=index) for index in range(partitions)]
    request = m.FetchRequest(topics=[topic], replica_state=m.FetchRequest.ReplicaState(replica_id=1, replica_epoch=2))
    return LocalFetchRequest(RequestHeader(1, 18, 7, "peer"), request)


def answered(records: Chunk | list[bytes] | None) -> LocalFetchResponse:
    row = m.FetchResponse.Responses.Partitions(partition_index=0, records=records)
    return LocalFetchResponse(7, m.FetchResponse(responses=[m.FetchResponse.Responses(partitions=[row])]))


def test_a_message_comes_as_it_is_and_in_order_with_frames() -> None:
    async def play(client: Taker, server: Taker) -> None:
        message = fetch_request()
        client.connection.send(framed(b"before"))
        client.own_end.send_message(message)
        client.connection.send(framed(b"after"))
        assert server.log == []
        await server.have(2)
        assert server.log == [b"before", message, b"after"]
        assert server.log[1] is message

    run(play)


def test_a_message_comes_at_once_unless_something_came_before_or_nobody_reads() -> None:
    async def play(client: Taker, server: Taker) -> None:
        messages = [answered(b"") for _ in range(3)]
        client.own_end.send_message(messages[0])
        assert server.log == [messages[0]]
        client.connection.send(framed(b"frame"))
        client.own_end.send_message(messages[1])
        assert server.log == [messages[0]]
        await asyncio.sleep(0)
        assert server.log == [messages[0], b"frame", messages[1]]
        server.connection.pause_reading()
        client.own_end.send_message(messages[2])
        await asyncio.sleep(0)
        assert len(server.log) == 3
        server.connection.resume_reading()
        await asyncio.sleep(0)
        assert server.log[3:] == [messages[2]]

    run(play)


def test_what_one_end_raises_is_logged_there_and_the_other_goes_on() -> None:
    async def play(client: Taker, server: Taker) -> None:
        logged: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context))
        client.own_end.send_message(fetch_request())
        assert [str(context["exception"]) for context in logged] == ["a bug"]

    run(play, server_type=Failing)


def test_each_end_takes_messages_in_its_own_context() -> None:
    """Log lines bear the name of the node that works, also when it is asked in the middle of another one's work."""
    node: ContextVar[str] = ContextVar("node", default="nobody")

    async def bounded() -> None:
        network = InProcessNetwork(SocketNetwork())
        seen: list[str] = []

        class Named(Taker):
            def on_message(self, message: LocalMessage) -> None:
                seen.append(node.get())
                if isinstance(message, LocalFetchRequest):
                    for end in accepted:
                        end.own_end.send_message(answered(b""))
                    seen.append(node.get())

        accepted: list[Named] = []

        def accept(connection: Connection) -> Named:
            accepted.append(Named(connection))
            return accepted[-1]

        node.set("leader")
        server = network.listen("127.0.0.1", 0, accept)
        server.start()
        callers: list[Named] = []
        for name in ("follower 1", "follower 2"):
            node.set(name)

            def called(connection: Connection) -> Named:
                callers.append(Named(connection))
                return callers[-1]

            await network.connect("127.0.0.1", server.port, called, timeout_ms=5000)
        await asyncio.sleep(0)
        node.set("somebody else")
        callers[0].own_end.send_message(fetch_request())
        assert seen == ["leader", "follower 2", "leader"], "who waits hears at once"
        await asyncio.sleep(0)
        assert seen[3:] == ["follower 1"], "who asks now, in the next turn"
        server.close()

    asyncio.run(asyncio.wait_for(bounded(), 30))


def test_who_takes_no_messages_is_given_none() -> None:
    async def play(client: Taker, server: Taker) -> None:
        assert not client.own_end.accepts_messages
        assert server.own_end.accepts_messages, "the other end takes them all the same"

    run(play, server_type=Deaf)


def test_messages_count_as_much_as_their_frames_about() -> None:
    for partitions in (1, 1_000):
        message = fetch_request(partitions)
        frame = sum(map(len, frames.encode_request(message.message, 18, 7, "peer")))
        assert 0.5 * frame < message.size_bytes < 2 * frame + 64
    for answer in (answered(b""), answered(None), answered(bytes(100_000))):
        size = sum(map(len, frames.encode_response(answer.message, 18, 7)))
        assert 0.5 * size < answer.size_bytes < 2 * size + 64


def test_a_peer_that_does_not_read_is_not_served_further() -> None:
    async def play(client: Taker, server: Taker) -> None:
        server.connection.pause_reading()
        client.own_end.send_message(answered(bytes(OUTPUT_HIGH_BYTES + 1)))
        assert client.connection.output_bytes > OUTPUT_HIGH_BYTES
        server.own_end.send_message(fetch_request())
        await asyncio.sleep(0)
        assert client.log == [], "it would ask for still more"
        server.connection.resume_reading()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(server.log) == len(client.log) == 1
        assert client.connection.output_bytes == 0

    run(play)


def test_a_message_above_the_limit_ends_both_ends() -> None:
    async def play(client: Taker, server: Taker) -> None:
        server.connection.limit_frames(1_000)
        client.own_end.send_message(fetch_request())
        client.own_end.send_message(fetch_request(partitions=100))
        assert isinstance(await server.closed, FrameTooLarge)
        assert len(server.log) == 1
        assert await client.closed is None

    run(play)


def test_nothing_comes_after_the_end() -> None:
    async def play(client: Taker, server: Taker) -> None:
        server.connection.close()
        client.own_end.send_message(answered(b""))
        client.own_end.send_message(answered(b""))
        assert await client.closed is None
        client.own_end.send_message(answered(b""))
        assert server.log == []
        assert client.connection.output_bytes == 0

    run(play)


def test_records_are_one_buffer_and_a_file_that_was_cut_ends_the_connection(tmp_path: Path) -> None:
    def ignored(error: OSError) -> None:
        raise AssertionError(error)

    def records_of(message: object) -> object:
        assert isinstance(message, LocalFetchResponse)
        return message.message.responses[0].partitions[0].records

    async def play(client: Taker, server: Taker) -> None:
        file = OsDisk().open(str(tmp_path / "log"), create=True)
        file.append([b"0123456789"])
        for records in (file.range(10, 0, ignored), [b"01234", b"56789"], memoryview(b"0123456789"), None):
            server.own_end.send_message(answered(records))
        assert [records_of(message) for message in client.log] == [b"0123456789"] * 3 + [None]
        cut = file.range(10, 0, ignored)
        file.truncate(5)
        server.own_end.send_message(answered(cut))
        assert isinstance(await server.closed, FileUnreadable)
        assert await client.closed is None
        assert len(client.log) == 4

    run(play)
