"""DescribeTopicPartitions (75), version 0: topics page by page (KIP-966).

Kafka: `DescribeTopicPartitionsRequestHandler`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.apis.metadata import has_listener, offline_replicas
from backend.engine.apis.support import authorized_operations
from backend.engine.common.topic_names import is_internal, name_problem
from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import MetadataImage, PartitionRegistration
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.ports.time_slices import Steps
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 75

_Topic = m.DescribeTopicPartitionsResponse.Topics


class DescribeTopicPartitionsServices(Protocol):
    """The parts of the node that these functions use."""

    config: BrokerConfig
    metadata: MetadataCache


def describe_topic_partitions(
    services: DescribeTopicPartitionsServices, context: RequestContext, request: m.DescribeTopicPartitionsRequest
) -> Steps[m.DescribeTopicPartitionsResponse]:
    """Topics by name from the cursor on, with at most as many partitions as the client and the broker allow."""
    image = services.metadata.image
    room = min(request.response_partition_limit, services.config.max_request_partition_size_limit)
    first_topic, first_partition = "", 0
    if request.cursor is not None:
        first_topic, first_partition = request.cursor.topic_name, request.cursor.partition_index
        if first_partition < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "DescribeTopicPartitionsRequest cursor partition must be valid")
    if room <= 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The limit of partitions in the answer must be positive")
    asked_by_name = bool(request.topics)
    names = sorted({topic.name for topic in request.topics} if asked_by_name else image.topic_ids)
    response = m.DescribeTopicPartitionsResponse(next_cursor=None)
    for name in names:
        if name < first_topic:
            continue
        yield
        if room == 0:
            response.next_cursor = _cursor(name, 0)
            break
        start = first_partition if name == first_topic else 0
        result = _describe(image, name, start, room, context.listener_name)
        room -= len(result.partitions)
        response.topics.append(result)
        topic = image.topic(name)
        following = start + len(result.partitions)
        if topic is not None and following < len(topic.partitions):
            response.next_cursor = _cursor(name, following)
            break
    return response


def _cursor(name: str, partition: int) -> m.DescribeTopicPartitionsResponse.NextCursor:
    return m.DescribeTopicPartitionsResponse.NextCursor(topic_name=name, partition_index=partition)


def _describe(image: MetadataImage, name: str, start: int, room: int, listener_name: str) -> _Topic:
    result = _Topic(name=name, is_internal=is_internal(name), topic_authorized_operations=authorized_operations.TOPIC)
    topic = image.topic(name)
    if topic is None:
        invalid = name_problem(name) is not None
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result
    result.topic_id = topic.id
    for index in range(start, min(start + room, len(topic.partitions))):
        result.partitions.append(_describe_partition(image, index, topic.partitions[index], listener_name))
    return result


def _describe_partition(
    image: MetadataImage, index: int, partition: PartitionRegistration, listener_name: str
) -> _Topic.Partitions:
    led = has_listener(image, partition.leader, listener_name)
    is_registered = partition.leader in image.brokers
    return _Topic.Partitions(
        error_code=(
            ErrorCode.NONE if led else ErrorCode.LISTENER_NOT_FOUND if is_registered else ErrorCode.LEADER_NOT_AVAILABLE
        ),
        partition_index=index,
        leader_id=partition.leader if led else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition, listener_name),
    )


def on_error(
    request: m.DescribeTopicPartitionsRequest, version: int, code: int, message: str
) -> m.DescribeTopicPartitionsResponse:
    """Every topic asked for with the error."""
    return m.DescribeTopicPartitionsResponse(
        topics=[_Topic(name=topic.name, error_code=code) for topic in request.topics], next_cursor=None
    )


APIS: Final = (Api(API_KEY, 0, 0, describe_topic_partitions, on_error=on_error),)
