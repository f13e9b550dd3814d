"""Records of `__cluster_metadata` applied to an image: the only way an image ever changes.

Controller and brokers replay the same records in the same order and so hold equal images (KIP-500). The rules are
those of Kafka's `*Delta.replay` and `PartitionRegistration.merge`: a change record names only what changes, every
change of a partition raises its partition epoch, and naming a leader, even the present one, raises the leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from immutables import Map, MapMutation

from backend.engine.controller.image.metadata_image import (
    RECOVERING,
    TOPIC_RESOURCE,
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    MetadataImage,
    PartitionRegistration,
    QuotaEntity,
    SupportedFeature,
    TopicImage,
)
from backend.protocol import messages as m
from backend.protocol.scram import ScramCredential

# PartitionChangeRecord: no leader named, no recovery state named.
NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_CHANGE: Final = -1
# BrokerRegistrationChangeRecord.
FENCE: Final = 1
UNFENCE: Final = -1
START_CONTROLLED_SHUTDOWN: Final = 1


class ReplayError(ValueError):
    """A record does not fit the image it is applied to: log and image have parted, nothing after it can be trusted."""


def merge_partition(old: PartitionRegistration, change: m.PartitionChangeRecord) -> PartitionRegistration:
    """A partition after a change record (Kafka's PartitionRegistration.merge)."""
    leads = change.leader != NO_LEADER_CHANGE
    recovers = change.leader_recovery_state != NO_RECOVERY_CHANGE
    state = change.leader_recovery_state if recovers else old.leader_recovery_state
    # A leader that could not be elected cleanly; the state may be left from an election before.
    unclean = leads and change.leader >= 0 and change.leader not in (*old.isr, *old.elr) and state == RECOVERING
    return PartitionRegistration(
        replicas=_or(change.replicas, old.replicas),
        isr=_or(change.isr, old.isr),
        leader=change.leader if leads else old.leader,
        leader_epoch=old.leader_epoch + 1 if leads else old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        adding_replicas=_or(change.adding_replicas, old.adding_replicas),
        removing_replicas=_or(change.removing_replicas, old.removing_replicas),
        directories=old.directories if change.directories is None else tuple(bytes(d) for d in change.directories),
        elr=_or(change.eligible_leader_replicas, old.elr),
        last_known_elr=_or(change.last_known_elr, old.last_known_elr),
        leader_recovery_state=state,
        unclean_leader_epoch=old.leader_epoch + 1 if unclean else old.unclean_leader_epoch,
    )


def _or(changed: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if changed is None else tuple(changed)


def new_partition(record: m.PartitionRecord) -> PartitionRegistration:
    """A partition as its creating record says."""
    return PartitionRegistration(
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        adding_replicas=tuple(record.adding_replicas),
        removing_replicas=tuple(record.removing_replicas),
        directories=tuple(bytes(directory) for directory in record.directories),
        elr=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
        leader_recovery_state=record.leader_recovery_state,
        unclean_leader_epoch=_unclean_epoch(record),
    )


def _unclean_epoch(record: m.PartitionRecord) -> int:
    """A snapshot from before the field has the state alone."""
    if record.unclean_leader_epoch < 0 and record.leader_recovery_state == RECOVERING:
        return record.leader_epoch
    return record.unclean_leader_epoch


class PartitionCreated(NamedTuple):
    """A PartitionRecord, read in bulk."""

    topic_id: bytes
    partition_id: int
    registration: PartitionRegistration


class PartitionChanged(NamedTuple):
    """A PartitionChangeRecord, read in bulk: `change` is one that says the same of some partition.

    `registrations`: by identity, each registration that the change was applied to so far, with the result.
    """

    topic_id: bytes
    partition_id: int
    change: m.PartitionChangeRecord
    registrations: dict[int, tuple[PartitionRegistration, PartitionRegistration]]


@dataclass(slots=True)
class _Draft:
    """The maps of an image while groups of records are applied; nothing outside sees it."""

    brokers: Map[int, BrokerRegistration]
    topics: MapMutation[bytes, TopicImage]
    topic_ids: MapMutation[str, bytes]
    open_topics: dict[bytes, tuple[str, MapMutation[int, PartitionRegistration]]]
    configs: Map[tuple[int, str], Map[str, str]]
    features: Map[str, int]
    next_producer_id: int
    controllers: Map[int, ControllerRegistration]
    client_quotas: Map[QuotaEntity, Map[str, float]]
    scram: Map[tuple[int, str], ScramCredential]

    def partitions(self, topic_id: bytes) -> MapMutation[int, PartitionRegistration]:
        """The topic's partitions, open for change until `freeze`."""
        opened = self.open_topics.get(topic_id)
        if opened is None:
            topic = self.topics.get(topic_id)
            if topic is None:
                raise ReplayError(f"a record names topic id {topic_id.hex()}, which the image does not hold")
            opened = (topic.name, topic.partitions.mutate())
            self.open_topics[topic_id] = opened
        return opened[1]

    def freeze(self) -> None:
        for topic_id, (name, partitions) in self.open_topics.items():
            self.topics[topic_id] = TopicImage(name, topic_id, partitions.finish())
        self.open_topics.clear()

    def broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise ReplayError(f"a record names broker {broker_id} with epoch {epoch}, but the image holds {broker}")
        return broker


def _register_broker(draft: _Draft, record: m.RegisterBrokerRecord) -> None:
    draft.brokers = draft.brokers.set(
        record.broker_id,
        BrokerRegistration(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=bytes(record.incarnation_id),
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(bytes(directory) for directory in record.log_dirs),
            features=tuple(
                SupportedFeature(f.name, f.min_supported_version, f.max_supported_version) for f in record.features
            ),
            cordoned_log_dirs=tuple(bytes(directory) for directory in record.cordoned_log_dirs or ()),
        ),
    )


def _unregister_broker(draft: _Draft, record: m.UnregisterBrokerRecord) -> None:
    draft.broker(record.broker_id, record.broker_epoch)
    draft.brokers = draft.brokers.delete(record.broker_id)


def _fence_broker(draft: _Draft, record: m.FenceBrokerRecord) -> None:
    draft.brokers = draft.brokers.set(record.id, replace(draft.broker(record.id, record.epoch), fenced=True))


def _unfence_broker(draft: _Draft, record: m.UnfenceBrokerRecord) -> None:
    draft.brokers = draft.brokers.set(record.id, replace(draft.broker(record.id, record.epoch), fenced=False))


def _change_broker(draft: _Draft, record: m.BrokerRegistrationChangeRecord) -> None:
    broker = draft.broker(record.broker_id, record.broker_epoch)
    if record.fenced in (FENCE, UNFENCE):
        broker = replace(broker, fenced=record.fenced == FENCE)
    if record.in_controlled_shutdown == START_CONTROLLED_SHUTDOWN:
        broker = replace(broker, in_controlled_shutdown=True)
    if record.log_dirs:
        broker = replace(broker, log_dirs=tuple(bytes(directory) for directory in record.log_dirs))
    if record.cordoned_log_dirs is not None:
        broker = replace(broker, cordoned_log_dirs=tuple(bytes(d) for d in record.cordoned_log_dirs))
    draft.brokers = draft.brokers.set(broker.id, broker)


def _create_topic(draft: _Draft, record: m.TopicRecord) -> None:
    topic_id = bytes(record.topic_id)
    previous = draft.topic_ids.get(record.name)
    if previous is not None:
        raise ReplayError(f"topic {record.name} is created twice, as {previous.hex()} and as {topic_id.hex()}")
    draft.topic_ids[record.name] = topic_id
    draft.topics[topic_id] = TopicImage(record.name, topic_id, Map())


def _remove_topic(draft: _Draft, record: m.RemoveTopicRecord) -> None:
    topic_id = bytes(record.topic_id)
    topic = draft.topics.get(topic_id)
    if topic is None:
        raise ReplayError(f"topic id {topic_id.hex()} is removed, but the image does not hold it")
    draft.open_topics.pop(topic_id, None)
    del draft.topics[topic_id]
    del draft.topic_ids[topic.name]
    if (TOPIC_RESOURCE, topic.name) in draft.configs:
        draft.configs = draft.configs.delete((TOPIC_RESOURCE, topic.name))


def _create_partition(draft: _Draft, record: m.PartitionRecord) -> None:
    draft.partitions(bytes(record.topic_id))[record.partition_id] = new_partition(record)


def _put_partition(draft: _Draft, created: PartitionCreated) -> None:
    draft.partitions(created.topic_id)[created.partition_id] = created.registration


def _change_partition(draft: _Draft, record: m.PartitionChangeRecord) -> None:
    _merge_partition(draft, PartitionChanged(bytes(record.topic_id), record.partition_id, record, {}))


def _merge_partition(draft: _Draft, changed: PartitionChanged) -> None:
    topic_id, index, change, registrations = changed
    partitions = draft.partitions(topic_id)
    old = partitions.get(index)
    if old is None:
        raise ReplayError(f"partition {index} of topic id {topic_id.hex()} changes but is unknown")
    earlier = registrations.get(id(old))
    if earlier is None:
        # With the old one, which so keeps its identity.
        earlier = registrations[id(old)] = (old, merge_partition(old, change))
    partitions[index] = earlier[1]


def _clear_elr(draft: _Draft, record: m.ClearElrRecord) -> None:
    names = [record.topic_name] if record.topic_name else list(draft.topic_ids)
    for name in names:
        topic_id = draft.topic_ids.get(name)
        if topic_id is None:
            raise ReplayError(f"the ELR of topic {name} is cleared, but the image does not hold the topic")
        draft.freeze()
        partitions = draft.partitions(topic_id)
        for index, partition in draft.topics[topic_id].partitions.items():
            if partition.elr or partition.last_known_elr:
                partitions[index] = replace(partition, elr=(), last_known_elr=())


def _set_config(draft: _Draft, record: m.ConfigRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    settings = draft.configs.get(resource, Map())
    if record.value is not None:
        settings = settings.set(record.name, record.value)
    elif record.name in settings:
        settings = settings.delete(record.name)
    if settings:
        draft.configs = draft.configs.set(resource, settings)
    elif resource in draft.configs:
        draft.configs = draft.configs.delete(resource)


def _set_feature(draft: _Draft, record: m.FeatureLevelRecord) -> None:
    if record.feature_level:
        draft.features = draft.features.set(record.name, record.feature_level)
    elif record.name in draft.features:
        draft.features = draft.features.delete(record.name)


def _set_producer_ids(draft: _Draft, record: m.ProducerIdsRecord) -> None:
    draft.next_producer_id = record.next_producer_id


def _register_controller(draft: _Draft, record: m.RegisterControllerRecord) -> None:
    draft.controllers = draft.controllers.set(
        record.controller_id,
        ControllerRegistration(
            id=record.controller_id,
            incarnation_id=bytes(record.incarnation_id),
            endpoints=tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            features=tuple(
                SupportedFeature(f.name, f.min_supported_version, f.max_supported_version) for f in record.features
            ),
        ),
    )


def quota_entity(pairs: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """One form for one entity, whatever the order its parts were named in."""
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


def _set_client_quota(draft: _Draft, record: m.ClientQuotaRecord) -> None:
    entity = quota_entity((part.entity_type, part.entity_name) for part in record.entity)
    values = draft.client_quotas.get(entity, Map())
    if not record.remove:
        values = values.set(record.key, record.value)
    elif record.key in values:
        values = values.delete(record.key)
    if values:
        draft.client_quotas = draft.client_quotas.set(entity, values)
    elif entity in draft.client_quotas:
        draft.client_quotas = draft.client_quotas.delete(entity)


def _set_scram_credential(draft: _Draft, record: m.UserScramCredentialRecord) -> None:
    draft.scram = draft.scram.set(
        (record.mechanism, record.name),
        ScramCredential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations),
    )


def _remove_scram_credential(draft: _Draft, record: m.RemoveUserScramCredentialRecord) -> None:
    key = (record.mechanism, record.name)
    if key not in draft.scram:
        raise ReplayError(f"a record removes a SCRAM credential of {record.name}, which the image does not hold")
    draft.scram = draft.scram.delete(key)


def _nothing(draft: _Draft, record: object) -> None:
    """Records that change no image by themselves."""


_REPLAY: Final[dict[type, Callable[[_Draft, Any], None]]] = {
    m.RegisterBrokerRecord: _register_broker,
    m.UnregisterBrokerRecord: _unregister_broker,
    m.FenceBrokerRecord: _fence_broker,
    m.UnfenceBrokerRecord: _unfence_broker,
    m.BrokerRegistrationChangeRecord: _change_broker,
    m.TopicRecord: _create_topic,
    m.RemoveTopicRecord: _remove_topic,
    m.PartitionRecord: _create_partition,
    PartitionCreated: _put_partition,
    m.PartitionChangeRecord: _change_partition,
    PartitionChanged: _merge_partition,
    m.ClearElrRecord: _clear_elr,
    m.ConfigRecord: _set_config,
    m.FeatureLevelRecord: _set_feature,
    m.ProducerIdsRecord: _set_producer_ids,
    m.RegisterControllerRecord: _register_controller,
    m.ClientQuotaRecord: _set_client_quota,
    m.UserScramCredentialRecord: _set_scram_credential,
    m.RemoveUserScramCredentialRecord: _remove_scram_credential,
    m.NoOpRecord: _nothing,
}


class ImageBuilder:
    """An image in the making: groups of records are applied in place, and `finish` freezes what they have made.

    The image that it began with stays as it is. Once finished, a builder is of no use any more.
    """

    def __init__(self, image: MetadataImage, report_unknown: Callable[[object], None] = lambda record: None) -> None:
        """A record kind that images do not model is passed to `report_unknown` and skipped."""
        self._image = image
        self._report_unknown = report_unknown
        self._topics_touched = False
        self._draft = _Draft(
            brokers=image.brokers,
            topics=image.topics.mutate(),
            topic_ids=image.topic_ids.mutate(),
            open_topics={},
            configs=image.configs,
            features=image.features,
            next_producer_id=image.next_producer_id,
            controllers=image.controllers,
            client_quotas=image.client_quotas,
            scram=image.scram,
        )

    def apply(self, records: Iterable[object]) -> None:
        """`ReplayError` when a record cannot belong to the image; the builder is of no use after that."""
        draft = self._draft
        for record in records:
            replay = _REPLAY.get(type(record))
            if replay is None:
                self._report_unknown(record)
            else:
                replay(draft, record)
                self._topics_touched = self._topics_touched or replay in _TOPIC_REPLAYS

    def finish(self, offset: int, epoch: int) -> MetadataImage:
        """The image, the last record of which stands at `offset` and was written in raft `epoch`."""
        image, draft, touched = self._image, self._draft, self._topics_touched
        draft.freeze()
        return replace(
            image,
            offset=offset,
            epoch=epoch,
            brokers=draft.brokers,
            topics=draft.topics.finish() if touched else image.topics,
            topic_ids=draft.topic_ids.finish() if touched else image.topic_ids,
            configs=draft.configs,
            features=draft.features,
            next_producer_id=draft.next_producer_id,
            controllers=draft.controllers,
            client_quotas=draft.client_quotas,
            scram=draft.scram,
        )


def apply_records(
    image: MetadataImage,
    records: Iterable[object],
    offset: int,
    epoch: int,
    *,
    report_unknown: Callable[[object], None] = lambda record: None,
) -> MetadataImage:
    """The image after one group of records. As `ImageBuilder`."""
    builder = ImageBuilder(image, report_unknown)
    builder.apply(records)
    return builder.finish(offset, epoch)


# Replays that may change the topics; without one the maps keep their identity, which is how readers see "no change".
_TOPIC_REPLAYS: Final = frozenset(
    {_create_topic, _remove_topic, _create_partition, _put_partition, _change_partition, _merge_partition, _clear_elr}
)
