"""Requests with many elements: decoded, answered and encoded without holding others up, and in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from backend.engine.apis.api_declaration import Api
from backend.engine.apis.support.response_budget import RESPONSE_BYTES_MAX
from backend.engine.apis.table import api_table
from backend.engine.net.client_request import INLINE_ELEMENTS_MAX, Request
from backend.engine.ports.time_slices import Steps
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.frames import RequestHeader
from tests.unit.engine.net.node import node

MANY = 3 * INLINE_ELEMENTS_MAX


def run(play: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(play, 60))


def described(_services: Any, _context: Any, request: m.DescribeGroupsRequest) -> Steps[m.DescribeGroupsResponse]:
    response = m.DescribeGroupsResponse()
    for name in request.groups:
        response.groups.append(m.DescribeGroupsResponse.Groups(group_id=name))
        yield
    return response


def describe_request(count: int, name: str = "g") -> m.DescribeGroupsRequest:
    return m.DescribeGroupsRequest(groups=[f"{name}{index}" for index in range(count)])


def test_a_large_request_is_answered_whole_and_in_its_turn() -> None:
    async def play() -> None:
        async with node(Api(15, 0, 5, described)) as served:
            client = await served.client()
            for correlation_id, count in enumerate((3, MANY, 2, MANY, 1)):
                client.send(describe_request(count, f"{correlation_id}-"), 5, correlation_id)
            for correlation_id, count in enumerate((3, MANY, 2, MANY, 1)):
                answered_id, answer = await client.answer(m.DescribeGroupsResponse, 5)
                assert answered_id == correlation_id
                assert [group.group_id for group in answer.groups] == describe_request(
                    count, f"{correlation_id}-"
                ).groups

    run(play())


def test_a_large_request_that_is_malformed_closes_its_connection() -> None:
    async def play() -> None:
        async with node(Api(15, 0, 5, described)) as served:
            client = await served.client()
            whole = m.DescribeGroupsRequest(groups=["g"] * 120_000)
            client.send(whole, 5, 1)
            assert await client.is_closed()
            assert served.services.metrics.malformed_frames == 1

    run(play())


def test_a_client_that_leaves_while_its_request_is_decoded_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with node(Api(15, 0, 5, described)) as served:
            for count in (MANY, 120_000):
                client = await served.client()
                client.send(m.DescribeGroupsRequest(groups=["g"] * count), 5, 1)
                await client.writer.drain()
                client.writer.close()
            other = await served.client()
            other.send(describe_request(1), 5, 7)
            assert (await other.answer(m.DescribeGroupsResponse, 5))[0] == 7

    run(play())
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("closed", ["before it is decoded", "before its response is encoded"])
def test_a_node_that_stops_drops_a_large_request_without_a_word(closed: str, caplog: pytest.LogCaptureFixture) -> None:
    def stops(services: Any, context: Any, request: m.DescribeGroupsRequest) -> Steps[m.DescribeGroupsResponse]:
        services.ports.workers.close()
        return described(services, context, request)

    async def play() -> None:
        decoded = closed == "before its response is encoded"
        async with node(Api(15, 0, 5, stops if decoded else described)) as served:
            client = await served.client()
            if not decoded:
                served.services.ports.workers.close()
            client.send(describe_request(MANY), 5, 1)
            assert await client.is_closed()

    run(play())
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("after", [1, MANY])
def test_what_fails_in_a_later_turn_is_answered_as_any_failure(after: int) -> None:
    def fails(_services: Any, _context: Any, request: m.DescribeGroupsRequest) -> Steps[m.DescribeGroupsResponse]:
        for number, _ in enumerate(request.groups):
            if number == after - 1:
                raise ValueError("a mistake")
            yield
        return m.DescribeGroupsResponse()

    async def play() -> None:
        async with node(Api(15, 0, 5, fails)) as served:
            client = await served.client()
            client.send(describe_request(after), 5, 1)
            assert await client.is_closed()
            assert served.services.metrics.request("DescribeGroups").errors == 1

    run(play())


def too_much(_services: Any, _context: Any, request: m.DescribeGroupsRequest) -> m.DescribeGroupsResponse:
    """Memory that nobody has counted while it was allocated."""
    text = "x" * 32_000
    groups = m.DescribeGroupsResponse.Groups
    count = RESPONSE_BYTES_MAX // len(text) + 1 if request.groups == ["large"] else 1
    return m.DescribeGroupsResponse(groups=[groups(group_id="g", protocol_data=text) for _ in range(count)])


def refused(request: m.DescribeGroupsRequest, version: int, code: int, message: str) -> m.DescribeGroupsResponse:
    return m.DescribeGroupsResponse(groups=[m.DescribeGroupsResponse.Groups(group_id="g", error_code=code)])


def test_an_answer_that_is_larger_than_clients_read_is_an_error() -> None:
    async def play() -> None:
        async with node(Api(15, 0, 5, too_much, on_error=refused)) as served:
            client = await served.client()
            for correlation_id, name in enumerate(("large", "small")):
                client.send(m.DescribeGroupsRequest(groups=[name]), 5, correlation_id)
            for correlation_id, code in enumerate((ErrorCode.INVALID_REQUEST, ErrorCode.NONE)):
                answered_id, answer = await client.answer(m.DescribeGroupsResponse, 5)
                assert (answered_id, [group.error_code for group in answer.groups]) == (correlation_id, [code])

    run(play())


def test_without_a_place_for_an_error_the_connection_is_closed_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with node(Api(15, 0, 5, too_much)) as served:
            client = await served.client()
            client.send(m.DescribeGroupsRequest(groups=["large"]), 5, 1)
            with pytest.raises(asyncio.IncompleteReadError):
                await client.answer(m.DescribeGroupsResponse, 5)

    run(play())
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "DescribeGroups: The answer would have more than 100000000 bytes" in line
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("request_", "overlaps"),
    [
        (m.FetchRequest(), False),
        (m.FetchRequest(replica_id=-2), False),
        (m.FetchRequest(replica_id=1), True),
        (m.FetchRequest(replica_state=m.FetchRequest.ReplicaState(replica_id=1)), True),
        (m.ProduceRequest(), True),
        (m.MetadataRequest(), False),
    ],
)
def test_the_answers_to_a_consumer_are_made_one_at_a_time(request_: Any, overlaps: bool) -> None:
    api = api_table().served("broker")[request_.API_KEY]
    header = RequestHeader(request_.API_KEY, api.max_version, 1, None)
    assert Request(api, header, request_, 100, 0.0).overlaps is overlaps
