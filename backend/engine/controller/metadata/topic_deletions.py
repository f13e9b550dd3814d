"""Partitions of deleted tiered topics, until the remote tier is informed (KIP-405, "Topic deletion lifecycle").

Kept in every controller's memory: RemoveTopicRecords of the metadata log that it replays put them there. A deletion
that only a snapshot contains is found by comparison with the remote tier's own records: see
:meth:`TopicDeletions.add_vanished`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from backend.engine.controller.commands.config.topic_settings import REMOTE_STORAGE
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.protocol import messages as m
from backend.tiering.ids import TopicIdPartition


@dataclass(frozen=True, slots=True)
class DeletedPartition:
    """A deleted partition. `offset` is that of its topic's removal in the metadata log."""

    tip: TopicIdPartition
    replicas: tuple[int, ...]
    offset: int
    # Replayed from the log at a start: the remote tier may have been informed before it.
    replayed: bool


class TopicDeletions:
    """One entry of about 300 bytes for each partition of whose deletion the remote tier is not informed yet."""

    def __init__(self) -> None:
        self._waiting: dict[TopicIdPartition, DeletedPartition] = {}

    def add(self, before: MetadataImage, records: Iterable[object], offset: int, *, replayed: bool = False) -> None:
        """Adds the deletions among records that are about to change the image `before`; the last is at `offset`."""
        for record in records:
            if not isinstance(record, m.RemoveTopicRecord):
                continue
            topic = before.topics.get(bytes(record.topic_id))
            # An explicit false may follow a true: remote data may be left.
            if topic is None or REMOTE_STORAGE not in before.topic_config(topic.name):
                continue
            for index, registration in topic.partitions.items():
                tip = TopicIdPartition(topic.name, topic.id, index)
                self._waiting[tip] = DeletedPartition(tip, tuple(registration.replicas), offset, replayed)

    def vanished(self, tips: Iterable[TopicIdPartition], image: MetadataImage) -> list[TopicIdPartition]:
        """The partitions, of these with remote data, whose topic is not in the image and that are not here yet.

        The image is one that the active controller gives its commands: there is no topic with remote data that it
        does not know yet.
        """
        return [tip for tip in tips if tip.topic_id not in image.topics and tip not in self._waiting]

    def add_vanished(self, tips: Iterable[TopicIdPartition], image: MetadataImage) -> Sequence[TopicIdPartition]:
        """Adds the partitions that `vanished` gives. Their replicas are not known, so all brokers are waited for."""
        vanished = self.vanished(tips, image)
        for tip in vanished:
            self._waiting[tip] = DeletedPartition(tip, tuple(image.brokers), image.offset, replayed=False)
        return vanished

    def offline(self, image: MetadataImage, applied: Callable[[int], int]) -> Sequence[DeletedPartition]:
        """Deleted partitions without an online replica: each broker is fenced, removed, or has applied it.

        `applied` gives the metadata offset up to which a broker has. A removal that never was committed, since its
        leader lost its place, left the topic in the image.
        """

        def is_off(broker: int, offset: int) -> bool:
            registration = image.brokers.get(broker)
            return registration is None or registration.fenced or applied(broker) >= offset

        return [
            partition
            for partition in self._waiting.values()
            if partition.offset <= image.offset
            and partition.tip.topic_id not in image.topics
            and all(is_off(broker, partition.offset) for broker in partition.replicas)
        ]

    def mark_informed(self, tip: TopicIdPartition) -> None:
        """The remote tier knows."""
        self._waiting.pop(tip, None)
