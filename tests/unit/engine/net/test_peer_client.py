"""The client of another node: requests in flight, broken connections, reconnecting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backend.engine.apis.context import Api
from backend.engine.net.peer_client import PeerClient
from backend.engine.ports import system_ports
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from tests.unit.engine.net.node import node, pipelined, run

HEARTBEAT = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@asynccontextmanager
async def peer(port: int) -> AsyncIterator[PeerClient]:
    ports = system_ports()
    client = PeerClient(ports, "127.0.0.1", port, client_id="peer")
    try:
        yield client
    finally:
        client.close()
        ports.workers.close()


def echo(_services: Any, _context: Any, request: Any) -> m.HeartbeatResponse:
    return m.HeartbeatResponse(error_code=request.generation_id)


def numbered(number: int) -> m.HeartbeatRequest:
    return m.HeartbeatRequest(group_id="g", generation_id=number, member_id="m")


def test_many_requests_share_one_connection_and_get_their_own_answers() -> None:
    async def play() -> None:
        async with node(pipelined(Api(12, 0, 4, echo))) as served, peer(served.port) as client:
            answers = await asyncio.gather(*(client.send(numbered(n), 4, timeout_ms=5000) for n in range(200)))
            assert [getattr(answer, "error_code", None) for answer in answers] == list(range(200))
            assert served.services.metrics.open_connections == 1

    run(play)


def test_a_node_that_cannot_be_reached_is_a_network_exception_and_is_tried_again() -> None:
    async def play() -> None:
        async with node() as free:
            port = free.port
        async with peer(port) as client:
            with pytest.raises(KafkaError) as raised:
                await client.send(HEARTBEAT, 4, timeout_ms=5000)
            assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
            async with node(Api(12, 0, 4, echo), port=port):
                answer: Any = await client.send(numbered(5), 4, timeout_ms=5000)
                assert answer.error_code == 5

    run(play)


def test_requests_in_flight_fail_when_the_connection_breaks() -> None:
    async def play() -> None:
        started = asyncio.Event()

        async def never(*_: Any) -> m.HeartbeatResponse:
            started.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with node(Api(12, 0, 4, never)) as served, peer(served.port) as client:
            requests = [asyncio.create_task(client.send(HEARTBEAT, 4, timeout_ms=20_000)) for _ in range(3)]
            await started.wait()
            await served.listener.close()
            for request in requests:
                with pytest.raises(KafkaError) as raised:
                    await request
                assert raised.value.code is ErrorCode.NETWORK_EXCEPTION

    run(play)


def test_a_late_answer_is_a_timeout_and_drops_the_connection() -> None:
    async def play() -> None:
        calls = 0

        async def late_once(*_: Any) -> m.HeartbeatResponse:
            nonlocal calls
            calls += 1
            if calls == 1:
                await asyncio.Event().wait()
            return m.HeartbeatResponse(error_code=9)

        async with node(Api(12, 0, 4, late_once)) as served, peer(served.port) as client:
            with pytest.raises(KafkaError) as raised:
                await client.send(HEARTBEAT, 4, timeout_ms=50)
            assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
            answer: Any = await client.send(HEARTBEAT, 4, timeout_ms=5000)
            assert answer.error_code == 9

    run(play)


def test_each_request_has_its_own_time_whatever_was_sent_before_it() -> None:
    async def play() -> None:
        async def by_number(_services: Any, _context: Any, request: Any) -> m.HeartbeatResponse:
            await asyncio.sleep(request.generation_id / 1000)
            return m.HeartbeatResponse(error_code=request.generation_id)

        async with node(pipelined(Api(12, 0, 4, by_number))) as served, peer(served.port) as client:
            await client.send(numbered(0), 4, timeout_ms=5000)
            # The timer of the first is the later one; that of the second ends while the third still has time.
            first = asyncio.create_task(client.send(numbered(150), 4, timeout_ms=60_000))
            second = asyncio.create_task(client.send(numbered(40), 4, timeout_ms=20_000))
            answer: Any = await second
            assert answer.error_code == 40
            answer = await first
            assert answer.error_code == 150
            slow = asyncio.create_task(client.send(numbered(30_000), 4, timeout_ms=60_000))
            began_s = asyncio.get_running_loop().time()
            with pytest.raises(KafkaError) as raised:
                await client.send(numbered(30_000), 4, timeout_ms=100)
            assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert asyncio.get_running_loop().time() - began_s < 5.0
            with pytest.raises(KafkaError) as raised:
                await slow
            assert raised.value.code is ErrorCode.NETWORK_EXCEPTION

    run(play)


def test_a_closed_client_refuses_at_once() -> None:
    async def play() -> None:
        async with node(Api(12, 0, 4, echo)) as served, peer(served.port) as client:
            client.close()
            with pytest.raises(KafkaError) as raised:
                await client.send(HEARTBEAT, 4, timeout_ms=5000)
            assert raised.value.code is ErrorCode.NETWORK_EXCEPTION

    run(play)
