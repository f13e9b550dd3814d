"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455, KIP-860).

A reassignment keeps its state in the partition: `adding`, `removing`, and the replica list with the target first. It is
finished by whatever ISR change makes it complete (`partition_change.complete_reassignment`).

A request replaces what a running one wanted (KIP-455): asking for the old replicas takes the new ones away again. Kafka
4.3's controller keeps the list of replicas to be added where a request adds none, and then adds and removes the same
replica for ever; `follower.fetch.tiered.compat=kafka` shows that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.command import ControllerResult, checked_result
from backend.engine.controller.commands.config.topic_settings import effective_min_isr, unclean_election_enabled
from backend.engine.controller.commands.partition.partition_change import Election, change_record, target_of
from backend.engine.controller.commands.partition.replica_lists import check_assignment
from backend.engine.controller.image.metadata_image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message

COMPAT: Final = "follower.fetch.tiered.compat"

_Responses = m.AlterPartitionReassignmentsResponse.Responses
_Ongoing = m.ListPartitionReassignmentsResponse.Topics


def alter_partition_reassignments(
    image: MetadataImage, request: m.AlterPartitionReassignmentsRequest, config: BrokerConfig
) -> ControllerResult[m.AlterPartitionReassignmentsResponse]:
    """Each partition on its own; replicas null cancels."""
    if not request.topics:
        # Kafka answers without having looked at anything else of the request.
        return ControllerResult((), m.AlterPartitionReassignmentsResponse())
    records: list[Message] = []
    response = m.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for topic in request.topics:
        topic_result = _Responses(name=topic.name)
        response.responses.append(topic_result)
        for request_partition in topic.partitions:
            result = _Responses.Partitions(partition_index=request_partition.partition_index, error_message=None)
            topic_result.partitions.append(result)
            try:
                record = _alter(
                    image,
                    topic.name,
                    request_partition.partition_index,
                    request_partition.replicas,
                    request.allow_replication_factor_change,
                    config,
                )
            except KafkaError as error:
                result.error_code = error.code
                # Kafka sends no text for code 85.
                nothing_to_cancel = error.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
                result.error_message = None if nothing_to_cancel else error.message
                continue
            if record is not None:
                records.append(record)
    return checked_result(records, response)


def _alter(
    image: MetadataImage,
    topic_name: str,
    index: int,
    replicas: list[int] | None,
    allow_factor_change: bool,
    config: BrokerConfig,
) -> m.PartitionChangeRecord | None:
    topic = image.topic(topic_name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic_name}.")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic_name}:{index}.")
    if replicas is None:
        return _cancel(image, topic, index, partition, config)
    return _start(image, topic, index, partition, replicas, allow_factor_change, config)


def _by_kafkas_rule(image: MetadataImage, config: BrokerConfig) -> bool:
    """Whether the running controller is set to do as Kafka 4.3 does."""
    own, common = (image.config(BROKER_RESOURCE, name).get(COMPAT) for name in (str(config.id), CLUSTER_DEFAULT))
    return (own or common or config.follower_fetch_tiered_compat) == "kafka"


def _start(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    replicas: list[int],
    allow_factor_change: bool,
    config: BrokerConfig,
) -> m.PartitionChangeRecord | None:
    check_assignment(image, replicas)
    if not allow_factor_change:
        now = len((set(partition.replicas) | set(partition.adding_replicas)) - set(partition.removing_replicas))
        if now != len(replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {now} to {len(replicas)}",
            )
    adding = tuple(sorted(set(replicas) - set(partition.replicas)))
    removing = leaving = tuple(sorted(set(partition.replicas) - set(replicas)))
    if _by_kafkas_rule(image, config):
        adding, removing = adding or partition.adding_replicas, removing or partition.removing_replicas
    else:
        still = set(partition.adding_replicas) & set(replicas)
        adding = tuple(sorted(still | set(adding)))
    target = replace(target_of(partition), replicas=(*replicas, *leaving), adding=adding, removing=removing)
    min_isr = effective_min_isr(image, config, topic.name)
    return change_record(image, topic.id, index, partition, target, min_isr=min_isr, acceptable=image.is_active)


def _cancel(
    image: MetadataImage, topic: TopicImage, index: int, partition: PartitionRegistration, config: BrokerConfig
) -> m.PartitionChangeRecord | None:
    if not partition.reassigning:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    isr = tuple(member for member in partition.isr if member not in partition.adding_replicas)
    if not replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid replica assignment: addingReplicas contains all replicas."
        )
    unclean = not isr
    if unclean:
        if not unclean_election_enabled(image, config, topic.name):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean"
                " leader election.",
            )
        isr = replicas[:1]
    target = replace(target_of(partition), isr=isr, replicas=replicas, adding=(), removing=())
    return change_record(
        image,
        topic.id,
        index,
        partition,
        target,
        min_isr=effective_min_isr(image, config, topic.name),
        acceptable=image.is_active,
        election=Election.UNCLEAN if unclean else Election.ONLINE,
    )


def list_partition_reassignments(
    image: MetadataImage, request: m.ListPartitionReassignmentsRequest
) -> m.ListPartitionReassignmentsResponse:
    """Reassignments that run now, of the partitions named or of all."""
    response = m.ListPartitionReassignmentsResponse(error_message=None)
    if request.topics is None:
        named = [(topic.name, sorted(topic.partitions)) for topic in image.topics.values()]
    else:
        named = [(topic.name, list(topic.partition_indexes)) for topic in request.topics]
    for name, indexes in sorted(named):
        ongoing = [
            _Ongoing.Partitions(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for index in indexes
            if (partition := image.partition(name, index)) is not None and partition.reassigning
        ]
        if ongoing:
            response.topics.append(_Ongoing(name=name, partitions=ongoing))
    return response
