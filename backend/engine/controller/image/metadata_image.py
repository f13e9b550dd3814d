"""The whole metadata of a cluster as one immutable value.

An image is what replaying `__cluster_metadata` up to `offset` gives (`replay.py`). Controller and brokers hold images
only as values: a change makes a new image that shares everything unchanged, so that "did this topic change" is an
identity test.
Names follow Kafka's `MetadataImage`, `PartitionRegistration` and `BrokerRegistration` (KIP-631).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from immutables import Map

from backend.protocol.scram import MECHANISM_TYPES, ScramCredential

NO_LEADER: Final = -1
# Resource types of ConfigResource and ConfigRecord.
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
# The resource name of the cluster-wide dynamic broker settings.
CLUSTER_DEFAULT: Final = ""
# LeaderRecoveryState of a partition: RECOVERING after an unclean election until the leader says otherwise.
RECOVERED: Final = 0
RECOVERING: Final = 1

# Reserved directory ids of Kafka's DirectoryId: an assignment that names no directory.
DIRECTORY_UNASSIGNED: Final = bytes(16)
# The broker cannot use the replica's log (KIP-858).
DIRECTORY_LOST: Final = bytes(15) + b"\x01"
DIRECTORY_MIGRATING: Final = bytes(15) + b"\x02"

_NO_CONFIG: Final[Map[str, str]] = Map()

# The entity of a quota (ClientQuotaEntity): (type, name) by type; the name None is the default of its type.
QuotaEntity = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a node's listener; `security_protocol` is Kafka's id (0 PLAINTEXT, 1 SSL, 2, 3 SASL)."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class SupportedFeature:
    """The levels of a feature that a node's software can run."""

    name: str
    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One life of a broker: a new registration has a new epoch, which is the offset of its record."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    features: tuple[SupportedFeature, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] = ()

    @property
    def active(self) -> bool:
        """Whether the broker may lead or join an ISR: neither fenced nor shutting down."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The broker's address under a listener name."""
        for endpoint in self.endpoints:  # some 100,000 times for the metadata of a large cluster
            if endpoint.name == listener_name:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A node that can be the controller."""

    id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """Replicas and leadership of one partition; `leader` is -1 when there is none.

    `replicas` is in preference order and, while a reassignment runs, holds the target followed by `removing_replicas`.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    # Leader epoch that the last unclean election gave, -1 without any: what replicas have of older epochs may be lost.
    unclean_leader_epoch: int = -1

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    def directory_of(self, replica: int) -> bytes:
        """Id of the directory that the broker's log lies in, or a reserved one (KIP-858)."""
        return dict(zip(self.replicas, self.directories, strict=False)).get(replica, DIRECTORY_UNASSIGNED)

    def is_lost(self, replica: int) -> bool:
        """Whether the broker has said that it cannot use its log of the partition."""
        return DIRECTORY_LOST in self.directories and self.directory_of(replica) == DIRECTORY_LOST

    @property
    def reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One incarnation of a topic."""

    name: str
    id: bytes
    partitions: Map[int, PartitionRegistration]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything the metadata log says up to and including `offset` (-1: nothing yet); `epoch` is raft's there."""

    offset: int = -1
    epoch: int = 0
    cluster_id: str = ""
    brokers: Map[int, BrokerRegistration] = field(default_factory=Map)
    topics: Map[bytes, TopicImage] = field(default_factory=Map)
    topic_ids: Map[str, bytes] = field(default_factory=Map)
    configs: Map[tuple[int, str], Map[str, str]] = field(default_factory=Map)
    features: Map[str, int] = field(default_factory=Map)
    next_producer_id: int = 0
    controllers: Map[int, ControllerRegistration] = field(default_factory=Map)
    # Quota values by key (producer_byte_rate …); an entity without any is not there.
    client_quotas: Map[QuotaEntity, Map[str, float]] = field(default_factory=Map)
    # (mechanism's type, user) → what proves the user's password.
    scram: Map[tuple[int, str], ScramCredential] = field(default_factory=Map)

    def scram_credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """The user's credential for a mechanism by its name."""
        return self.scram.get((MECHANISM_TYPES[mechanism], user))

    def topic(self, name: str) -> TopicImage | None:
        """The topic of that name as it stands now."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        """A partition by topic name and index."""
        topic_image = self.topic(topic)
        return None if topic_image is None else topic_image.partitions.get(partition)

    def partition_by_id(self, topic_id: bytes, partition: int) -> PartitionRegistration | None:
        """A partition by topic id and index."""
        topic_image = self.topics.get(topic_id)
        return None if topic_image is None else topic_image.partitions.get(partition)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """A registered broker, fenced or not."""
        return self.brokers.get(broker_id)

    def alive_brokers(self) -> list[BrokerRegistration]:
        """Brokers that are not fenced, by id (in controlled shutdown too, as in Kafka's Metadata answers)."""
        return sorted((broker for broker in self.brokers.values() if not broker.fenced), key=lambda broker: broker.id)

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker may lead a partition or join an ISR."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active

    def config(self, resource_type: int, resource_name: str) -> Map[str, str]:
        """The dynamic settings of exactly this resource."""
        return self.configs.get((resource_type, resource_name), _NO_CONFIG)

    def topic_config(self, name: str) -> Map[str, str]:
        """The topic's own overrides, by topic config name; everything else comes from the broker's settings."""
        return self.config(TOPIC_RESOURCE, name)

    def broker_config(self, broker_id: int) -> Mapping[str, str]:
        """Dynamic settings in force on a broker: its own over the cluster-wide default."""
        default = self.config(BROKER_RESOURCE, CLUSTER_DEFAULT)
        own = self.config(BROKER_RESOURCE, str(broker_id))
        return default.update(own) if own else default


EMPTY_IMAGE: Final = MetadataImage()


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One topic that differs between two images; `old` is None for a new topic, `new` for a deleted one."""

    old: TopicImage | None
    new: TopicImage | None

    def changed_partitions(self) -> Iterator[tuple[int, PartitionRegistration | None, PartitionRegistration | None]]:
        """`(index, before, after)` of every partition whose registration differs, by index."""
        before: Mapping[int, PartitionRegistration] = self.old.partitions if self.old else {}
        after: Mapping[int, PartitionRegistration] = self.new.partitions if self.new else {}
        for index in sorted({*before, *after}):
            if before.get(index) is not after.get(index) and before.get(index) != after.get(index):
                yield index, before.get(index), after.get(index)


def topic_changes(old: MetadataImage, new: MetadataImage) -> list[TopicChange]:
    """Topics that differ, deletions first (a topic deleted and created again under its name is two changes), by name:
    the order in which a map holds its keys is another in every process.
    """
    if old.topics is new.topics:
        return []
    deleted = [TopicChange(topic, None) for topic_id, topic in old.topics.items() if topic_id not in new.topics]
    changed = [
        TopicChange(old.topics.get(topic_id), topic)
        for topic_id, topic in new.topics.items()
        if old.topics.get(topic_id) is not topic
    ]
    deleted.sort(key=lambda change: "" if change.old is None else change.old.name)
    changed.sort(key=lambda change: "" if change.new is None else change.new.name)
    return deleted + changed


def changed_configs(old: MetadataImage, new: MetadataImage) -> set[tuple[int, str]]:
    """Resources `(type, name)` whose dynamic settings differ."""
    if old.configs is new.configs:
        return set()
    resources = {*old.configs, *new.configs}
    return {
        resource
        for resource in resources
        if old.configs.get(resource, _NO_CONFIG) != new.configs.get(resource, _NO_CONFIG)
    }
