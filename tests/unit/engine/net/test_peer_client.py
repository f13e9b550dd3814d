"""The client of another node: requests in flight, broken connections, reconnecting; over TCP and in-process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from backend.engine.apis import sasl
from backend.engine.apis.api_declaration import Api, Handler
from backend.engine.common.log_context import NodeFilter, logging_as_node
from backend.engine.config.listener_security import SaslClientSettings
from backend.engine.net.peer_client import IN_FLIGHT_MAX, PeerClient
from backend.engine.net.peer_security import OPEN, PeerSecurity
from backend.engine.ports import system_ports
from backend.engine.ports.in_process_network import InProcessNetwork
from backend.engine.ports.network import Network
from backend.engine.ports.socket_network import SocketNetwork
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message
from tests.unit.engine.net.node import node, pipelined, run
from tests.unit.engine.net.test_authentication import SETTINGS

HEARTBEAT = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.fixture(params=["TCP", "neighbours"])
def network(request: pytest.FixtureRequest) -> Network:
    return SocketNetwork() if request.param == "TCP" else InProcessNetwork(SocketNetwork())


@asynccontextmanager
async def peer(port: int, network: Network, security: PeerSecurity = OPEN) -> AsyncIterator[PeerClient]:
    ports = replace(system_ports(), network=network)
    client = PeerClient(ports, "127.0.0.1", port, client_id="peer", security=security)
    try:
        yield client
    finally:
        client.close()
        ports.workers.close()


def echo(_services: Any, _context: Any, request: Any) -> m.HeartbeatResponse:
    return m.HeartbeatResponse(error_code=request.generation_id)


async def refused(code: ErrorCode, sending: Awaitable[Message]) -> None:
    with pytest.raises(KafkaError) as raised:
        await sending
    assert raised.value.code is code


def numbered(number: int) -> m.HeartbeatRequest:
    return m.HeartbeatRequest(group_id="g", generation_id=number, member_id="m")


def test_many_requests_share_one_connection_and_get_their_own_answers(network: Network) -> None:
    async def play() -> None:
        async with (
            node(pipelined(Api(12, 0, 4, echo)), network=network) as served,
            peer(served.port, network) as client,
        ):
            answers = await asyncio.gather(*(client.send(numbered(n), 4, timeout_ms=5000) for n in range(200)))
            assert [getattr(answer, "error_code", None) for answer in answers] == list(range(200))
            assert served.services.metrics.open_connections == 1

    run(play)


def test_a_fetch_is_answered_the_same_by_message_and_by_frame(network: Network) -> None:
    """In-process it arrives unencoded, except the first, which is sent before anybody is accepted."""
    seen: list[m.FetchRequest] = []

    def fetch(_services: Any, context: Any, request: m.FetchRequest) -> m.FetchResponse:
        seen.append(request)
        assert context.header == (1, 18, len(seen) - 1, "peer")
        row = m.FetchResponse.Responses.Partitions(
            partition_index=3, high_watermark=len(seen), records=b"records", aborted_transactions=[]
        )
        responses = [m.FetchResponse.Responses(topic_id=bytes(range(16)), partitions=[row])]
        return m.FetchResponse(session_id=5, responses=responses)

    async def play() -> None:
        async with (
            node(pipelined(Api(1, 4, 18, fetch)), network=network) as served,
            peer(served.port, network) as client,
        ):
            part = m.FetchRequest.Topics.Partitions(partition=3, fetch_offset=17)
            for turn in range(1, 4):
                request = m.FetchRequest(
                    session_epoch=turn,
                    topics=[m.FetchRequest.Topics(topic_id=bytes(range(16)), partitions=[part])],
                    replica_state=m.FetchRequest.ReplicaState(replica_id=2, replica_epoch=9),
                )
                answer: Any = await client.send(request, 18, timeout_ms=5000)
                assert repr(seen[-1]) == repr(request)
                assert (seen[-1] is request) == (isinstance(network, InProcessNetwork) and turn > 1)
                (topic,) = answer.responses
                (row,) = topic.partitions
                assert (answer.session_id, bytes(topic.topic_id)) == (5, bytes(range(16)))
                assert (row.partition_index, row.high_watermark, bytes(row.records)) == (3, turn, b"records")
            assert served.services.metrics.request("Fetch").count == 3

    run(play)


def test_who_has_to_prove_who_they_are_does_so_before_a_fetch_is_seen(network: Network) -> None:
    """In-process connections send frames, too, if the listener demands it."""
    seen: list[m.FetchRequest] = []

    def fetch(_services: Any, context: Any, request: m.FetchRequest) -> m.FetchResponse:
        seen.append(request)
        assert context.user == "alice"
        return m.FetchResponse(session_id=len(seen))

    async def play() -> None:
        apis = (*sasl.APIS, Api(1, 4, 18, fetch))
        async with node(*apis, protocol="SASL_PLAINTEXT", properties=SETTINGS, network=network) as served:
            async with peer(served.port, network) as stranger:
                for _ in range(2):
                    await refused(ErrorCode.NETWORK_EXCEPTION, stranger.send(m.FetchRequest(), 18, timeout_ms=5000))
            assert seen == []
            security = PeerSecurity(sasl=SaslClientSettings("PLAIN", "alice", "alice-secret"))
            async with peer(served.port, network, security) as client:
                for number in (1, 2, 3):
                    request = m.FetchRequest(session_epoch=number)
                    answer: Any = await client.send(request, 18, timeout_ms=5000)
                    assert answer.session_id == number
                    assert seen[-1] == request
                    assert seen[-1] is not request

    run(play)


def test_a_fetch_that_is_not_served_ends_the_connection(network: Network) -> None:
    async def play() -> None:
        async with (
            node(Api(1, 4, 17, echo), Api(12, 0, 4, echo), network=network) as served,
            peer(served.port, network) as client,
        ):
            await client.send(numbered(1), 4, timeout_ms=5000)
            await refused(ErrorCode.NETWORK_EXCEPTION, client.send(m.FetchRequest(), 18, timeout_ms=5000))
            assert served.services.metrics.malformed_frames == 1
            await client.send(numbered(1), 4, timeout_ms=5000)

    run(play)


def test_a_node_that_cannot_be_reached_is_a_network_exception_and_is_tried_again(network: Network) -> None:
    async def play() -> None:
        async with node(network=network) as free:
            port = free.port
        async with peer(port, network) as client:
            await refused(ErrorCode.NETWORK_EXCEPTION, client.send(HEARTBEAT, 4, timeout_ms=5000))
            async with node(Api(12, 0, 4, echo), port=port, network=network):
                answer: Any = await client.send(numbered(5), 4, timeout_ms=5000)
                assert answer.error_code == 5

    run(play)


def test_requests_in_flight_fail_when_the_connection_breaks(network: Network) -> None:
    async def play() -> None:
        started = asyncio.Event()

        async def never(*_: Any) -> m.HeartbeatResponse:
            started.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with node(Api(12, 0, 4, never), network=network) as served, peer(served.port, network) as client:
            requests = [asyncio.create_task(client.send(HEARTBEAT, 4, timeout_ms=20_000)) for _ in range(3)]
            await started.wait()
            await served.listener.close()
            for request in requests:
                await refused(ErrorCode.NETWORK_EXCEPTION, request)

    run(play)


def test_a_late_answer_is_a_timeout_and_drops_the_connection(network: Network) -> None:
    async def play() -> None:
        calls = 0

        async def late_once(*_: Any) -> m.HeartbeatResponse:
            nonlocal calls
            calls += 1
            if calls == 1:
                await asyncio.Event().wait()
            return m.HeartbeatResponse(error_code=9)

        async with node(Api(12, 0, 4, late_once), network=network) as served, peer(served.port, network) as client:
            await refused(ErrorCode.REQUEST_TIMED_OUT, client.send(HEARTBEAT, 4, timeout_ms=50))
            answer: Any = await client.send(HEARTBEAT, 4, timeout_ms=5000)
            assert answer.error_code == 9

    run(play)


async def by_number(_services: Any, _context: Any, request: Any) -> m.HeartbeatResponse:
    """Answers after as many milliseconds as the request's number says."""
    await asyncio.sleep(request.generation_id / 1000)
    return m.HeartbeatResponse(error_code=request.generation_id)


