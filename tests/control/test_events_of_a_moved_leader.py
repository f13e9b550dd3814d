"""The events of a partition whose leader moves while the one before is still asked: each is read once, in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

from backend.control.control_database import Database
from backend.control.gateway.broker_connection import BrokerAddress
from backend.control.gateway.kafka_client import Gateway
from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.observer.watches.engine_event_reader import TOPIC, EngineEventReader
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.events import PhaseEvent, encode
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.tiering.follower_phase import FollowerPhase
from backend.tiering.ids import uuid_text
from tests.control.test_gateway import answer, broker, request_of, run, serving
from tests.databases import new_sqlite

TOPIC_ID = bytes(15) + b"\x05"
OF = bytes(15) + b"\x06"
PHASES = (FollowerPhase.BUILDING_REMOTE_AUX, FollowerPhase.FETCHING, FollowerPhase.IN_SYNC)


def records() -> bytes:
    events = [
        PhaseEvent(broker=2, at_ms=at_ms, topic="orders", topic_id=OF, partition=0, phase=phase.value, since_ms=at_ms)
        for at_ms, phase in enumerate(PHASES, 1)
    ]
    return bytes(build_batch([RecordData(event.at_ms, None, encode(event)) for event in events], base_offset=0))


def led_by(leader: int) -> PartitionMetadata:
    return PartitionMetadata(TOPIC, TOPIC_ID, 0, leader, leader, (1, 2), (1, 2), (), ErrorCode.NONE)


class Leaders:
    """Broker 1 holds back its response, three events, until the test releases it; broker 2 has no more."""

    def __init__(self) -> None:
        self.fetches: list[tuple[int, int]] = []
        self.is_requested = asyncio.Event()
        self.is_answered = asyncio.Event()
        self.went_on = asyncio.Event()

    async def serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, request = await request_of(reader)
            if isinstance(request, m.ListOffsetsRequest):
                writer.write(answer(header, self._earliest()))
            elif isinstance(request, m.FetchRequest):
                offset = request.topics[0].partitions[0].fetch_offset
                self.fetches.append((node, offset))
                if node == 1:
                    self.is_requested.set()
                    await self.is_answered.wait()
                else:
                    self.went_on.set()
                    await asyncio.sleep(0.05)
                writer.write(answer(header, self._fetched(records() if (node, offset) == (1, 0) else b"")))

    def _earliest(self) -> m.ListOffsetsResponse:
        response_type = m.ListOffsetsResponse
        return response_type(
            topics=[
                response_type.Topics(
                    name=TOPIC, partitions=[response_type.Topics.Partitions(partition_index=0, offset=0)]
                )
            ]
        )

    def _fetched(self, record_bytes: bytes) -> m.FetchResponse:
        response_type = m.FetchResponse
        part = response_type.Responses.Partitions(partition_index=0, high_watermark=3, records=record_bytes)
        return response_type(responses=[response_type.Responses(topic_id=TOPIC_ID, topic=TOPIC, partitions=[part])])


def test_the_new_leader_is_asked_once_the_old_one_has_answered(tmp_path: Path) -> None:
    async def test() -> None:
        leaders = Leaders()
        apis = ((1, 4, 17), (2, 1, 11))
        peers = [
            broker(*apis, then=lambda r, w, node=node: leaders.serve(node, r, w))  # type: ignore[misc]  # bound now
            for node in (1, 2)
        ]
        async with serving(peers[0]) as broker_address, serving(peers[1]) as two:
            gateway = Gateway([broker_address])
            brokers: dict[int, BrokerAddress] = {1: broker_address, 2: two}
            await gateway.learn_brokers(brokers)
            database = Database(new_sqlite(tmp_path / "ebbline.db"))
            follower = EngineEventReader(gateway, database, "c", lambda: 10)
            running = asyncio.create_task(follower.run())
            follower.set_partitions([led_by(1)])
            await leaders.is_requested.wait()
            follower.set_partitions([led_by(2)])
            await asyncio.sleep(0.3)
            assert leaders.fetches == [(1, 0)], "its answer may still come"
            leaders.is_answered.set()
            await leaders.went_on.wait()
            assert leaders.fetches[:2] == [(1, 0), (2, 3)]
            assert follower.events_read == 3
            assert follower.phases[uuid_text(OF), 0, 2].phase is FollowerPhase.IN_SYNC
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await gateway.close()
            await database.close()

    run(test())
