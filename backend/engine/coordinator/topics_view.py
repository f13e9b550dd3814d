"""A small view of topics, made from a metadata image, so that the coordinator's decisions stay pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from backend.engine.controller.image.metadata_image import MetadataImage

# A partition by topic id and index.
AssignablePartition = tuple[bytes, int]


class TopicInfo(NamedTuple):
    """A topic's id and how many partitions it has."""

    id: bytes
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicsView:
    """Topics by name.

    `version` changes with any topic, `names_version` when one comes or goes (regular expressions look again then).
    """

    version: int = -1
    names_version: int = -1
    by_name: Mapping[str, TopicInfo] = field(default_factory=dict)
    names: Mapping[bytes, str] = field(default_factory=dict)

    @classmethod
    def of(cls, topics: Mapping[str, TopicInfo], *, version: int = 0, names_version: int = 0) -> TopicsView:
        return cls(version, names_version, topics, {topic.id: name for name, topic in topics.items()})

    def ids(self, names: Iterable[str]) -> frozenset[bytes]:
        """Ids of those that exist."""
        return frozenset(self.by_name[name].id for name in names if name in self.by_name)

    def counts(self) -> dict[bytes, int]:
        """Partitions by topic id."""
        return {topic.id: topic.partitions for topic in self.by_name.values()}

    def fingerprint(self, names: Collection[str]) -> int:
        """A number that changes when one of these topics does; 0 when none of them exists.

        Kafka stores it as metadata_hash and only ever compares it with its own, so the function is free.
        """
        topics = sorted((name, self.by_name[name]) for name in names if name in self.by_name)
        if not topics:
            return 0
        digest = blake2b(repr(topics).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


def view_of(image: MetadataImage, version: int, names_version: int) -> TopicsView:
    """The image's topics."""
    topics = {topic.name: TopicInfo(topic.id, len(topic.partitions)) for topic in image.topics.values()}
    return TopicsView.of(topics, version=version, names_version=names_version)
