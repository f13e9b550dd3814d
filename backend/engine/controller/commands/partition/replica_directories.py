"""AssignReplicasToDirs: a broker says in which directory a replica lies, or that it cannot use its log (KIP-858)."""

from __future__ import annotations

from dataclasses import replace

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.command import ControllerResult, check_broker_epoch
from backend.engine.controller.commands.partition.elections import leader_and_isr_changes
from backend.engine.controller.commands.partition.eligible_leader_replicas import elr_enabled
from backend.engine.controller.commands.partition.registered_directories import NO_DIRECTORIES, log_is_gone
from backend.engine.controller.image.metadata_image import BrokerRegistration, MetadataImage, TopicImage
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message

_DirectoryResult = m.AssignReplicasToDirsResponse.Directories


def assign_replicas_to_dirs(
    image: MetadataImage, request: m.AssignReplicasToDirsRequest, config: BrokerConfig
) -> ControllerResult[m.AssignReplicasToDirsResponse]:
    """Each replica on its own; STALE_BROKER_EPOCH for the whole request of an earlier life of the broker.

    A replica in a directory that the broker does not have, or in the lost one, leaves the ISR, and another leads. So
    does one whose former directory has not come back: what lies in the new one is another log.
    """
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[Message] = []
    response = m.AssignReplicasToDirsResponse()
    for request_directory in request.directories:
        directory = bytes(request_directory.id)
        result = _DirectoryResult(id=directory)
        response.directories.append(result)
        for asked_topic in request_directory.topics:
            topic = image.topics.get(bytes(asked_topic.topic_id))
            rows = _DirectoryResult.Topics(topic_id=bytes(asked_topic.topic_id))
            result.topics.append(rows)
            for partition in asked_topic.partitions:
                error, record = _assign(image, config, broker, topic, partition.partition_index, directory)
                rows.partitions.append(
                    _DirectoryResult.Topics.Partitions(partition_index=partition.partition_index, error_code=error)
                )
                if record is not None:
                    records.append(record)
    return ControllerResult(tuple(records), response)


def _assign(
    image: MetadataImage,
    config: BrokerConfig,
    broker: BrokerRegistration,
    topic: TopicImage | None,
    index: int,
    directory: bytes,
) -> tuple[ErrorCode, m.PartitionChangeRecord | None]:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, None
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if broker.id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
    former = dict(zip(partition.replicas, partition.directories, strict=False))
    if former.get(broker.id) == directory:
        return ErrorCode.NONE, None
    # The only replica's log is gone for good, so waiting for it saves nothing: as in Kafka the log starts empty.
    only_replica = partition.replicas == (broker.id,)
    is_gone = directory not in NO_DIRECTORIES and not only_replica and log_is_gone(image, partition, broker.id)
    if is_gone and partition.isr == (broker.id,) and not elr_enabled(image):
        # It would stay in the ISR, and lead with an empty log. The broker asks again once another leads.
        return ErrorCode.INELIGIBLE_REPLICA, None
    former[broker.id] = directory
    directories = tuple(former.get(replica, bytes(16)) for replica in partition.replicas)
    moved = replace(partition, directories=directories)
    lost = broker.id if directory not in broker.log_dirs else None
    forget = broker.id if is_gone else None
    changes = leader_and_isr_changes(image, config, [(topic, index, moved)], remove=lost, forget=forget)
    record = changes[0] if changes else m.PartitionChangeRecord(partition_id=index, topic_id=topic.id)
    record.directories = list(directories)
    return ErrorCode.NONE, record
