"""The gateway against peers that misbehave: small servers that say nothing, nonsense, or too little."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backend.control.gateway.broker_connection import BrokerAddress, BrokerConnection
from backend.control.gateway.connection_pool import SLOW_FAILURE_S, ConnectionPool, Lane
from backend.control.gateway.gateway_errors import (
    AnswerOverdue,
    BrokerUnavailable,
    ClusterUnavailable,
    ProtocolViolation,
    UnsupportedByBroker,
)
from backend.control.gateway.kafka_client import Gateway, parse_bootstrap, until_settled
from backend.control.gateway.last_response import LastResponse
from backend.control.gateway.requests.metadata_requests import ClusterMetadata, fetch_cluster, last_metadata
from backend.control.gateway.requests.offset_requests import OffsetListing
from backend.protocol import frames, offset_timestamps
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(peer: Peer) -> AsyncIterator[BrokerAddress]:
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await peer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield BrokerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        for writer in writers:
            writer.close()
        server.close()


async def request_of(reader: asyncio.StreamReader) -> tuple[frames.RequestHeader, m.Message]:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return frames.decode_request(await reader.readexactly(size))


def versions(*keys: tuple[int, int, int]) -> m.ApiVersionsResponse:
    own = m.ApiVersionsResponse.ApiKeys
    all_keys = [(18, 0, 4), *keys]
    return m.ApiVersionsResponse(api_keys=[own(api_key=k, min_version=a, max_version=b) for k, a, b in all_keys])


def answer(header: frames.RequestHeader, message: m.Message) -> bytes:
    return b"".join(map(bytes, frames.encode_response(message, header.api_version, header.correlation_id)))


def broker(*keys: tuple[int, int, int], then: Peer | None = None) -> Peer:
    """A peer that negotiates and then behaves as the test sets."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header, _ = await request_of(reader)
        writer.write(answer(header, versions(*keys)))
        if then is not None:
            await then(reader, writer)
        else:
            await reader.read()

    return peer


def run(test: Awaitable[Any]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test, 20)

    asyncio.run(bounded())


METADATA = (3, 0, 13)


async def silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()


async def goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


async def foreign_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(struct.pack(">ii", 4, 4711))
    await reader.read()


@pytest.mark.parametrize(
    ("peer", "error"),
    [
        (silence, AnswerOverdue),
        (nonsense, ProtocolViolation),
        (goodbye, BrokerUnavailable),
        (foreign_answer, ProtocolViolation),
    ],
)
def test_a_peer_that_does_not_negotiate_is_an_unavailable_broker(peer: Peer, error: type[Exception]) -> None:
    async def test() -> None:
        async with serving(peer) as address:
            with pytest.raises(error):
                await BrokerConnection.open(address, timeout_s=0.3)

    run(test())


def test_a_refused_connection_names_the_address() -> None:
    async def test() -> None:
        with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1 "):
            await BrokerConnection.open(BrokerAddress("127.0.0.1", 1))

    run(test())


def test_an_overdue_answer_closes_the_connection_for_all_who_wait_on_it() -> None:
    async def test() -> None:
        async with serving(broker(METADATA)) as address:
            connection = await BrokerConnection.open(address)
            first = asyncio.create_task(connection.ask(m.MetadataRequest(), m.MetadataResponse, timeout_s=0.2))
            second = asyncio.create_task(connection.ask(m.MetadataRequest(), m.MetadataResponse, timeout_s=10))
            results = await asyncio.gather(first, second, return_exceptions=True)
            assert [type(error) for error in results] == [AnswerOverdue, AnswerOverdue]
            assert not connection.usable
            assert connection.in_flight == 0

    run(test())


def test_answers_find_their_questions_also_when_one_was_given_up() -> None:
    async def then(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, second = await request_of(reader), await request_of(reader)
        for header, _ in (first, second):
            writer.write(answer(header, m.MetadataResponse(cluster_id=f"answer-{header.correlation_id}")))
        await reader.read()

    async def test() -> None:
        async with serving(broker(METADATA, then=then)) as address:
            connection = await BrokerConnection.open(address)
            given_up = asyncio.create_task(connection.ask(m.MetadataRequest(), m.MetadataResponse, timeout_s=10))
            await asyncio.sleep(0.05)
            given_up.cancel()
            kept, _ = await connection.ask(m.MetadataRequest(), m.MetadataResponse, timeout_s=10)
            assert kept.cluster_id == "answer-2"
            await connection.close()

    run(test())


def test_an_api_that_the_broker_does_not_have_is_named() -> None:
    async def test() -> None:
        async with serving(broker((3, 0, 4))) as address:
            connection = await BrokerConnection.open(address)
            with pytest.raises(UnsupportedByBroker, match="DescribeLogDirs"):
                connection.version_for(m.DescribeLogDirsRequest)
            with pytest.raises(UnsupportedByBroker, match="10 or newer"):
                connection.version_for(m.MetadataRequest, 10)
            assert connection.version_for(m.MetadataRequest) == 4
            await connection.close()

    run(test())


def test_a_broker_that_does_not_know_our_version_of_api_versions_is_asked_in_its_own() -> None:
    requested: list[int] = []

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header, _ = await request_of(reader)
        requested.append(header.api_version)
        refusal = m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=versions().api_keys)
        refusal.api_keys[0].max_version = 1
        writer.write(b"".join(map(bytes, frames.encode_response(refusal, 0, header.correlation_id))))
        header, _ = await request_of(reader)
        requested.append(header.api_version)
        writer.write(answer(header, versions(METADATA)))
        await reader.read()

    async def test() -> None:
        async with serving(old) as address:
            connection = await BrokerConnection.open(address)
            assert connection.versions[3] == (0, 13)
            await connection.close()

    run(test())
    assert requested == [m.ApiVersionsRequest.MAX_VERSION, 1]


