"""The promises of one connection of a listener to its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from backend.engine.apis.api_declaration import Api, Deferred, NoAnswer
from backend.engine.controller.image.metadata_image import BROKER_RESOURCE, MetadataImage
from backend.engine.net.listener import WAITING_MAX
from backend.engine.ports import tasks
from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.buffers import Chunk
from backend.protocol.errors import ErrorCode, KafkaError
from tests.unit.engine.net.node import node, pipelined, run

HEARTBEAT = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def api_versions() -> m.ApiVersionsRequest:
    return m.ApiVersionsRequest(client_software_name="test", client_software_version="1")


def test_api_versions_lists_what_is_served() -> None:
    async def play() -> None:
        async with node(Api(12, 0, 4, lambda *_: None)) as served:
            client = await served.client()
            client.send(api_versions(), 4, 9)
            correlation_id, answer = await client.answer(m.ApiVersionsResponse, 4)
            assert correlation_id == 9
            assert [(key.api_key, key.min_version, key.max_version) for key in answer.api_keys] == [
                (12, 0, 4),
                (18, 0, 4),
            ]
            assert answer.finalized_features_epoch == 7
            assert "transaction.version" in {feature.name for feature in answer.supported_features}

    run(play)


def test_features_whose_lowest_level_is_zero_are_hidden_from_clients_before_version_4() -> None:
    async def play() -> None:
        async with node() as served:
            client = await served.client()
            client.send(api_versions(), 3, 1)
            _, answer = await client.answer(m.ApiVersionsResponse, 3)
            assert [feature.name for feature in answer.supported_features] == ["metadata.version"]

    run(play)


def test_api_versions_of_an_unknown_version_is_answered_in_version_0() -> None:
    async def play() -> None:
        async with node() as served:
            client = await served.client()
            client.send_bytes(bytes.fromhex("000000110012000500000007000178000278027900"))
            assert (await client.frame()).hex() == "00000007002300000001001200000004"

    run(play)


def test_a_malformed_frame_closes_that_connection_only_and_is_counted() -> None:
    async def play() -> None:
        async with node() as served:
            good, bad = await served.client(), await served.client()
            bad.send_bytes(b"\x00\x00\x00\x04\x00\x12\x00\x00")
            assert await bad.is_closed()
            good.send(api_versions(), 4, 1)
            assert (await good.answer(m.ApiVersionsResponse, 4))[0] == 1
            assert served.services.metrics.malformed_frames == 1

    run(play)


def test_unserved_apis_and_versions_and_oversized_frames_close_the_connection() -> None:
    async def play() -> None:
        async with node(Api(12, 2, 4, lambda *_: None), socket_request_max_bytes="1000") as served:
            for data in (
                b"".join(frames.encode_request(m.MetadataRequest(), 12, 1, "x")),
                b"".join(frames.encode_request(HEARTBEAT, 1, 1, "x")),
                (1001).to_bytes(4, "big"),
                (-1).to_bytes(4, "big", signed=True),
                b"GET / HTTP/1.1\r\n\r\n",
            ):
                client = await served.client()
                client.send_bytes(data)
                assert await client.is_closed(), data
            assert served.services.metrics.malformed_frames == 5
            assert served.services.metrics.open_connections == 0

    run(play)


def test_a_request_waits_until_the_one_before_it_is_answered() -> None:
    async def play() -> None:
        started: list[int] = []
        gate = asyncio.Event()

        async def slow(_services: Any, context: Any, _request: Any) -> m.HeartbeatResponse:
            started.append(context.header.correlation_id)
            await gate.wait()
            return m.HeartbeatResponse()

        async with node(Api(12, 0, 4, slow)) as served:
            client = await served.client()
            for correlation_id in (1, 2, 3):
                client.send(HEARTBEAT, 4, correlation_id)
            while not started:
                await asyncio.sleep(0)
            other = await served.client()
            other.send(api_versions(), 4, 1)
            await other.answer(m.ApiVersionsResponse, 4)
            assert started == [1]
            gate.set()
            assert [(await client.answer(m.HeartbeatResponse, 4))[0] for _ in range(3)] == [1, 2, 3]
            assert started == [1, 2, 3]

    run(play)


def test_pipelined_requests_start_together_and_are_answered_in_order() -> None:
    async def play() -> None:
        waiting: dict[int, asyncio.Future[m.HeartbeatResponse]] = {}
        all_started = asyncio.Event()

        def pending(_services: Any, context: Any, _request: Any) -> asyncio.Future[m.HeartbeatResponse]:
            future: asyncio.Future[m.HeartbeatResponse] = asyncio.get_running_loop().create_future()
            waiting[context.header.correlation_id] = future
            if len(waiting) == 3:
                all_started.set()
            return future

        async with node(pipelined(Api(12, 0, 4, pending))) as served:
            client = await served.client()
            for correlation_id in (1, 2, 3):
                client.send(HEARTBEAT, 4, correlation_id)
            client.send(api_versions(), 4, 4)
            await all_started.wait()
            for correlation_id in (3, 2, 1):
                waiting[correlation_id].set_result(m.HeartbeatResponse(error_code=correlation_id))
            for correlation_id in (1, 2, 3):
                got, answer = await client.answer(m.HeartbeatResponse, 4)
                assert (got, answer.error_code) == (correlation_id, correlation_id)
            assert (await client.answer(m.ApiVersionsResponse, 4))[0] == 4

    run(play)


def test_what_a_handler_raises_becomes_an_error_code_or_closes_the_connection() -> None:
    async def play() -> None:
        raised: list[BaseException] = [
            KafkaError(ErrorCode.NOT_COORDINATOR, "group g is elsewhere"),
            RuntimeError("a bug"),
            NoAnswer(),
        ]

        def failing(_services: Any, _context: Any, _request: Any) -> m.HeartbeatResponse:
            raise raised.pop(0)

        async with node(Api(12, 0, 4, failing)) as served:
            client = await served.client()
            codes = []
            for correlation_id in (1, 2):
                client.send(HEARTBEAT, 4, correlation_id)
                codes.append((await client.answer(m.HeartbeatResponse, 4))[1].error_code)
            assert codes == [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR]
            client.send(HEARTBEAT, 4, 3)
            assert await client.is_closed()
            assert served.services.metrics.request("Heartbeat").errors == 2

    run(play)


def test_a_handler_without_an_answer_leaves_the_connection_open() -> None:
    async def play() -> None:
        async with node(Api(12, 0, 4, lambda *_: None)) as served:
            client = await served.client()
            client.send(HEARTBEAT, 4, 1)
            client.send(api_versions(), 4, 2)
            assert (await client.answer(m.ApiVersionsResponse, 4))[0] == 2

    run(play)


def test_connections_above_the_limit_wait_until_others_have_gone() -> None:
    async def play() -> None:
        async with node(max_connections="1") as served:
            first, second = await served.client(), await served.client()
            for client in (first, second):
                client.send(api_versions(), 4, 1)
            await first.answer(m.ApiVersionsResponse, 4)
            assert not await second.has_an_answer()
            assert served.services.metrics.open_connections == 1
            first.writer.close()
            assert (await second.answer(m.ApiVersionsResponse, 4))[0] == 1
            assert served.services.metrics.open_connections == 1

    run(play)


def test_not_too_many_connections_wait() -> None:
    async def play() -> None:
        async with node(max_connections="0") as served:
            clients = [await served.client() for _ in range(WAITING_MAX)]
            assert await (await served.client()).is_closed()
            assert served.services.metrics.refused_connections == 1
            assert not await clients[0].has_an_answer()

    run(play)


def test_connections_of_one_address_have_a_limit_of_their_own() -> None:
    async def play() -> None:
        async with node(max_connections_per_ip="1") as served:
            first = await served.client()
            first.send(api_versions(), 4, 1)
            await first.answer(m.ApiVersionsResponse, 4)
            assert await (await served.client()).is_closed()
            # A client that leaves makes room.
            first.writer.close()
            while served.services.metrics.open_connections:
                await asyncio.sleep(0)
            last = await served.client()
            last.send(api_versions(), 4, 2)
            assert (await last.answer(m.ApiVersionsResponse, 4))[0] == 2

    run(play)


@pytest.mark.parametrize(
    ("name", "value", "closes"),
    [
        ("max.connections", "1", False),
        ("listener.name.plaintext.max.connections", "1", False),
        ("max.connections.per.ip", "1", True),
        ("max.connections.per.ip.overrides", "127.0.0.1:1", True),
    ],
)
def test_a_limit_of_connections_is_changed_while_the_broker_runs(name: str, value: str, closes: bool) -> None:
    async def play() -> None:
        async with node() as served:
            first = await served.client()
            first.send(api_versions(), 4, 1)
            await first.answer(m.ApiVersionsResponse, 4)
            metadata: Any = served.services.metadata
            metadata.image = MetadataImage(offset=8, configs=Map({(BROKER_RESOURCE, "1"): Map({name: value})}))
            second = await served.client()
            if closes:
                assert await second.is_closed()
                assert served.services.metrics.refused_connections == 1
            else:
                second.send(api_versions(), 4, 1)
                assert not await second.has_an_answer()

    run(play)


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    async def play() -> None:
        gate = asyncio.Event()

        async def slow(*_: Any) -> m.HeartbeatResponse:
            await gate.wait()
            return m.HeartbeatResponse()

        async with node(Api(12, 0, 4, slow), connections_max_idle_ms="50") as served:
            busy, idle = await served.client(), await served.client()
            busy.send(HEARTBEAT, 4, 1)
            assert await idle.is_closed()
            gate.set()
            assert (await busy.answer(m.HeartbeatResponse, 4))[0] == 1

    run(play)


def test_nothing_that_waits_begins_within_what_settles_the_request_before_it() -> None:
    """A fetch is also completed in the middle of other work, such as a change of its partition's role."""

    async def play() -> None:
        waiting: list[tasks.EagerFuture[m.HeartbeatResponse]] = []
        begun: list[int] = []

        def handle(_services: Any, context: Any, _request: Any) -> tasks.EagerFuture[m.HeartbeatResponse]:
            begun.append(context.header.correlation_id)
            waiting.append(tasks.eager_future())
            return waiting[-1]

        async with node(Api(12, 0, 4, handle)) as served:
            client, other = await served.client(), await served.client()
            for correlation_id in (1, 2):
                client.send(HEARTBEAT, 4, correlation_id)
            while not begun:
                await asyncio.sleep(0)
            other.send(api_versions(), 4, 1)
            await other.answer(m.ApiVersionsResponse, 4)  # by now the second one has come too
            waiting[0].set_result(m.HeartbeatResponse())
            assert begun == [1]
            assert (await client.answer(m.HeartbeatResponse, 4))[0] == 1
            assert begun == [1, 2]
            waiting[1].set_result(m.HeartbeatResponse())
            assert served.services.metrics.request("Heartbeat").count == 2, "it is sent at once"
            assert (await client.answer(m.HeartbeatResponse, 4))[0] == 2

    run(play)


