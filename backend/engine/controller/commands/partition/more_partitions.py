"""CreatePartitions → PartitionRecord (KIP-195)."""

from __future__ import annotations

from backend.engine.controller.commands.command import ControllerResult, check_record_count, checked_result, same_names
from backend.engine.controller.commands.partition.replica_lists import check_assignment, new_partition_record
from backend.engine.controller.commands.partition.replica_placer import Choose
from backend.engine.controller.commands.topic_commands import place_partitions
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message

_Topics = m.CreatePartitionsRequest.Topics


def create_partitions(
    image: MetadataImage, request: m.CreatePartitionsRequest, *, choose: Choose
) -> ControllerResult[m.CreatePartitionsResponse]:
    """Topics grow to the counts asked for; each topic on its own.

    The topic that would make the request too large is refused with POLICY_VIOLATION. Kafka refuses it too, but with
    UNKNOWN_SERVER_ERROR, since it takes its own limit for an accident here.
    """
    twice = same_names(request.topics)
    records: list[Message] = []
    response = m.CreatePartitionsResponse()
    for topic in request.topics:
        if topic.name in twice:
            continue
        result = m.CreatePartitionsResponse.Results(name=topic.name, error_message=None)
        response.results.append(result)
        try:
            records += _grow(image, topic, choose, len(records))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    for name in sorted(twice):
        response.results.append(
            m.CreatePartitionsResponse.Results(
                name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
            )
        )
    return checked_result([] if request.validate_only else records, response)


def _grow(image: MetadataImage, request: _Topics, choose: Choose, records_before: int) -> list[m.PartitionRecord]:
    topic = image.topic(request.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    now = len(topic.partitions)
    if request.count == now:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
    if request.count < now:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {now} partition(s); {request.count} would not be an increase.",
        )
    additional = request.count - now
    replication_factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        check_record_count(records_before + additional)
        try:
            return place_partitions(image, topic.id, now, additional, replication_factor, choose)
        except KafkaError as error:
            raise KafkaError(
                error.code, f"Unable to replicate the partition {replication_factor} time(s): {error.message}"
            ) from None
    if len(request.assignments) != additional:
        raise _bad_assignment(
            f"Attempted to add {additional} additional partition(s), but only {len(request.assignments)}"
            " assignment(s) were specified."
        )
    check_record_count(records_before + additional)
    records = []
    for index, assignment in enumerate(request.assignments, now):
        check_assignment(image, assignment.broker_ids, replication_factor)
        record = new_partition_record(image, topic.id, index, assignment.broker_ids)
        if record is None:
            raise _bad_assignment(
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in"
                " controlled shutdown."
            )
        records.append(record)
    return records


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
