"""The consumer's formats inside the classic protocol: subscription and assignment of a member.

The coordinator reads and writes them only where groups are upgraded, downgraded or mixed (KIP-848).
Kafka: `ConsumerProtocol`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from backend.engine.coordinator.group.consumer.consumer_group_records import by_topic
from backend.engine.coordinator.topics_view import AssignablePartition, TopicsView
from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError

PROTOCOL_TYPE: Final = "consumer"
# The int16 before both; a newer version begins like the newest one that is known.
_VERSION: Final = Struct(">h")


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A consumer's subscription: topics and, from version 1 on, the partitions it has."""

    topics: frozenset[str]
    owned: frozenset[AssignablePartition]
    rack_id: str | None


def _version_of(data: bytes, most: int) -> int:
    if len(data) < _VERSION.size:
        raise DecodeError("a consumer's metadata has no version")
    return min(int(_VERSION.unpack_from(data)[0]), most)


def read_subscription(metadata: bytes, topics: TopicsView) -> MemberSubscription:
    """Raises DecodeError."""
    kind = m.ConsumerProtocolSubscription
    version = _version_of(metadata, kind.MAX_VERSION)
    subscription, _ = codec.decode(kind, version, metadata, _VERSION.size)
    owned = _existing(
        ((owned_partition.topic, owned_partition.partitions) for owned_partition in subscription.owned_partitions),
        topics,
    )
    return MemberSubscription(frozenset(subscription.topics), owned, subscription.rack_id)


def read_assignment(data: bytes, topics: TopicsView) -> frozenset[AssignablePartition]:
    """Partitions of topics that exist; none of an empty assignment. Raises DecodeError."""
    if not data:
        return frozenset()
    kind = m.ConsumerProtocolAssignment
    assignment, _ = codec.decode(kind, _version_of(data, kind.MAX_VERSION), data, _VERSION.size)
    return _existing(
        (
            (assigned_partition.topic, assigned_partition.partitions)
            for assigned_partition in assignment.assigned_partitions
        ),
        topics,
    )


def _existing(named: Iterable[tuple[str, list[int]]], topics: TopicsView) -> frozenset[AssignablePartition]:
    topic_infos = ((topics.by_name.get(name), indexes) for name, indexes in named)
    return frozenset((topic.id, index) for topic, indexes in topic_infos if topic is not None for index in indexes)


def write_assignment(partitions: Iterable[AssignablePartition], topics: TopicsView, metadata: bytes) -> bytes:
    """An assignment in the version of the member's own metadata. Raises DecodeError when that has none."""
    kind = m.ConsumerProtocolAssignment
    version = _version_of(metadata, kind.MAX_VERSION)
    assignment = kind(
        assigned_partitions=[
            kind.AssignedPartitions(topic=topics.names[topic], partitions=indexes)
            for topic, indexes in by_topic(partitions).items()
            if topic in topics.names
        ]
    )
    return _VERSION.pack(version) + codec.encode(assignment, version)
