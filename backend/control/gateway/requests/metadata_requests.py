"""Brokers, topics and partitions as the cluster's metadata says."""

from __future__ import annotations

from dataclasses import dataclass, field

from backend.control.gateway.broker_connection import BrokerAddress
from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import REQUEST_TIMEOUT_S, Gateway
from backend.control.gateway.last_response import LastResponse
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError, error_code, error_for
from backend.tiering.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    """A registered broker."""

    broker_id: int
    address: BrokerAddress
    rack: str | None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition's assignment; `leader` is -1 while there is none, `error` is Kafka's code of the partition."""

    topic: str
    topic_id: bytes
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: ErrorCode
    # Asked for ten times a round of the observer: made once.
    topic_partition: TopicPartition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "topic_partition", TopicPartition(self.topic, self.partition))


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic with all its partitions, in order."""

    topic: str
    topic_id: bytes
    internal: bool
    partitions: tuple[PartitionMetadata, ...]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The answer to one Metadata request."""

    cluster_id: str
    controller_id: int | None
    brokers: tuple[BrokerMetadata, ...]
    topics: tuple[TopicMetadata, ...]
    partitions: tuple[PartitionMetadata, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "partitions", tuple(p for topic in self.topics for p in topic.partitions))


def last_metadata() -> LastResponse[m.MetadataResponse, ClusterMetadata]:
    """For `fetch_cluster`. Kafka names any living broker as the controller (KRaftMetadataCache), another each time."""
    return LastResponse(ignored=frozenset({"controller_id"}))


async def fetch_cluster(
    gateway: Gateway,
    *,
    lane: Lane = Lane.SAMPLE,
    last: LastResponse[m.MetadataResponse, ClusterMetadata] | None = None,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> ClusterMetadata:
    """All brokers that are alive and all topics; the gateway learns the addresses. Raises ClusterUnavailable.

    While nothing changes, the same `last` gives the same view.
    """
    last = last if last is not None else last_metadata()
    # v10: topic ids, which tell a topic from a later one of the same name.
    request = m.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    response = await gateway.ask_any(
        request, m.MetadataResponse, at_least=10, lane=lane, last=last, timeout_s=timeout_s
    )
    view = last.made(response, _cluster_view)
    await gateway.learn_brokers({broker.broker_id: broker.address for broker in view.brokers})
    return view


async def fetch_topic(gateway: Gateway, topic: str, *, lane: Lane = Lane.SAMPLE) -> TopicMetadata:
    """One topic. Raises ClusterUnavailable, KafkaError for a topic that is not there."""
    request = m.MetadataRequest(topics=[m.MetadataRequest.Topics(name=topic)], allow_auto_topic_creation=False)
    response = await gateway.ask_any(request, m.MetadataResponse, at_least=10, lane=lane)
    for described in response.topics:
        if described.error_code:
            raise error_for(described.error_code)
        return _topic_view(described)
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")


def _cluster_view(response: m.MetadataResponse) -> ClusterMetadata:
    topics = [_topic_view(topic) for topic in response.topics if topic.name is not None and not topic.error_code]
    return ClusterMetadata(
        cluster_id=response.cluster_id or "",
        controller_id=response.controller_id if response.controller_id >= 0 else None,
        brokers=tuple(BrokerMetadata(b.node_id, BrokerAddress(b.host, b.port), b.rack) for b in response.brokers),
        topics=tuple(sorted(topics, key=lambda topic: topic.topic)),
    )


def _topic_view(topic: m.MetadataResponse.Topics) -> TopicMetadata:
    name = topic.name or ""
    partitions = (
        PartitionMetadata(
            topic=name,
            topic_id=topic.topic_id,
            partition=p.partition_index,
            leader=p.leader_id,
            leader_epoch=p.leader_epoch,
            replicas=tuple(p.replica_nodes),
            isr=tuple(p.isr_nodes),
            offline=tuple(p.offline_replicas),
            error=error_code(p.error_code),
        )
        for p in topic.partitions
    )
    ordered = tuple(sorted(partitions, key=lambda p: p.partition))
    return TopicMetadata(name, topic.topic_id, topic.is_internal, ordered)


async def fetch_brokers(gateway: Gateway) -> tuple[BrokerMetadata, ...]:
    """All registered brokers, fenced ones too where the cluster can tell (DescribeCluster v2, KIP-1073)."""
    request = m.DescribeClusterRequest(include_fenced_brokers=True)
    response = await gateway.ask_any(request, m.DescribeClusterResponse)
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    return tuple(
        BrokerMetadata(b.broker_id, BrokerAddress(b.host, b.port), b.rack, fenced=b.is_fenced)
        for b in sorted(response.brokers, key=lambda b: b.broker_id)
    )


async def fetch_features(gateway: Gateway, node_id: int) -> dict[str, int]:
    """Finalized feature levels, such as metadata.version (KIP-584)."""
    return dict((await gateway.connection(node_id)).features)
