"""An image as records: what a snapshot holds (KIP-630), in the order of Kafka's `MetadataImage.write`.

Replaying them over an empty image gives the image again. The order is fixed, so equal images give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from backend.engine.controller.commands.cluster_bootstrap import METADATA_VERSION
from backend.engine.controller.image.metadata_image import (
    BrokerRegistration,
    ControllerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from backend.protocol import messages as m
from backend.protocol.messages import Message

_NOBODY = -1


def image_records(image: MetadataImage) -> Iterator[Message]:
    """Every record, one after another; the metadata version comes first, as readers need it for the rest."""
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield m.FeatureLevelRecord(name=name, feature_level=image.features[name])
    for _, broker in sorted(image.brokers.items()):
        yield broker_record(broker)
    for _, controller in sorted(image.controllers.items()):
        yield _controller(controller)
    for _, topic in sorted(image.topics.items()):
        yield from _topic(topic)
    for (resource_type, resource), values in sorted(image.configs.items()):
        for name, value in sorted(values.items()):
            yield m.ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value)
    for entity, quotas in sorted(image.client_quotas.items(), key=lambda item: _none_first(item[0])):
        for key, rate in sorted(quotas.items()):
            parts = [m.ClientQuotaRecord.Entity(entity_type=kind, entity_name=name) for kind, name in entity]
            yield m.ClientQuotaRecord(entity=parts, key=key, value=rate, remove=False)
    if image.next_producer_id:
        yield m.ProducerIdsRecord(broker_id=_NOBODY, broker_epoch=_NOBODY, next_producer_id=image.next_producer_id)
    for (mechanism, user), credential in sorted(image.scram.items()):
        yield m.UserScramCredentialRecord(
            name=user,
            mechanism=mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )


def _none_first(entity: tuple[tuple[str, str | None], ...]) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in entity]


def broker_record(broker: BrokerRegistration) -> Message:
    """A broker as it is registered; replayed, it takes the place of what was known of it."""
    record = m.RegisterBrokerRecord
    return record(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        incarnation_id=broker.incarnation_id,
        end_points=[
            record.EndPoints(
                name=endpoint.name, host=endpoint.host, port=endpoint.port, security_protocol=endpoint.security_protocol
            )
            for endpoint in broker.endpoints
        ],
        features=[
            record.Features(
                name=feature.name, min_supported_version=feature.min_level, max_supported_version=feature.max_level
            )
            for feature in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=list(broker.cordoned_log_dirs),
    )


def _controller(controller: ControllerRegistration) -> Message:
    record = m.RegisterControllerRecord
    return record(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        end_points=[
            record.EndPoints(
                name=endpoint.name, host=endpoint.host, port=endpoint.port, security_protocol=endpoint.security_protocol
            )
            for endpoint in controller.endpoints
        ],
        features=[
            record.Features(
                name=feature.name, min_supported_version=feature.min_level, max_supported_version=feature.max_level
            )
            for feature in controller.features
        ],
    )


def _topic(topic: TopicImage) -> Iterator[Message]:
    yield m.TopicRecord(name=topic.name, topic_id=topic.id)
    for index, partition in sorted(topic.partitions.items()):
        yield partition_record(topic.id, index, partition)


def partition_record(topic_id: bytes, index: int, partition: PartitionRegistration) -> Message:
    """A partition as it is registered; replayed, it takes the place of what was known of it."""
    return m.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
        unclean_leader_epoch=partition.unclean_leader_epoch,
    )
