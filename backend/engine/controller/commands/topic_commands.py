"""CreateTopics and DeleteTopics → TopicRecord, ConfigRecord, PartitionRecord, RemoveTopicRecord (KIP-4, KIP-516)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC, collision_key, name_problem
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.command import ControllerResult, check_record_count, checked_result, same_names
from backend.engine.controller.commands.config.configuration_control import SET, alter_resource
from backend.engine.controller.commands.config.topic_settings import resolved_topic_settings
from backend.engine.controller.commands.partition.replica_lists import check_assignment, new_partition_record
from backend.engine.controller.commands.partition.replica_placer import Choose, ReplicaPlacer
from backend.engine.controller.image.metadata_image import TOPIC_RESOURCE, MetadataImage
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message
from backend.tiering.ids import ZERO_UUID

USE_DEFAULT: Final = -1
# ReplicationControlManager.MAX_PARTITIONS_PER_BATCH. With RECORDS_PER_COMMAND_MAX it bounds what a request of a few
# bytes can ask for: 10,000 partition records of about 400 bytes are 4 MB.
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
_Topics = m.CreateTopicsRequest.Topics
_Created = m.CreateTopicsResponse.Topics
# Resolved settings by overrides: they take 0.4 ms to work out, and are the same for most of 5,000 topics.
_Shown = dict[frozenset[tuple[str, str]], list[_Created.Configs]]


def create_topics(
    image: MetadataImage,
    request: m.CreateTopicsRequest,
    config: BrokerConfig,
    *,
    new_topic_id: Callable[[], bytes],
    choose: Choose,
) -> ControllerResult[m.CreateTopicsResponse]:
    """Topics that are legal and new are created, the others answered with their error.

    `config` is the controller's own: it gives default partition count, replication factor and topic settings. A request
    for too much is refused as a whole, also one that only asks (KafkaError POLICY_VIOLATION).
    """
    twice = same_names(request.topics)
    candidates = [topic for topic in request.topics if topic.name not in twice]
    _check_partition_count(candidates, config.num_partitions)
    collisions = _collisions(image)
    shown: _Shown = {}
    records: list[Message] = []
    response = m.CreateTopicsResponse()
    for topic in candidates:
        try:
            _check_name(image, collisions, topic.name)
            new, result = _create(image, topic, config, new_topic_id, choose, shown)
        except KafkaError as error:
            response.topics.append(_refused(topic.name, error.code, error.message))
            continue
        records += new
        check_record_count(len(records))
        response.topics.append(result)
    for name in sorted(twice):
        response.topics.append(_refused(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
    return checked_result([] if request.validate_only else records, response)


def _check_partition_count(topics: Sequence[_Topics], default_partitions: int) -> None:
    """The number that Kafka checks before anything else (`ReplicationControlManager.validateTotalNumberOfPartitions`);
    it leaves out the one topic that is never made.
    """
    count = 0
    for topic in topics:
        if topic.name == CLUSTER_METADATA_TOPIC:
            continue
        if topic.assignments:
            count += len(topic.assignments)
        else:
            count += default_partitions if topic.num_partitions == USE_DEFAULT else max(0, topic.num_partitions)
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _refused(name: str, code: ErrorCode, message: str) -> _Created:
    return _Created(name=name, error_code=code, error_message=message, configs=[])


def _collisions(image: MetadataImage) -> dict[str, str]:
    return {key: name for name in image.topic_ids if (key := collision_key(name)) is not None}


def _check_name(image: MetadataImage, collisions: dict[str, str], name: str) -> None:
    if name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topic_ids:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if (problem := name_problem(name)) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    if (other := collisions.get(collision_key(name) or "")) is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def _create(
    image: MetadataImage,
    topic: _Topics,
    config: BrokerConfig,
    new_topic_id: Callable[[], bytes],
    choose: Choose,
    shown: _Shown,
) -> tuple[list[Message], _Created]:
    settings = {setting.name: setting.value for setting in topic.configs}
    if empty := [name for name, value in settings.items() if value is None]:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(sorted(empty))}"
        )
    config_records = alter_resource(
        image, config, TOPIC_RESOURCE, topic.name, {name: (SET, value) for name, value in settings.items()}
    )
    topic_id = new_topic_id()
    if topic.assignments:
        partitions = _assigned_partitions(image, topic, topic_id)
    else:
        partitions = _placed_partitions(image, topic, topic_id, config, choose)
    records: list[Message] = [m.TopicRecord(name=topic.name, topic_id=topic_id), *config_records, *partitions]
    return records, _created(image, topic, topic_id, partitions, config, shown)


def _assigned_partitions(image: MetadataImage, topic: _Topics, topic_id: bytes) -> list[m.PartitionRecord]:
    if topic.replication_factor != USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    partitions: dict[int, m.PartitionRecord] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in partitions:
            raise _bad_assignment(f"Found multiple manual partition assignments for partition {index}")
        check_assignment(image, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        record = new_partition_record(image, topic_id, index, assignment.broker_ids)
        if record is None:
            raise _bad_assignment(
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in"
                " controlled shutdown."
            )
        partitions[index] = record
    if set(partitions) != set(range(len(partitions))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return [partitions[index] for index in range(len(partitions))]


def _placed_partitions(
    image: MetadataImage, topic: _Topics, topic_id: bytes, config: BrokerConfig, choose: Choose
) -> list[m.PartitionRecord]:
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    count = config.num_partitions if topic.num_partitions == USE_DEFAULT else topic.num_partitions
    factor = config.default_replication_factor if topic.replication_factor == USE_DEFAULT else topic.replication_factor
    try:
        return place_partitions(image, topic_id, 0, count, factor, choose)
    except KafkaError as error:
        raise KafkaError(error.code, f"Unable to replicate the partition {factor} time(s): {error.message}") from None


def place_partitions(
    image: MetadataImage, topic_id: bytes, first: int, count: int, replication_factor: int, choose: Choose
) -> list[m.PartitionRecord]:
    """Records of `count` new partitions from index `first` on; KafkaError INVALID_REPLICATION_FACTOR."""
    placer = ReplicaPlacer(image.brokers.values(), choose)
    records = []
    for index, replicas in enumerate(placer.place(count, replication_factor), first):
        record = new_partition_record(image, topic_id, index, replicas)
        if record is None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced or in controlled shutdown."
            )
        records.append(record)
    return records


def _created(
    image: MetadataImage,
    topic: _Topics,
    topic_id: bytes,
    partitions: Sequence[m.PartitionRecord],
    config: BrokerConfig,
    shown: _Shown,
) -> _Created:
    overrides = {setting.name: setting.value for setting in topic.configs if setting.value is not None}
    key = frozenset(overrides.items())
    if key not in shown:
        shown[key] = _shown(image, config, overrides)
    return _Created(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=shown[key],
    )


def _shown(image: MetadataImage, config: BrokerConfig, overrides: dict[str, str]) -> list[_Created.Configs]:
    """All settings of a topic that has these overrides."""
    return [
        _Created.Configs(
            name=name,
            value=None if resolved.setting.sensitive else resolved.value,
            read_only=False,
            config_source=resolved.source,
            is_sensitive=resolved.setting.sensitive,
        )
        for name, resolved in sorted(resolved_topic_settings(image, config, overrides).items())
    ]


def delete_topics(
    image: MetadataImage, request: m.DeleteTopicsRequest, config: BrokerConfig, version: int
) -> ControllerResult[m.DeleteTopicsResponse]:
    """Deletes topics by name, or from version 6 on by id."""
    if not config.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        raise KafkaError(code, "Topics cannot be deleted here: delete.topic.enable is false")
    named = [(topic.name, bytes(topic.topic_id)) for topic in request.topics]
    if version < 6:
        named = [(name, ZERO_UUID) for name in request.topic_names]
    records: list[Message] = []
    response = m.DeleteTopicsResponse()
    counts = Counter(named)
    for name, topic_id in counts:
        result = m.DeleteTopicsResponse.Responses(name=name, topic_id=topic_id, error_message=None)
        response.responses.append(result)
        try:
            if counts[name, topic_id] > 1:
                what = "topic name" if topic_id == ZERO_UUID else "topic id"
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate {what}.")
            result.name, result.topic_id = _existing(image, name, topic_id)
            records.append(m.RemoveTopicRecord(topic_id=result.topic_id))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
    # The same topic by name and by id is one deletion.
    unique = {bytes(record.topic_id): record for record in records if isinstance(record, m.RemoveTopicRecord)}
    return checked_result(list(unique.values()), response)


def _existing(image: MetadataImage, name: str | None, topic_id: bytes) -> tuple[str, bytes]:
    if topic_id != ZERO_UUID:
        if name is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        topic = image.topics.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        return topic.name, topic_id
    if name is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    named = image.topic_ids.get(name)
    if named is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return name, named


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