def test_any_broker_that_answers_is_found_behind_those_that_do_not() -> None:
    async def then(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, _ = await request_of(reader)
            writer.write(answer(header, m.MetadataResponse(cluster_id="here")))

    async def test() -> None:
        async with serving(goodbye) as dead, serving(broker(METADATA, then=then)) as living:
            gateway = Gateway(parse_bootstrap(f"127.0.0.1:1,{dead},{living}"))
            assert (await fetch_cluster(gateway)).cluster_id == "here"
            await gateway.close()

    run(test())


def test_an_answer_of_the_same_bytes_is_the_very_object_until_one_differs() -> None:
    names = iter(("here", "here", "elsewhere", "here"))

    async def then(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, _ = await request_of(reader)
            writer.write(answer(header, m.MetadataResponse(cluster_id=next(names))))

    async def test() -> None:
        async with serving(broker(METADATA, then=then)) as living:
            gateway = Gateway([living])
            last: LastResponse[m.MetadataResponse, ClusterMetadata] = LastResponse()
            views = [await fetch_cluster(gateway, last=last) for _ in range(4)]
            assert [view.cluster_id for view in views] == ["here", "here", "elsewhere", "here"]
            assert views[0] is views[1]
            await gateway.close()

    run(test())


def test_metadata_in_which_another_broker_is_the_controller_is_the_very_object() -> None:
    def named(controller_id: int, cluster_id: str = "here") -> m.MetadataResponse:
        topic = m.MetadataResponse.Topics(name="orders", topic_id=b"t" * 16, partitions=[])
        return m.MetadataResponse(cluster_id=cluster_id, controller_id=controller_id, topics=[topic])

    responses = iter((named(1), named(2), named(3), named(2), named(2, "elsewhere"), named(1, "elsewhere"), named(1)))

    async def then(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, _ = await request_of(reader)
            writer.write(answer(header, next(responses)))

    async def test() -> None:
        async with serving(broker(METADATA, then=then)) as living:
            gateway = Gateway([living])
            last = last_metadata()
            views = [await fetch_cluster(gateway, last=last) for _ in range(7)]
            assert [view.cluster_id for view in views] == [*["here"] * 4, *["elsewhere"] * 2, "here"]
            assert views[0] is views[1] is views[2] is views[3]
            assert views[4] is views[5]
            await gateway.close()

    run(test())


def offsets_of(request: m.ListOffsetsRequest, offset: int) -> m.ListOffsetsResponse:
    topic_type = m.ListOffsetsResponse.Topics
    return m.ListOffsetsResponse(
        topics=[
            topic_type(
                name=topic.name,
                partitions=[
                    topic_type.Partitions(partition_index=p.partition_index, offset=offset) for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_a_question_for_offsets_that_was_broken_off_in_the_middle_goes_on_with_all_that_was_told() -> None:
    """3,000 partitions are two requests; the second of the second round finds the connection closed."""
    offsets = iter((1, 1, 2, None, 2, 1))

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header, _ = await request_of(reader)
        writer.write(answer(header, versions(METADATA, (2, 1, 11))))
        while True:
            header, message = await request_of(reader)
            if isinstance(message, m.ListOffsetsRequest):
                if (offset := next(offsets)) is None:
                    return
                writer.write(answer(header, offsets_of(message, offset)))

    async def test() -> None:
        async with serving(peer) as living:
            gateway = Gateway([living])
            await gateway.learn_brokers({1: living})
            partitions = [TopicPartition("many", number) for number in range(3_000)]
            question = OffsetListing(1, offset_timestamps.LATEST)
            first = await question.ask(gateway, partitions)
            assert {listed_offset.offset for listed_offset in first.values()} == {1}
            with pytest.raises(BrokerUnavailable):
                await question.ask(gateway, partitions)
            second = await question.ask(gateway, partitions)
            assert [second[tp].offset for tp in partitions] == [2] * 2_000 + [1] * 1_000
            assert second[partitions[-1]] is first[partitions[-1]]
            await gateway.close()

    run(test())


def test_a_lane_gives_up_on_a_broker_that_another_lane_knows_to_be_silent() -> None:
    """A round of samples waited 31 s for a broker that was stopped, and `ebbline status` said "Observer down"."""

    async def test() -> None:
        async with serving(broker(METADATA)) as address:
            gateway = Gateway([address])
            await gateway.learn_brokers({1: address})
            question = asyncio.ensure_future(gateway.ask_node(1, m.MetadataRequest(topics=None), m.MetadataResponse))
            await asyncio.sleep(0.05)
            gateway.give_up(1, Lane.SAMPLE, "It hangs.")
            with pytest.raises(BrokerUnavailable, match="It hangs"):
                await asyncio.wait_for(question, 2)
            with pytest.raises(BrokerUnavailable, match="It hangs"):
                await gateway.connection(1, Lane.SAMPLE)
            assert (await gateway.connection(1, Lane.ACT)).usable, "each lane goes by what it met"
            assert (await gateway.connection(1, Lane.SAMPLE)).usable, "it answers again"
            await gateway.close()

    run(test())


def test_when_nobody_answers_every_cause_is_named() -> None:
    async def test() -> None:
        async with serving(goodbye) as dead:
            gateway = Gateway(parse_bootstrap(f"127.0.0.1:1,{dead}"))
            with pytest.raises(ClusterUnavailable) as raised:
                await fetch_cluster(gateway)
            assert "127.0.0.1:1 " in str(raised.value)
            assert str(dead) in str(raised.value)
            await gateway.close()

    run(test())


def test_the_pool_keeps_one_connection_a_lane_and_opens_a_broken_one_again() -> None:
    async def test() -> None:
        async with serving(broker(METADATA)) as address:
            pool = ConnectionPool()
            first, same = await asyncio.gather(pool.get(address, Lane.SAMPLE), pool.get(address, Lane.SAMPLE))
            assert first is same
            assert await pool.get(address, Lane.ACT) is not first
            await first.close()
            assert (await pool.get(address, Lane.SAMPLE)).usable
            await pool.keep_only(set())
            await pool.close()
            with pytest.raises(BrokerUnavailable):
                await pool.get(address, Lane.SAMPLE)

    run(test())


def test_a_broker_that_was_silent_is_left_in_peace_by_the_lane_that_met_its_silence() -> None:
    """A broker that has just started: a plan was refused for ten seconds more, for the silence that samples had met."""
    serves = False

    async def starting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (broker(METADATA) if serves else silence)(reader, writer)

    async def test() -> None:
        nonlocal serves
        async with serving(starting) as address:
            pool = ConnectionPool(connect_timeout_s=SLOW_FAILURE_S)
            with pytest.raises(AnswerOverdue):
                await pool.get(address, Lane.SAMPLE)
            serves = True
            with pytest.raises(BrokerUnavailable, match="did not answer"):
                await pool.get(address, Lane.SAMPLE)
            assert (await pool.get(address, Lane.ACT)).usable
            assert (await pool.get(address, Lane.SAMPLE)).usable, "an answer to one lane is known to all"
            await pool.close()

    run(test())


@pytest.mark.parametrize("lane", Lane)
def test_a_lane_waits_once_for_a_broker_that_hangs_and_then_is_refused_at_once(lane: Lane) -> None:
    """A plan asks each broker several questions: one that hangs would cost it seconds for each of them."""
    met = 0

    async def hanging(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal met
        met += 1
        await silence(reader, writer)

    async def test() -> None:
        async with serving(hanging) as address:
            pool = ConnectionPool(connect_timeout_s=SLOW_FAILURE_S)
            for _ in range(3):
                with pytest.raises(BrokerUnavailable, match="did not answer"):
                    await pool.get(address, lane)
            assert met == 1
            await pool.close()

    run(test())


@pytest.mark.parametrize(("code", "attempts"), [(ErrorCode.NOT_CONTROLLER, 3), (ErrorCode.INVALID_REQUEST, 1)])
def test_only_errors_that_kafka_calls_retriable_are_asked_again(code: ErrorCode, attempts: int) -> None:
    calls = 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise KafkaError(code)
        return "done"

    async def test() -> None:
        if code is ErrorCode.NOT_CONTROLLER:
            assert await until_settled(call, timeout_s=10) == "done"
            return
        with pytest.raises(KafkaError) as raised:
            await until_settled(call, timeout_s=10)
        assert raised.value.code is code

    run(test())
    assert calls == attempts
