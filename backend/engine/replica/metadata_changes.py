"""From two metadata images to the changes for one broker's replicas: which to stop, lead and follow.

Pure. Kafka: `TopicsDelta.localChanges`, `ReplicaManager.applyDelta`.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.engine.controller.image.metadata_image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionRegistration,
    changed_configs,
    topic_changes,
)
from backend.tiering.ids import ZERO_UUID, TopicIdPartition


@dataclass(frozen=True, slots=True)
class AssignedReplica:
    """A replica of this broker and what metadata says about its partition."""

    tip: TopicIdPartition
    registration: PartitionRegistration


@dataclass(frozen=True, slots=True)
class LocalChanges:
    """In the order to carry them out: `deleted` with the topic, `moved_away` by reassignment, then the roles."""

    deleted: tuple[TopicIdPartition, ...]
    moved_away: tuple[TopicIdPartition, ...]
    leaders: tuple[AssignedReplica, ...]
    followers: tuple[AssignedReplica, ...]
    # Topics whose own settings changed; None: the broker's settings changed, so every topic's may have.
    changed_topics: frozenset[str] | None


def local_changes(old: MetadataImage, new: MetadataImage, node_id: int) -> LocalChanges:
    """Differences that concern replicas on the broker."""
    deleted: list[TopicIdPartition] = []
    moved_away: list[TopicIdPartition] = []
    leaders: list[AssignedReplica] = []
    followers: list[AssignedReplica] = []
    for change in topic_changes(old, new):
        topic = change.new or change.old
        assert topic is not None
        for index, before, after in change.changed_partitions():
            tip = TopicIdPartition(topic.name, topic.id, index)
            if after is not None and node_id in after.replicas:
                (leaders if after.leader == node_id else followers).append(AssignedReplica(tip, after))
            elif before is not None and node_id in before.replicas:
                (deleted if change.new is None else moved_away).append(tip)
    return LocalChanges(
        tuple(deleted), tuple(moved_away), tuple(leaders), tuple(followers), _changed_topics(old, new, node_id)
    )


def _changed_topics(old: MetadataImage, new: MetadataImage, node_id: int) -> frozenset[str] | None:
    changed = changed_configs(old, new)
    if changed & {(BROKER_RESOURCE, CLUSTER_DEFAULT), (BROKER_RESOURCE, str(node_id))}:
        return None
    return frozenset(name for resource_type, name in changed if resource_type == TOPIC_RESOURCE)


def is_ours(image: MetadataImage, tip: TopicIdPartition, node_id: int) -> bool:
    """Whether metadata has this broker among the replicas of this incarnation of the partition.

    A log whose topic id is lost counts as that of the topic that has its name now.
    """
    if tip.topic_id not in (ZERO_UUID, image.topic_ids.get(tip.topic)):
        return False
    registration = image.partition(tip.topic, tip.partition)
    return registration is not None and node_id in registration.replicas
