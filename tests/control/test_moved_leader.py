"""Deletion of records while a leader moves: two small brokers, the first of which has just lost the leadership."""

from __future__ import annotations

import asyncio

import pytest

from backend.control.control_database import Database
from backend.control.gateway.broker_connection import BrokerAddress
from backend.control.gateway.kafka_client import Gateway
from backend.control.operations.operation_kind import OperationContext
from backend.control.operations.record_deletion import DeleteInputs, DeleteRecords
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.control.test_gateway import METADATA, answer, broker, request_of, run, serving

DELETE_RECORDS = (21, 0, 2)
TOPIC_ID = bytes(15) + b"\x01"


class Brokers:
    """Brokers 1 and 2: the first leads `moved-0` until it is asked to delete, and `stays-0` for good. `elections`: how
    often there is no leader of `moved-0` then.
    """

    def __init__(self, elections: int) -> None:
        self.elections = elections
        self.addresses: dict[int, BrokerAddress] = {}
        self.moved = False
        self.requests: list[tuple[int, list[str]]] = []

    async def serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, request = await request_of(reader)
            if isinstance(request, m.DeleteRecordsRequest):
                writer.write(answer(header, self._delete(node, request)))
            else:
                writer.write(answer(header, self._metadata()))

    def _leader(self) -> int:
        if not self.moved:
            return 1
        self.elections -= 1
        return -1 if self.elections >= 0 else 2

    def _metadata(self) -> m.MetadataResponse:
        response_type = m.MetadataResponse
        return response_type(
            cluster_id="c",
            brokers=[response_type.Brokers(node_id=n, host=a.host, port=a.port) for n, a in self.addresses.items()],
            topics=[
                response_type.Topics(
                    name=name,
                    topic_id=TOPIC_ID,
                    partitions=[
                        response_type.Topics.Partitions(partition_index=0, leader_id=leader, replica_nodes=[1, 2])
                    ],
                )
                for name, leader in (("moved", self._leader()), ("stays", 1))
            ],
        )

    def _delete(self, node: int, request: m.DeleteRecordsRequest) -> m.DeleteRecordsResponse:
        response_type, topics = m.DeleteRecordsResponse, []
        self.requests.append((node, sorted(topic.name for topic in request.topics)))
        for topic in request.topics:
            leads = (topic.name == "stays") == (node == 1)
            code = ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
            part = response_type.Topics.Partitions(partition_index=0, low_watermark=5, error_code=int(code))
            topics.append(response_type.Topics(name=topic.name, partitions=[part]))
        self.moved = True
        return response_type(topics=topics)


@pytest.mark.parametrize("elections", [0, 2])
def test_records_are_deleted_at_the_new_leader_and_nobody_is_asked_twice(elections: int) -> None:
    brokers = Brokers(elections)
    requested = [{"topic": name, "partition": 0, "offset": 5} for name in ("moved", "stays")]

    async def test() -> None:
        peers = [
            broker(METADATA, DELETE_RECORDS, then=lambda r, w, node=node: brokers.serve(node, r, w))  # type: ignore[misc]  # bound now
            for node in (1, 2)
        ]
        async with serving(peers[0]) as broker_address, serving(peers[1]) as two:
            brokers.addresses = {1: broker_address, 2: two}
            gateway = Gateway([broker_address])
            site = OperationContext(gateway, Database("sqlite://"), "c", "c", embedded=False)
            await DeleteRecords().apply(site, DeleteInputs.model_validate({"partitions": requested}), {})
            await gateway.close()

    run(test())
    assert brokers.requests == [(1, ["moved", "stays"]), (2, ["moved"])]
