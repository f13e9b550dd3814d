"""Requests of Kafka's protocol that client libraries do not offer, or send elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from backend.protocol import messages as m
from backend.protocol.ids import uuid_text
from tests.wire import ask

TOPIC, BROKER = 2, 4
_SET, _DELETE = 0, 1
PREFERRED, UNCLEAN = 0, 1
LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -4, -5
# Nothing to be done: the preferred leader leads already, no reassignment is going on.
_ELECTION_NOT_NEEDED: Final = 84
TIMEOUT_MS: Final = 30_000
Partition = tuple[str, int]


class RefusedRequest(RuntimeError):
    """A broker refused; the message has its words."""


def metadata(port: int, topics: Iterable[str] | None = None) -> m.MetadataResponse:
    """Of these topics, or of all."""
    requested = None if topics is None else [m.MetadataRequest.Topics(name=name) for name in topics]
    # A question makes no topic.
    request = m.MetadataRequest(topics=requested, allow_auto_topic_creation=False)
    return ask(port, request, 12, m.MetadataResponse)


def replica_lists(port: int, topics: Iterable[str] | None = None) -> dict[Partition, list[int]]:
    """The replicas of each partition, the preferred leader first."""
    return {
        (topic.name or "", partition.partition_index): list(partition.replica_nodes)
        for topic in metadata(port, topics).topics
        for partition in topic.partitions
    }


def topic_id(port: int, topic: str) -> str:
    """As the names of its remote folders have it: those of a former topic of this name may not be deleted yet."""
    return uuid_text(metadata(port, [topic]).topics[0].topic_id)


def leaders(port: int, topics: Iterable[str] | None = None) -> dict[Partition, int]:
    return {
        (topic.name or "", partition.partition_index): partition.leader_id
        for topic in metadata(port, topics).topics
        for partition in topic.partitions
    }


def alter_configs(port: int, kind: int, name: str, settings: Mapping[str, str | None]) -> None:
    """Sets them, or (None) takes them away. Those of one broker must go to its port; "" is the default of brokers."""
    resource = m.IncrementalAlterConfigsRequest.Resources
    configs = [
        resource.Configs(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in settings.items()
    ]
    request = m.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=configs)]
    )
    (response,) = ask(port, request, 1, m.IncrementalAlterConfigsResponse).responses
    if response.error_code:
        raise RefusedRequest(f"{name}: {dict(settings)}: {response.error_message or response.error_code}")


def reassign(port: int, replicas: Mapping[Partition, Sequence[int] | None]) -> None:
    """Begins these moves; None cancels one."""
    topic_type = m.AlterPartitionReassignmentsRequest.Topics
    by_topic: dict[str, list[m.AlterPartitionReassignmentsRequest.Topics.Partitions]] = {}
    for (topic, partition), brokers in replicas.items():
        by_topic.setdefault(topic, []).append(
            topic_type.Partitions(partition_index=partition, replicas=None if brokers is None else list(brokers))
        )
    request = m.AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[topic_type(name=name, partitions=rows) for name, rows in by_topic.items()]
    )
    response = ask(port, request, 0, m.AlterPartitionReassignmentsResponse)
    errors = [
        f"{topic.name}-{partition.partition_index}: {partition.error_message or partition.error_code}"
        for topic in response.responses
        for partition in topic.partitions
        if partition.error_code
    ]
    if response.error_code or errors:
        raise RefusedRequest(f"{response.error_message or response.error_code}: {errors[:3]}")


def moving(port: int) -> set[Partition]:
    """Partitions whose reassignment goes on."""
    request = m.ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
    response = ask(port, request, 0, m.ListPartitionReassignmentsResponse)
    return {(topic.name, row.partition_index) for topic in response.topics for row in topic.partitions}


def elect(port: int, kind: int, partitions: Iterable[Partition]) -> None:
    """Elects leaders; a preferred one that leads already is no error."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    row = m.ElectLeadersRequest.TopicPartitions
    request = m.ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[row(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()],
        timeout_ms=TIMEOUT_MS,
    )
    response = ask(port, request, 2, m.ElectLeadersResponse)
    errors = [
        f"{topic.topic}-{result.partition_id}: {result.error_message or result.error_code}"
        for topic in response.replica_election_results
        for result in topic.partition_result
        if result.error_code not in (0, _ELECTION_NOT_NEEDED)
    ]
    if response.error_code or errors:
        raise RefusedRequest(f"{response.error_code}: {errors[:3]}")


def offset(port: int, topic: str, partition: int, timestamp: int) -> int:
    """As the leader at this port answers; -1: it has none."""
    requested = m.ListOffsetsRequest.Topics
    request = m.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            requested(
                name=topic,
                partitions=[
                    requested.Partitions(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
                ],
            )
        ],
        timeout_ms=TIMEOUT_MS,
    )
    row = ask(port, request, 11, m.ListOffsetsResponse).topics[0].partitions[0]
    if row.error_code:
        raise RefusedRequest(f"{topic}-{partition}: error {row.error_code}")
    return row.offset


def quorum_leader(port: int) -> int:
    """Node that leads the metadata quorum."""
    requested = m.DescribeQuorumRequest.Topics
    request = m.DescribeQuorumRequest(
        topics=[requested(topic_name="__cluster_metadata", partitions=[requested.Partitions(partition_index=0)])]
    )
    return ask(port, request, 1, m.DescribeQuorumResponse).topics[0].partitions[0].leader_id


def limit_client(port: int, client_id: str, bytes_per_s: float | None) -> None:
    """A quota for the bytes that clients of this id read; None: none."""
    entry = m.AlterClientQuotasRequest.Entries
    request = m.AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.Entity(entity_type="client-id", entity_name=client_id)],
                ops=[entry.Ops(key="consumer_byte_rate", value=bytes_per_s or 0.0, remove=bytes_per_s is None)],
            )
        ]
    )
    response = ask(port, request, 1, m.AlterClientQuotasResponse)
    if any(altered.error_code for altered in response.entries):
        raise RefusedRequest(str(response))


def set_feature(port: int, name: str, level: int, *, upgrade: bool) -> None:
    """Raises a feature's level, or lowers it where that is safe."""
    update = m.UpdateFeaturesRequest.FeatureUpdates(
        feature=name, max_version_level=level, upgrade_type=1 if upgrade else 2
    )
    request = m.UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update])
    response = ask(port, request, 1, m.UpdateFeaturesResponse)
    if response.error_code:
        raise RefusedRequest(f"{name}: {response.error_message}")