NEVER = 1_000_000
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'


@asynccontextmanager
async def answering(handler: Handler[Any], network: Network) -> AsyncIterator[PeerClient]:
    """A client of a node whose requests overlap."""
    async with node(pipelined(Api(12, 0, 4, handler)), network=network) as served, peer(served.port, network) as client:
        yield client


async def timed_out(sending: Awaitable[Message]) -> None:
    """It has no answer in its own time, which is far less than that of any other request."""
    began_s = time.monotonic()
    await refused(ErrorCode.REQUEST_TIMED_OUT, sending)
    assert time.monotonic() - began_s < 5.0


def test_a_request_with_less_time_than_those_before_it_ends_first(network: Network) -> None:
    async def play() -> None:
        async with answering(by_number, network) as client:
            await client.send(numbered(0), 4, timeout_ms=60_000)
            slow = asyncio.create_task(client.send(numbered(NEVER), 4, timeout_ms=60_000))
            await asyncio.sleep(0)
            await timed_out(client.send(numbered(NEVER), 4, timeout_ms=100))
            await refused(ErrorCode.NETWORK_EXCEPTION, slow)

    run(play)


def test_a_request_with_more_time_than_those_before_it_ends_too(network: Network) -> None:
    async def play() -> None:
        async with answering(by_number, network) as client:
            await client.send(numbered(0), 4, timeout_ms=50)
            answer: Any = await client.send(numbered(90), 4, timeout_ms=20_000)
            assert answer.error_code == 90
            await client.send(numbered(0), 4, timeout_ms=50)
            await timed_out(client.send(numbered(NEVER), 4, timeout_ms=200))

    run(play)


