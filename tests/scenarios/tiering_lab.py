"""Tiered topics on a real cluster of the engine, driven record by record over raw frames.

As in Kafka's own tiered tests: every batch but the first of a segment has an index entry and a time index of `12 * n`
bytes holds n batches, so a segment has exactly n one-record batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from backend.engine.controller.image.metadata_image import PartitionRegistration
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.remote.storage.object_store_manager import EventType, ObjectStoreRemoteStorageManager, StorageEvent
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message
from backend.protocol.record_batches.record_batch import RecordData, build_batch, iter_batches, iter_records
from backend.tiering.ids import TopicPartition
from tests.engine_cluster import EngineCluster, layout
from tests.wire import ask

T = TypeVar("T", bound=Message)

START_MS: Final = 1_700_000_000_000
SENTINELS: Final = (-1, -2, -3, -4, -5, -6)
WAIT_S: Final = 60.0
CONSUMER: Final = -1
DEBUG: Final = -2
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
# A broker that was stopped is missed soon, and a topic is not expired by its records' age (they are of 2023).
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    "log.message.timestamp.after.max.ms": str(2**62),
}


@dataclass(frozen=True)
class Told:
    """One answer of ListOffsets."""

    offset: int
    epoch: int
    timestamp: int = -1
    error: int = 0


@dataclass(frozen=True)
class Fetched:
    """One partition's answer to a consumer's Fetch."""

    error: int
    records: bytes
    high_watermark: int
    log_start: int

    @property
    def values(self) -> list[tuple[int, bytes | None]]:
        """(offset, value) of the whole batches."""
        return [
            (record.offset, record.value)
            for position, _ in iter_batches(self.records)
            for record in iter_records(self.records, position)
        ]


class Lab:
    """A cluster and what a test does to it."""

    def __init__(self, cluster: EngineCluster) -> None:
        self.cluster = cluster

    # Requests

    def ask(self, node: int, request: Message, version: int, response: type[T]) -> T:
        """One request on a new connection."""
        return ask(self.cluster.layout.ports[node], request, version, response, timeout_s=WAIT_S)

    def create(self, topic: str, replicas: Sequence[Sequence[int]] = ((1, 2, 3),), **config: str | int) -> None:
        """Creates a tiered topic (unless `config` says otherwise); `batches=n` sets a segment's number of batches."""
        batches = int(config.pop("batches", 2))
        settings: dict[str, str | int] = {
            "remote_storage_enable": "true",
            "index_interval_bytes": 1,
            "segment_index_bytes": 12 * batches,
            "retention_ms": -1,
            **config,
        }
        topics = m.CreateTopicsRequest.Topics
        requested = topics(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[topics.Assignments(partition_index=p, broker_ids=list(r)) for p, r in enumerate(replicas)],
            configs=[topics.Configs(name=k.replace("_", "."), value=str(v)) for k, v in settings.items()],
        )
        request = m.CreateTopicsRequest(topics=[requested], timeout_ms=30_000)
        [created] = self.ask(1, request, 7, m.CreateTopicsResponse).topics
        assert created.error_code == 0, created.error_message
        self.wait("the topic has leaders", lambda: all(self.leader(topic, p) > 0 for p in range(len(replicas))))

    def produce(self, topic: str, *values: bytes, partition: int = 0, first_ms: int | None = None) -> None:
        """One batch per value with acks=all; timestamps are START_MS + 1000 * offset, or count on from `first_ms`."""
        for at, value in enumerate(values):
            end = self.log(topic, partition).log_end_offset
            timestamp = START_MS + 1000 * end if first_ms is None else first_ms + at
            self.produce_batch(topic, [RecordData(timestamp, None, value)], partition=partition)

    def produce_batch(self, topic: str, records: Sequence[RecordData], *, partition: int = 0) -> None:
        """One batch with acks=all."""
        data = m.ProduceRequest.TopicData
        batch = bytes(build_batch(records))
        request = m.ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[data(name=topic, partition_data=[data.PartitionData(index=partition, records=batch)])],
        )
        answer = self.ask(self.leader(topic, partition), request, 9, m.ProduceResponse)
        [response] = answer.responses[0].partition_responses
        assert response.error_code == 0, response

    def list_offset(
        self, node: int, topic: str, timestamp: int, *, replica: int = CONSUMER, isolation: int = 0, partition: int = 0
    ) -> Told:
        topics = m.ListOffsetsRequest.Topics
        requested = topics.Partitions(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
        request = m.ListOffsetsRequest(
            replica_id=replica,
            isolation_level=isolation,
            topics=[topics(name=topic, partitions=[requested])],
            timeout_ms=30_000,
        )
        row = self.ask(node, request, 11, m.ListOffsetsResponse).topics[0].partitions[0]
        return Told(row.offset, row.leader_epoch, row.timestamp, row.error_code)

    def fetch(
        self, topic: str, offset: int, *, node: int | None = None, partition: int = 0, max_bytes: int = 1 << 20
    ) -> Fetched:
        """A consumer's fetch that does not wait for records to come."""
        topics = m.FetchRequest.Topics
        requested = topics.Partitions(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=max_bytes,
        )
        request = m.FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            session_epoch=-1,
            topics=[topics(topic=topic, partitions=[requested])],
        )
        answer = self.ask(node or self.leader(topic, partition), request, 12, m.FetchResponse)
        row = answer.responses[0].partitions[0]
        return Fetched(row.error_code, bytes(cast(Any, row.records) or b""), row.high_watermark, row.log_start_offset)

    def consume(self, topic: str, offset: int, *, node: int | None = None, partition: int = 0) -> list[bytes | None]:
        """Values from an offset to the end, as a consumer reads them: fetch by fetch."""
        received: list[bytes | None] = []
        deadline = time.monotonic() + WAIT_S
        end = self.log(topic, partition).high_watermark
        while offset < end:
            assert time.monotonic() < deadline, f"stuck at {offset} of {topic}-{partition}"
            fetched = self.fetch(topic, offset, node=node, partition=partition)
            assert fetched.error == 0, (offset, ErrorCode(fetched.error))
            for at, value in fetched.values:
                if at >= offset:
                    received.append(value)
                    offset = at + 1
        return received

    def read_raw(self, topic: str, partition: int) -> list[bytes]:
        """Values from the first offset to the end."""
        return [value for value in self.consume(topic, 0, partition=partition) if value is not None]

    def delete_records(self, topic: str, offset: int, *, partition: int = 0) -> None:
        topics = m.DeleteRecordsRequest.Topics
        requested = topics(name=topic, partitions=[topics.Partitions(partition_index=partition, offset=offset)])
        request = m.DeleteRecordsRequest(topics=[requested], timeout_ms=30_000)
        row = self.ask(self.leader(topic, partition), request, 2, m.DeleteRecordsResponse).topics[0].partitions[0]
        assert row.error_code == 0, ErrorCode(row.error_code)

    def alter(self, topic: str, **config: str | int | None) -> int:
        """Sets (None: unsets) topic settings on every broker; returns the error code."""
        return self._alter(1, TOPIC_RESOURCE, topic, config)

    def alter_brokers(self, node: int | None = None, **config: str | int | None) -> int:
        """Sets a dynamic setting of one broker, or of all."""
        return self._alter(node or 1, BROKER_RESOURCE, "" if node is None else str(node), config)

    def _alter(self, node: int, resource: int, name: str, config: Mapping[str, str | int | None]) -> int:
        resources = m.IncrementalAlterConfigsRequest.Resources
        changes = [
            resources.Configs(
                name=key.replace("_", "."),
                config_operation=1 if value is None else 0,
                value=None if value is None else str(value),
            )
            for key, value in config.items()
        ]
        request = m.IncrementalAlterConfigsRequest(
            resources=[resources(resource_type=resource, resource_name=name, configs=changes)]
        )
        return self.ask(node, request, 1, m.IncrementalAlterConfigsResponse).responses[0].error_code

    def reassign(self, topic: str, replicas: Sequence[int] | None, *, partition: int = 0) -> None:
        """Asks for these replicas; None cancels."""
        topics = m.AlterPartitionReassignmentsRequest.Topics
        target = None if replicas is None else list(replicas)
        requested = topics(name=topic, partitions=[topics.Partitions(partition_index=partition, replicas=target)])
        request = m.AlterPartitionReassignmentsRequest(timeout_ms=30_000, topics=[requested])
        response = self.ask(1, request, 0, m.AlterPartitionReassignmentsResponse)
        assert (response.error_code, response.responses[0].partitions[0].error_code) == (0, 0), response

    def move_leader(self, topic: str, replicas: Sequence[int], *, partition: int = 0) -> None:
        """The same replicas in another order, and an election of the first."""
        self.reassign(topic, replicas, partition=partition)
        self.wait("the order has changed", lambda: self.registration(topic, partition).replicas == tuple(replicas))
        elected = m.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])
        request = m.ElectLeadersRequest(election_type=0, topic_partitions=[elected], timeout_ms=30_000)
        response = self.ask(1, request, 2, m.ElectLeadersResponse)
        assert response.error_code == 0, response
        self.wait(f"broker {replicas[0]} leads", lambda: self.leads(replicas[0], topic, partition))

    def add_partitions(self, topic: str, count: int, *replicas: Sequence[int]) -> None:
        """Grows the topic to `count` partitions; one list of replicas for each new one."""
        topics = m.CreatePartitionsRequest.Topics
        requested = topics(
            name=topic, count=count, assignments=[topics.Assignments(broker_ids=list(replica)) for replica in replicas]
        )
        request = m.CreatePartitionsRequest(topics=[requested], timeout_ms=30_000)
        results = self.ask(1, request, 3, m.CreatePartitionsResponse).results[0]
        assert results.error_code == 0, results
        self.wait("they have leaders", lambda: all(self.leads(self.leader(topic, p), topic, p) for p in range(count)))

    def move_log_dir(self, node: int, topic: str, partition: int = 0) -> None:
        """Moves a replica to another log dir of its broker."""
        manager = self.cluster.broker(node).services.log_manager
        before = Path(self.log(topic, partition, node=node).dir).parent
        target = next(log_dir for log_dir in self.cluster.layout.log_dirs[node].split(",") if Path(log_dir) != before)
        dirs = m.AlterReplicaLogDirsRequest.Dirs
        requested = dirs(path=target, topics=[dirs.Topics(name=topic, partitions=[partition])])
        response = self.ask(node, m.AlterReplicaLogDirsRequest(dirs=[requested]), 2, m.AlterReplicaLogDirsResponse)
        assert response.results[0].partitions[0].error_code == 0, response

        def moved() -> bool:
            log = self.cluster.ask(lambda: manager.get(TopicPartition(topic, partition)))
            return log is not None and Path(log.dir).parent == Path(target)

        self.wait("the replica has moved", moved)

    def delete_topic(self, topic: str) -> None:
        requested = m.DeleteTopicsRequest.Topics(name=topic)
        request = m.DeleteTopicsRequest(topics=[requested], timeout_ms=30_000)
        response = self.ask(1, request, 6, m.DeleteTopicsResponse).responses[0]
        assert response.error_code == 0, response

    # The cluster

    def registration(self, topic: str, partition: int = 0) -> PartitionRegistration:
        def find() -> PartitionRegistration:
            for node in self.cluster.cluster.brokers:
                held = self.cluster.broker(node).services.metadata.image.topic(topic)
                if held is not None and partition in held.partitions:
                    return held.partitions[partition]
            raise AssertionError(f"{topic}-{partition} does not exist")

        return self.cluster.ask(find)

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.registration(topic, partition).leader

    def leads(self, node: int, topic: str, partition: int = 0) -> bool:
        """Whether the broker itself knows that it leads."""
        if self.leader(topic, partition) != node:
            return False
        manager = self.cluster.broker(node).broker_services.replica_manager
        return self.cluster.ask(lambda: manager.partition(topic, partition).is_leader)

    def log(self, topic: str, partition: int = 0, *, node: int | None = None) -> UnifiedLog:
        """A replica's log; the leader's unless a node is given. Look at it, do not touch it."""
        chosen = node or self.leader(topic, partition)
        manager = self.cluster.broker(chosen).services.log_manager
        log = self.cluster.ask(lambda: manager.get(TopicPartition(topic, partition)))
        assert log is not None, f"broker {chosen} has no log of {topic}-{partition}"
        return log

    def offsets(self, topic: str, partition: int = 0, *, node: int | None = None) -> tuple[int, int, int, int]:
        """(log start, local start, log end, highest remote)."""
        log = self.log(topic, partition, node=node)
        return log.log_start_offset, log.local_log_start_offset, log.log_end_offset, log.highest_remote_offset

    def remote_starts(self, topic: str, partition: int = 0) -> list[int]:
        """Start offsets of the segments in the remote folder."""
        folders = self.cluster.remote_folder.glob(f"kafka-tiered-storage/{topic}-{partition}-*")
        return sorted(int(path.name.split("-", 1)[0]) for folder in folders for path in folder.glob("*.log"))

    def wait(self, what: str, question: Any, timeout_s: float = WAIT_S) -> None:
        """Asks again and again until it is true."""
        deadline = time.monotonic() + timeout_s
        while not question():
            assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
            time.sleep(0.02)

    def wait_offsets(self, topic: str, expected: tuple[int, int, int, int], *nodes: int, partition: int = 0) -> None:
        """(log start, local start, log end, highest remote) on these brokers (default: the leader)."""

        def offsets_now() -> list[tuple[int, int, int, int]]:
            return [self.offsets(topic, partition, node=node) for node in nodes or (self.leader(topic, partition),)]

        try:
            self.wait(f"{topic}-{partition} is at {expected}", lambda: set(offsets_now()) == {expected}, 30)
        except AssertionError as error:
            raise AssertionError(f"{error}; found {offsets_now()}") from error


