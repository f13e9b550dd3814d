"""A client over its quota is answered at once and left waiting then; others are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from immutables import Map

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.controller.image.metadata_image import QuotaEntity
from backend.protocol import messages as m
from tests.unit.engine.net.node import Node, node, run

EVERY_CLIENT: QuotaEntity = (("client-id", None),)
EVERY_ADDRESS: QuotaEntity = (("ip", None),)
RECORDS = b"r" * 10_000


def limit(served: Node, entity: QuotaEntity, **values: float) -> None:
    metadata: Any = served.services.metadata
    metadata.image = replace(metadata.image, client_quotas=Map({entity: Map(values)}))


def produce(size: int = len(RECORDS), acks: int = 1) -> m.ProduceRequest:
    topic = m.ProduceRequest.TopicData
    part = topic.PartitionData(index=0, records=b"r" * size)
    return m.ProduceRequest(acks=acks, timeout_ms=1, topic_data=[topic(name="t", partition_data=[part])])


def test_the_answer_tells_the_time_and_the_next_request_waits_for_it_while_others_go_on() -> None:
    handled: list[int] = []

    def handler(_: Any, context: RequestContext, request: m.ProduceRequest) -> m.ProduceResponse:
        handled.append(context.header.correlation_id)
        return m.ProduceResponse()

    async def play() -> None:
        async with node(Api(0, 3, 9, handler)) as served:
            limit(served, EVERY_CLIENT, producer_byte_rate=500.0)
            throttled, other = await served.client(), await served.client()
            throttled.send(produce(), 9, 1)
            _, answer = await throttled.answer(m.ProduceResponse, 9)
            # 10 kB over ten seconds are twice the quota: ten more seconds would bring it down.
            assert 9_000 < answer.throttle_time_ms < 11_500
            throttled.send(produce(), 9, 2)
            limit(served, EVERY_CLIENT, producer_byte_rate=1e12)
            other.send(produce(), 9, 3)
            _, answer = await other.answer(m.ProduceResponse, 9)
            assert answer.throttle_time_ms == 0
            assert handled == [1, 3]

    run(play)


def test_a_throttled_client_goes_on_when_its_time_is_over() -> None:
    async def play() -> None:
        async with node(Api(0, 3, 9, lambda *_: m.ProduceResponse())) as served:
            # A hundred bytes too many at 1,000 a second over ten.
            limit(served, EVERY_CLIENT, producer_byte_rate=1000.0)
            client = await served.client()
            client.send(produce(10_100), 9, 1)
            _, answer = await client.answer(m.ProduceResponse, 9)
            assert answer.throttle_time_ms > 0
            client.send(produce(1), 9, 2)
            assert (await client.answer(m.ProduceResponse, 9))[0] == 2

    run(play)


def test_clients_that_get_no_answer_wait_as_well() -> None:
    handled: list[int] = []

    def handler(_: Any, context: RequestContext, request: m.ProduceRequest) -> None:
        handled.append(context.header.correlation_id)

    async def play() -> None:
        async with node(Api(0, 3, 9, handler)) as served:
            limit(served, EVERY_CLIENT, producer_byte_rate=500.0)
            throttled, other = await served.client(), await served.client()
            throttled.send(produce(acks=0), 9, 1)
            throttled.send(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, 2)
            # Connections are read in turn: when the second request of the other one is answered, the first was read.
            for number in (3, 4):
                other.send(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, number)
                assert (await other.answer(m.ApiVersionsResponse, 3))[0] == number
            assert handled == [1]
            assert served.services.client_quotas.throttle_times("producer_byte_rate")[0][1] > 0

    run(play)


def test_what_brokers_send_one_another_counts_against_nobody() -> None:
    async def play() -> None:
        async with node(Api(1, 4, 18, lambda *_: m.FetchResponse())) as served:
            limit(served, EVERY_CLIENT, request_percentage=1e-9)
            client = await served.client()
            replica = m.FetchRequest.ReplicaState(replica_id=2)
            client.send(m.FetchRequest(replica_state=replica), 18, 1)
            assert (await client.answer(m.FetchResponse, 18))[1].throttle_time_ms == 0
            assert served.services.client_quotas.throttle_times("request_percentage") == []

    run(play)


def test_time_on_the_loop_beyond_the_percentage_costs_a_window_at_most() -> None:
    async def play() -> None:
        async with node(Api(12, 0, 4, lambda *_: m.HeartbeatResponse())) as served:
            limit(served, EVERY_CLIENT, request_percentage=1e-9)
            client = await served.client()
            client.send(m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1)
            assert (await client.answer(m.HeartbeatResponse, 4))[1].throttle_time_ms == 1000

    run(play)


def test_an_address_that_connects_too_often_is_hung_up_on() -> None:
    async def play() -> None:
        async with node() as served:
            # One in ten seconds.
            limit(served, EVERY_ADDRESS, connection_creation_rate=0.1)
            first, second = await served.client(), await served.client()
            assert await second.is_closed()
            first.send(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, 7)
            assert (await first.answer(m.ApiVersionsResponse, 3))[0] == 7
            assert served.services.metrics.refused_connections == 1

    run(play)
