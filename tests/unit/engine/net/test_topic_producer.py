"""The producer of internal topics: no record is taken for the repetition of another."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from immutables import Map

from backend.engine.apis.api_declaration import Api
from backend.engine.controller.image.metadata_image import (
    BrokerRegistration,
    Endpoint,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from backend.engine.net.cluster_client import ClusterClient
from backend.engine.net.topic_producer import PRODUCE_VERSION, TopicProducer
from backend.engine.ports import system_ports
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import RecordData
from tests.unit.engine.log.logs import NOW_MS, TIP, open_test_log, values
from tests.unit.engine.net.node import StandingMetadata, node, run

PRODUCE_KEY = 0


@pytest.mark.parametrize("ending", ["cancelled", "out of time"])
def test_records_behind_some_whose_answer_never_came_are_no_repetition_of_them(tmp_path: Path, ending: str) -> None:
    async def play() -> None:
        log = open_test_log(tmp_path)
        appended, answering = asyncio.Event(), asyncio.Event()

        async def acknowledge(_services: Any, _context: Any, request: Any) -> m.ProduceResponse:
            data = bytearray(request.topic_data[0].partition_data[0].records)
            info = log.append_as_leader(memoryview(data), 0, now_ms=NOW_MS)
            appended.set()
            if ending == "cancelled":
                await answering.wait()
            code = ErrorCode.NONE if answering.is_set() else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            responses = m.ProduceResponse.Responses.PartitionResponses(
                index=0, error_code=code, base_offset=info.first_offset
            )
            return m.ProduceResponse(
                responses=[m.ProduceResponse.Responses(name=TIP.topic, partition_responses=[responses])]
            )

        api = Api(PRODUCE_KEY, PRODUCE_VERSION, PRODUCE_VERSION, acknowledge)
        async with node(api) as leader:
            endpoint = Endpoint("PLAINTEXT", "127.0.0.1", leader.port)
            partition = PartitionRegistration((1,), (1,), 1, 0, 0)
            metadata: Any = StandingMetadata(
                MetadataImage(
                    brokers=Map({1: BrokerRegistration(1, 1, bytes(16), (endpoint,), fenced=False)}),
                    topics=Map({TIP.topic_id: TopicImage(TIP.topic, TIP.topic_id, Map({0: partition}))}),
                    topic_ids=Map({TIP.topic: TIP.topic_id}),
                )
            )
            ports = system_ports()
            client = ClusterClient(ports, metadata, "PLAINTEXT", client_id="test")
            ids = count(7)

            async def new_id() -> int:
                return next(ids)

            producer = TopicProducer(ports, client, TIP.topic, new_id)
            first = asyncio.create_task(producer.append(0, [RecordData(NOW_MS, None, b"first")], timeout_ms=0))
            await appended.wait()
            if ending == "cancelled":
                first.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await first
            else:
                with pytest.raises(KafkaError):
                    await first
            answering.set()
            assert await producer.append(0, [RecordData(NOW_MS, None, b"second")]) == 1
            assert values(log) == [(0, b"first"), (1, b"second")]
            client.close()
            ports.workers.close()

    run(play)
