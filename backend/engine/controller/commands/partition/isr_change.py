"""AlterPartition: a leader asks for a new ISR (KIP-497, KIP-704, KIP-841) → PartitionChangeRecord."""

from __future__ import annotations

from dataclasses import replace

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.command import ControllerResult, check_broker_epoch, checked_result
from backend.engine.controller.commands.config.topic_settings import effective_min_isr, unclean_election_enabled
from backend.engine.controller.commands.partition.partition_change import Election, change_record, target_of
from backend.engine.controller.commands.partition.registered_directories import has_log
from backend.engine.controller.image.metadata_image import (
    RECOVERED,
    RECOVERING,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from backend.engine.controller.image.replay import NO_LEADER_CHANGE, merge_partition
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message

_PartitionRequest = m.AlterPartitionRequest.Topics.Partitions
_PartitionResult = m.AlterPartitionResponse.Topics.Partitions


def alter_partition(
    image: MetadataImage, request: m.AlterPartitionRequest, config: BrokerConfig, version: int
) -> ControllerResult[m.AlterPartitionResponse]:
    """Each partition on its own; STALE_BROKER_EPOCH for the whole request of an earlier life of the broker."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[Message] = []
    response = m.AlterPartitionResponse()
    for asked_topic in request.topics:
        topic_result = m.AlterPartitionResponse.Topics(topic_id=bytes(asked_topic.topic_id))
        response.topics.append(topic_result)
        topic = image.topics.get(bytes(asked_topic.topic_id))
        for request_partition in asked_topic.partitions:
            if topic is None:
                topic_result.partitions.append(_error(request_partition, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            record, result = _alter(image, topic, request_partition, request.broker_id, config, version)
            topic_result.partitions.append(result)
            if record is not None:
                records.append(record)
    return checked_result(records, response)


def _alter(
    image: MetadataImage,
    topic: TopicImage,
    request_partition: _PartitionRequest,
    leader: int,
    config: BrokerConfig,
    version: int,
) -> tuple[m.PartitionChangeRecord | None, _PartitionResult]:
    partition = topic.partitions.get(request_partition.partition_index)
    if partition is None:
        return None, _error(request_partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    isr = _wanted_isr(request_partition, version)
    problem = _problem(image, partition, request_partition, isr, leader)
    if problem is not ErrorCode.NONE:
        return None, _error(request_partition, problem)
    record = change_record(
        image,
        topic.id,
        request_partition.partition_index,
        partition,
        replace(target_of(partition), isr=tuple(isr), leader_recovery_state=request_partition.leader_recovery_state),
        min_isr=effective_min_isr(image, config, topic.name),
        acceptable=image.is_active,
        election=Election.UNCLEAN if unclean_election_enabled(image, config, topic.name) else Election.ONLINE,
    )
    after = partition
    if record is not None:
        after = merge_partition(partition, record)
        if record.leader not in (NO_LEADER_CHANGE, leader):
            # The change completed a reassignment that took leadership away from who asked.
            return record, _error(request_partition, ErrorCode.NEW_LEADER_ELECTED)
    return record, _PartitionResult(
        partition_index=request_partition.partition_index,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )


def _wanted_isr(request_partition: _PartitionRequest, version: int) -> dict[int, int]:
    """Broker id → epoch of that broker as the leader knows it (-1: not said)."""
    if version < 3:
        return dict.fromkeys(request_partition.new_isr, -1)
    return {member.broker_id: member.broker_epoch for member in request_partition.new_isr_with_epochs}


def _problem(
    image: MetadataImage,
    partition: PartitionRegistration,
    request_partition: _PartitionRequest,
    isr: dict[int, int],
    leader: int,
) -> ErrorCode:
    """Kafka's checks in Kafka's order (validateAlterPartitionData)."""
    if (
        request_partition.leader_epoch > partition.leader_epoch
        or request_partition.partition_epoch > partition.partition_epoch
    ):
        # The leader knows something newer: this controller must be an old one.
        return ErrorCode.NOT_CONTROLLER
    if request_partition.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if request_partition.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = len(request_partition.new_isr_with_epochs) or len(request_partition.new_isr)
    if members != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    recovery = request_partition.leader_recovery_state
    if recovery not in (RECOVERED, RECOVERING) or (recovery == RECOVERING and len(isr) > 1):
        return ErrorCode.INVALID_REQUEST
    if partition.leader_recovery_state == RECOVERED and recovery == RECOVERING:
        return ErrorCode.INVALID_REQUEST
    if not all(_eligible(image, partition, member, epoch) for member, epoch in isr.items()):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _eligible(image: MetadataImage, partition: PartitionRegistration, member: int, epoch: int) -> bool:
    """Kafka does not look at the directory here: there a follower with a new disk is in sync before it has said so."""
    broker = image.brokers.get(member)
    alive = broker is not None and broker.active and epoch in (-1, broker.epoch)
    return alive and has_log(image, partition, member)


def _error(request_partition: _PartitionRequest, code: ErrorCode) -> _PartitionResult:
    return _PartitionResult(partition_index=request_partition.partition_index, error_code=code)