class Deferring:
    """Serves heartbeats without decoding them, and answers when the test lets it."""

    def __init__(self) -> None:
        self.waiting: dict[int, tasks.EagerFuture[Sequence[Chunk]]] = {}

    def __call__(self, _services: Any, _context: Any, frame: bytearray) -> Deferred:
        header, _ = frames.decode_request_header(frame)
        self.waiting[header.correlation_id] = tasks.eager_future()
        return Deferred(header, self.waiting[header.correlation_id])

    def answer(self, correlation_id: int) -> None:
        answer = m.HeartbeatResponse(error_code=correlation_id)
        self.waiting[correlation_id].set_result(frames.encode_response(answer, 4, correlation_id))


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.001)


def decoded(_services: Any, context: Any, _request: Any) -> m.HeartbeatResponse:
    return m.HeartbeatResponse(error_code=-context.header.correlation_id)


@pytest.mark.parametrize("overlaps", [True, False])
def test_what_comes_behind_an_answer_that_is_waited_for_is_answered_behind_it(overlaps: bool) -> None:
    async def play() -> None:
        deferring = Deferring()
        api = replace(Api(12, 0, 4, decoded, fast_path=deferring), pipelined=overlaps)
        async with node(api) as served:
            client = await served.client()
            for correlation_id in (1, 2):
                client.send(HEARTBEAT, 4, correlation_id)
            client.send(api_versions(), 4, 3)
            await until(lambda: deferring.waiting)
            assert not await client.has_an_answer(0.05)
            assert list(deferring.waiting) == [1], "those behind it go the general way"
            deferring.answer(1)
            assert [(await client.answer(m.HeartbeatResponse, 4))[0] for _ in (1, 2)] == [1, 2]
            assert (await client.answer(m.ApiVersionsResponse, 4))[0] == 3
            client.send(HEARTBEAT, 4, 4)
            await until(lambda: 4 in deferring.waiting)
            deferring.answer(4)
            number, answer = await client.answer(m.HeartbeatResponse, 4)
            assert (number, answer.error_code) == (4, 4)
            assert served.services.metrics.request("Heartbeat").count == 3

    run(play)


def test_an_answer_that_nobody_waits_for_any_more_is_dropped() -> None:
    async def play() -> None:
        deferring = Deferring()
        async with node(Api(12, 0, 4, decoded, fast_path=deferring)) as served:
            client, other = await served.client(), await served.client()
            client.send(HEARTBEAT, 4, 1)
            await until(lambda: deferring.waiting)
            client.writer.close()
            await until(lambda: served.services.metrics.open_connections == 1)
            deferring.answer(1)
            other.send(HEARTBEAT, 4, 2)
            await until(lambda: 2 in deferring.waiting)
            deferring.answer(2)
            assert (await other.answer(m.HeartbeatResponse, 4))[0] == 2
            assert served.services.metrics.request("Heartbeat").errors == 0

    run(play)
