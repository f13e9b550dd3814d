"""A Kafka client in the simulation, over the engine's own peer connection: it gets a user's responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from backend.engine.net.peer_client import PeerClient
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message
from backend.protocol.record_batches.record_batch import iter_batches, iter_records
from tests.simulation.world import BROKERS, HOST

if TYPE_CHECKING:
    from tests.simulation.world import World

TIMEOUT_MS: Final = 3000.0
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4


@dataclass(frozen=True, slots=True)
class Read:
    """One partition's part of a Fetch answer."""

    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start: int
    # (offset, leader epoch of its batch, value)
    records: tuple[tuple[int, int, bytes], ...]
    # Behind the last whole batch, control batches included; -1 when there was none.
    next_offset: int = -1
    # Under which epoch the asked broker led when it was asked; -1 unknown.
    leader_epoch_before: int = -1
    # The preferred read replica, which is in the client's rack; -1 for none.
    preferred_replica: int = -1


class Client:
    """Asks brokers; raises KafkaError for what they refuse."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._peers = {
            node: PeerClient(world.client.ports, HOST, node * 1000, client_id="simulated") for node in BROKERS
        }

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    async def ask(self, node: int, request: Message, version: int, timeout_ms: float = TIMEOUT_MS) -> Any:
        return await self._peers[node].send(request, version, timeout_ms=timeout_ms)

    async def produce(
        self,
        node: int,
        topic_id: bytes,
        index: int,
        records: bytearray,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> int:
        """Offset of the first record."""
        data = m.ProduceRequest.TopicData
        request = m.ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=int(TIMEOUT_MS),
            topic_data=[data(topic_id=topic_id, partition_data=[data.PartitionData(index=index, records=records)])],
        )
        answer = cast(m.ProduceResponse, await self.ask(node, request, 13))
        row = answer.responses[0].partition_responses[0]
        _raise(row.error_code)
        return row.base_offset

    async def fetch(
        self,
        node: int,
        topic_id: bytes,
        index: int,
        offset: int,
        *,
        max_bytes: int = 4096,
        committed: bool = False,
        rack: str = "",
        wait_ms: int = 0,
    ) -> Read:
        """Returns the records that a consumer gets at an offset."""
        topics = m.FetchRequest.Topics
        request = m.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1 + 10 * wait_ms,
            max_bytes=max_bytes,
            rack_id=rack,
            isolation_level=int(committed),
            topics=[
                topics(
                    topic_id=topic_id,
                    partitions=[topics.Partitions(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)],
                )
            ],
        )
        answer = cast(m.FetchResponse, await self.ask(node, request, 17))
        _raise(answer.error_code)
        row = answer.responses[0].partitions[0]
        records: list[tuple[int, int, bytes]] = []
        data, next_offset = row.records, -1
        if data:
            buffer = memoryview(cast(bytes, data))
            for position, header in iter_batches(buffer):
                next_offset = header.next_offset
                if not header.is_control:
                    records += [
                        (record.offset, header.leader_epoch, bytes(record.value or b""))
                        for record in iter_records(buffer, position)
                        if record.offset >= offset
                    ]
        return Read(
            ErrorCode(row.error_code),
            row.high_watermark,
            row.last_stable_offset,
            row.log_start_offset,
            tuple(records),
            next_offset,
            preferred_replica=row.preferred_read_replica,
        )

    async def list_offset(self, node: int, topic: str, index: int, timestamp: int) -> int:
        """The offset for a timestamp or a sentinel; -1 when there is none."""
        topics = m.ListOffsetsRequest.Topics
        part = topics.Partitions(partition_index=index, timestamp=timestamp, current_leader_epoch=-1)
        request = m.ListOffsetsRequest(
            replica_id=-1, topics=[topics(name=topic, partitions=[part])], timeout_ms=int(TIMEOUT_MS)
        )
        answer = cast(m.ListOffsetsResponse, await self.ask(node, request, 11))
        row = answer.topics[0].partitions[0]
        _raise(row.error_code)
        return row.offset

    async def create_topic(
        self,
        node: int,
        name: str,
        assignments: Mapping[int, Sequence[int]],
        configs: Mapping[str, str],
        timeout_ms: float = TIMEOUT_MS,
    ) -> None:
        topics = m.CreateTopicsRequest.Topics
        request = m.CreateTopicsRequest(
            timeout_ms=int(TIMEOUT_MS),
            topics=[
                topics(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        topics.Assignments(partition_index=index, broker_ids=list(replicas))
                        for index, replicas in assignments.items()
                    ],
                    configs=[topics.Configs(name=key, value=value) for key, value in configs.items()],
                )
            ],
        )
        answer = cast(m.CreateTopicsResponse, await self.ask(node, request, 7, timeout_ms))
        _raise(answer.topics[0].error_code, answer.topics[0].error_message)

    async def delete_topic(self, node: int, name: str) -> None:
        request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.Topics(name=name)], timeout_ms=int(TIMEOUT_MS))
        answer = cast(m.DeleteTopicsResponse, await self.ask(node, request, 6))
        _raise(answer.responses[0].error_code)

    async def reassign(self, node: int, topic: str, index: int, replicas: Sequence[int] | None) -> None:
        """Moves a partition; None takes a move back."""
        topics = m.AlterPartitionReassignmentsRequest.Topics
        part = topics.Partitions(partition_index=index, replicas=None if replicas is None else list(replicas))
        request = m.AlterPartitionReassignmentsRequest(
            topics=[topics(name=topic, partitions=[part])], timeout_ms=int(TIMEOUT_MS)
        )
        answer = cast(m.AlterPartitionReassignmentsResponse, await self.ask(node, request, 0))
        _raise(answer.error_code)
        _raise(answer.responses[0].partitions[0].error_code)

    async def move_directory(self, node: int, topic: str, index: int, path: str) -> None:
        """A broker's replica goes to another log directory."""
        dirs = m.AlterReplicaLogDirsRequest.Dirs
        request = m.AlterReplicaLogDirsRequest(
            dirs=[dirs(path=path, topics=[dirs.Topics(name=topic, partitions=[index])])]
        )
        answer = cast(m.AlterReplicaLogDirsResponse, await self.ask(node, request, 2))
        _raise(answer.results[0].partitions[0].error_code)

    async def describe_directories(self, node: int) -> int:
        """How many replicas lie in the broker's log directories."""
        answer = cast(m.DescribeLogDirsResponse, await self.ask(node, m.DescribeLogDirsRequest(topics=None), 4))
        _raise(answer.error_code)
        return sum(len(topic.partitions) for result in answer.results for topic in result.topics)

    async def describe_producers(self, node: int, topic: str, index: int) -> int:
        """How many producers a partition knows."""
        topics = m.DescribeProducersRequest.Topics
        request = m.DescribeProducersRequest(topics=[topics(name=topic, partition_indexes=[index])])
        answer = cast(m.DescribeProducersResponse, await self.ask(node, request, 0))
        row = answer.topics[0].partitions[0]
        _raise(row.error_code)
        return len(row.active_producers)

    async def elect(self, node: int, topic: str, index: int) -> None:
        """The preferred replica leads."""
        topics = m.ElectLeadersRequest.TopicPartitions
        request = m.ElectLeadersRequest(
            election_type=0, topic_partitions=[topics(topic=topic, partitions=[index])], timeout_ms=int(TIMEOUT_MS)
        )
        answer = cast(m.ElectLeadersResponse, await self.ask(node, request, 2))
        _raise(answer.error_code)

    async def configure(self, node: int, resource_type: int, name: str, configs: Mapping[str, str]) -> None:
        resource = m.IncrementalAlterConfigsRequest.Resources
        request = m.IncrementalAlterConfigsRequest(
            resources=[
                resource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=[
                        resource.Configs(name=key, config_operation=0, value=value) for key, value in configs.items()
                    ],
                )
            ]
        )
        answer = cast(m.IncrementalAlterConfigsResponse, await self.ask(node, request, 1))
        _raise(answer.responses[0].error_code, answer.responses[0].error_message)

    async def delete_records(self, node: int, topic: str, index: int, offset: int) -> int:
        """The low watermark afterwards."""
        topics = m.DeleteRecordsRequest.Topics
        part = topics.Partitions(partition_index=index, offset=offset)
        request = m.DeleteRecordsRequest(topics=[topics(name=topic, partitions=[part])], timeout_ms=int(TIMEOUT_MS))
        answer = cast(m.DeleteRecordsResponse, await self.ask(node, request, 2))
        row = answer.topics[0].partitions[0]
        _raise(row.error_code)
        return row.low_watermark

    async def producer_id(self, node: int, transactional_id: str | None = None) -> tuple[int, int]:
        """(producer id, epoch) of a fresh producer."""
        request = m.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1
        )
        answer = cast(m.InitProducerIdResponse, await self.ask(node, request, 4))
        _raise(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    async def coordinator(self, node: int, transactional_id: str) -> int:
        """The broker that coordinates a producer's transactions."""
        request = m.FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        answer = cast(m.FindCoordinatorResponse, await self.ask(node, request, 4))
        _raise(answer.coordinators[0].error_code)
        return answer.coordinators[0].node_id

    async def begin(self, node: int, transactional_id: str, producer: tuple[int, int], topic: str, index: int) -> None:
        """A partition is part of the producer's transaction."""
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[m.AddPartitionsToTxnRequest.V3AndBelowTopics(name=topic, partitions=[index])],
        )
        answer = cast(m.AddPartitionsToTxnResponse, await self.ask(node, request, 3))
        _raise(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    async def end(self, node: int, transactional_id: str, producer: tuple[int, int], *, commit: bool) -> None:
        """Commits or aborts."""
        request = m.EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        answer = cast(m.EndTxnResponse, await self.ask(node, request, 3))
        _raise(answer.error_code)


def _raise(code: int, text: str | None = None) -> None:
    if code:
        raise KafkaError(ErrorCode(code), text or "")