def test_a_request_that_was_never_sent_ends_in_its_time_and_leaves_the_connection(network: Network) -> None:
    async def play() -> None:
        async with answering(by_number, network) as client:
            await client.send(numbered(0), 4, timeout_ms=60_000)
            sending = (client.send(numbered(500), 4, timeout_ms=60_000) for _ in range(IN_FLIGHT_MAX))
            others = [asyncio.create_task(coroutine) for coroutine in sending]
            await asyncio.sleep(0)
            await timed_out(client.send(numbered(0), 4, timeout_ms=100))
            answers = await asyncio.gather(*others)
            assert [getattr(answer, "error_code", None) for answer in answers] == [500] * IN_FLIGHT_MAX

    run(play)


def test_those_who_are_late_together_and_try_again_share_the_next_connection(network: Network) -> None:
    async def play() -> None:
        late = True

        async def late_at_first(*_: Any) -> m.HeartbeatResponse:
            await asyncio.sleep(NEVER if late else 0)
            return m.HeartbeatResponse(error_code=3)

        async def twice(client: PeerClient) -> Any:
            nonlocal late
            # The first late request ends the connection, and with it the requests that are late a moment after it.
            with pytest.raises(KafkaError) as raised:
                await client.send(HEARTBEAT, 4, timeout_ms=100)
            assert raised.value.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)
            late = False
            return await client.send(HEARTBEAT, 4, timeout_ms=5000)

        async with answering(late_at_first, network) as client:
            answers = await asyncio.gather(*(twice(client) for _ in range(3)))
            assert [answer.error_code for answer in answers] == [3, 3, 3]

    run(play)


def test_a_closed_client_leaves_no_timer(network: Network) -> None:
    async def play() -> None:
        async with answering(by_number, network) as client:
            await client.send(numbered(0), 4, timeout_ms=60_000)
            client.close()
            assert client._timer is None

    run(play)


def test_what_a_node_does_for_another_bears_its_own_name(network: Network) -> None:
    async def play() -> None:
        names: list[str] = []

        def named(*_: Any) -> m.HeartbeatResponse:
            record = logging.LogRecord("x", logging.INFO, "x", 1, "x", None, None)
            NodeFilter().filter(record)
            names.append(record.node)  # type: ignore[attr-defined]  # the filter's
            return m.HeartbeatResponse()

        with logging_as_node(1):
            serving = node(Api(12, 0, 4, named), network=network)
            served = await serving.__aenter__()
        with logging_as_node(2):
            async with peer(served.port, network) as client:
                await client.send(HEARTBEAT, 4, timeout_ms=5000)
        await serving.__aexit__(None, None, None)
        assert names == ["[node 1] "]

    run(play)


def test_a_client_that_does_not_say_who_it_is_is_put_out_and_leaves_nothing_behind(network: Network) -> None:
    async def play() -> None:
        async with (
            node(
                Api(12, 0, 4, echo), network=network, protocol="SASL_PLAINTEXT",
                properties={
                    "connection.failed.authentication.delay.ms": "50",
                    "sasl.enabled.mechanisms": "PLAIN",
                    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
                },
            ) as served,
            peer(served.port, network) as client,
        ):  # fmt: skip
            await refused(ErrorCode.NETWORK_EXCEPTION, client.send(HEARTBEAT, 4, timeout_ms=5000))
            assert served.services.metrics.open_connections == 0

    run(play)


def test_whoever_asks_again_and_again_lets_others_have_their_turn(network: Network) -> None:
    """As a follower that is far behind: each answer is there at once, and it asks for the next records."""

    def fetch(_services: Any, _context: Any, _request: m.FetchRequest) -> m.FetchResponse:
        return m.FetchResponse(session_id=5)

    async def play() -> None:
        async with (
            node(pipelined(Api(1, 4, 18, fetch)), network=network) as served,
            peer(served.port, network) as client,
        ):
            await client.send(m.FetchRequest(), 18, timeout_ms=5000)
            turns = 0

            def turn() -> None:
                nonlocal turns
                turns += 1
                asyncio.get_running_loop().call_soon(turn)

            turn()
            for _ in range(100):
                await client.send(m.FetchRequest(), 18, timeout_ms=5000)
            assert turns > 100

    run(play)


def test_a_closed_client_refuses_at_once(network: Network) -> None:
    async def play() -> None:
        async with node(Api(12, 0, 4, echo), network=network) as served, peer(served.port, network) as client:
            client.close()
            await refused(ErrorCode.NETWORK_EXCEPTION, client.send(HEARTBEAT, 4, timeout_ms=5000))

    run(play)
