"""Bytes on the brokers' disks: DescribeLogDirs (KIP-113, KIP-827). Counts a replica's local ``.log`` files only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import Gateway
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, error_code, error_for
from backend.runtime.redact import printable
from backend.tiering.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class SetAsideReplica:
    """An unused replica folder that a broker keeps; since when and why. Only the embedded engine
    reports it.
    """

    name: str
    size_bytes: int
    since_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class OfflineLog:
    """A replica whose log its broker cannot use, though the directory works, and why: a file as it lies in the
    directory, and what is wrong with it. Only the embedded engine reports it."""

    partition: TopicPartition
    reason: str


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log directory; the sizes of its volume are None where the broker does not say."""

    path: str
    total_bytes: int | None
    usable_bytes: int | None
    error: ErrorCode
    set_aside: tuple[SetAsideReplica, ...] = ()
    offline_logs: tuple[OfflineLog, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """A replica's local log; `offset_lag` is how far it is behind the high watermark."""

    log_dir: str
    size_bytes: int
    offset_lag: int


@dataclass(frozen=True, slots=True)
class BrokerDisk:
    """All log directories of a broker and what lies in them, without replicas that move between directories."""

    log_dirs: tuple[LogDirDescription, ...]
    replicas: dict[TopicPartition, ReplicaSize]

    @property
    def offline_logs(self) -> dict[TopicPartition, str]:
        """Why logs cannot be used."""
        return {
            offline_log.partition: offline_log.reason
            for directory in self.log_dirs
            for offline_log in directory.offline_logs
        }


async def describe_log_dirs(
    gateway: Gateway,
    node_id: int,
    *,
    only: Iterable[TopicPartition] | None = None,
    previous: BrokerDisk | None = None,
    lane: Lane = Lane.SAMPLE,
) -> BrokerDisk:
    """The disks of one broker, asked of it; `only` these replicas. Sizes as in `previous` are the same objects.

    Raises GatewayError or KafkaError.
    """
    before = previous.replicas if previous is not None else {}
    request = m.DescribeLogDirsRequest(topics=None if only is None else _topics(only))
    response, _ = await gateway.ask_node(node_id, request, m.DescribeLogDirsResponse, lane=lane)
    if response.error_code:
        raise error_for(response.error_code, f"broker {node_id} does not describe its log directories")
    dirs = []
    replicas: dict[TopicPartition, ReplicaSize] = {}
    for result in response.results:
        dirs.append(
            LogDirDescription(
                result.log_dir,
                result.total_bytes if result.total_bytes >= 0 else None,
                result.usable_bytes if result.usable_bytes >= 0 else None,
                error_code(result.error_code),
                tuple(
                    SetAsideReplica(replica.name, replica.size_bytes, replica.since_ms, replica.reason)
                    for replica in result.set_aside
                ),
                tuple(
                    OfflineLog(TopicPartition(replica.topic, replica.partition_index), printable(replica.reason))
                    for replica in result.offline_logs
                ),
            )
        )
        for topic in result.topics:
            for p in topic.partitions:
                if not p.is_future_key:
                    tp = TopicPartition(topic.name, p.partition_index)
                    size = ReplicaSize(result.log_dir, p.partition_size, p.offset_lag)
                    last = before.get(tp)
                    replicas[tp] = last if last is not None and last == size else size
    return BrokerDisk(tuple(dirs), replicas)


def _topics(partitions: Iterable[TopicPartition]) -> list[m.DescribeLogDirsRequest.Topics]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in partitions:
        by_topic[tp.topic].append(tp.partition)
    return [m.DescribeLogDirsRequest.Topics(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