@contextmanager
def lab(
    folder: Path, *, brokers: int = 3, settings: Mapping[str, str] | None = None, log_dirs: int = 1
) -> Iterator[Lab]:
    """A running cluster with tiering."""
    made = layout(folder, brokers=brokers, tiering=True, settings={**SETTINGS, **(settings or {})})
    dirs = {node: ",".join(f"{first}-{at}" if at else first for at in range(log_dirs)) for node, first in
            made.log_dirs.items()}  # fmt: skip
    with EngineCluster(folder, made=replace(made, log_dirs=dirs)) as cluster:
        yield Lab(cluster)


def history(running: Lab, node: int, topic: str, *types: EventType) -> list[StorageEvent]:
    """The broker's calls of the remote storage for a topic, oldest first."""
    manager = running.cluster.broker(node).services.remote_log_manager
    assert manager is not None
    storage = manager.storage
    assert isinstance(storage, ObjectStoreRemoteStorageManager)
    return [e for e in storage.history if e.type in types and e.topic_id_partition.topic == topic]


def fetched_segments(running: Lab, node: int, topic: str) -> int:
    """How often the broker read a segment of the topic from the remote storage."""
    return len(history(running, node, topic, EventType.FETCH_SEGMENT))


def wait_deleted(running: Lab, node: int, topic: str, *starts: int) -> None:
    """The broker deletes exactly these segments in this order; it notes each after its files are gone."""

    def deleted() -> list[int]:
        return [event.start_offset for event in history(running, node, topic, EventType.DELETE_SEGMENT)]

    running.wait(f"{len(starts)} segments are deleted", lambda: len(deleted()) >= len(starts))
    assert deleted() == list(starts)


def values(*numbers: int) -> list[bytes]:
    return [b"v%d" % number for number in numbers]
