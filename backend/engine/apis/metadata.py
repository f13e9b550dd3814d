"""Metadata (3), versions 0-13: brokers, topics, leaders, as this broker knows them (KIP-4, KIP-516, KIP-1102).

Unknown topics are created in the background when client and broker allow it; the client learns of them when it asks
again, as from Kafka. Versions 10 and 11 carry topic ids in answers but cannot ask by id.
Kafka: `KafkaApis.handleTopicMetadataRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.apis.support import authorized_operations
from backend.engine.apis.support.auto_topic_creation import create_in_background
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.common.topic_names import is_internal, name_problem
from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import MetadataImage, PartitionRegistration, TopicImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.ports import Ports
from backend.engine.ports.time_slices import Steps
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import ZERO_UUID

API_KEY: Final = 3
FIRST_BY_ID: Final = 12
# From this version on a leader without the listener that was asked is its own error (KIP-302).
FIRST_LISTENER_NOT_FOUND: Final = 6

_Topic = m.MetadataResponse.Topics
_Partition = _Topic.Partitions


class MetadataServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    cluster_id: str
    config: BrokerConfig
    ports: Ports
    metadata: MetadataCache
    controller_channel: ControllerChannel


def metadata(
    services: MetadataServices, context: RequestContext, request: m.MetadataRequest
) -> Steps[m.MetadataResponse]:
    """The brokers, topics and leaders that a client needs."""
    version = context.api_version
    image = services.metadata.image
    alive = [broker for broker in image.alive_brokers() if broker.endpoint(context.listener_name) is not None]
    response = m.MetadataResponse(
        cluster_id=services.cluster_id,
        # Clients send controller requests to any broker: one at random spreads them (KIP-590).
        controller_id=alive[services.ports.random.randrange(len(alive))].id if alive else -1,
        cluster_authorized_operations=(
            authorized_operations.CLUSTER
            if request.include_cluster_authorized_operations
            else authorized_operations.NOT_ASKED
        ),
    )
    for broker in alive:
        endpoint = broker.endpoint(context.listener_name)
        assert endpoint is not None
        response.brokers.append(
            m.MetadataResponse.Brokers(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        )
    operations = (
        authorized_operations.TOPIC if request.include_topic_authorized_operations else authorized_operations.NOT_ASKED
    )
    wants_all = request.topics is None or (version == 0 and not request.topics)
    if wants_all:
        topics: Iterable[TopicImage] = sorted(image.topics.values(), key=lambda topic: topic.name)
        for topic in topics:
            response.topics.append(describe_topic(image, topic, context.listener_name, version))
            yield
    else:
        response.topics = yield from _requested_topics(services, context, request, image)
    for topic_row in response.topics:
        topic_row.topic_authorized_operations = operations
    return response


def _requested_topics(
    services: MetadataServices, context: RequestContext, request: m.MetadataRequest, image: MetadataImage
) -> Steps[list[_Topic]]:
    results: list[_Topic] = []
    missing: list[str] = []
    # Each once, as in Kafka: an id is asked for whatever name comes with it.
    named = ((bytes(topic.topic_id), topic.name) for topic in request.topics or ())
    topics = dict.fromkeys((topic_id, name if topic_id == ZERO_UUID else None) for topic_id, name in named)
    for topic_id, name in topics:
        yield
        if topic_id != ZERO_UUID or name is None:
            results.append(_by_id(image, topic_id, context))
            continue
        topic = image.topic(name)
        if topic is not None:
            results.append(describe_topic(image, topic, context.listener_name, context.api_version))
        elif name_problem(name) is not None:
            results.append(_error(name, ErrorCode.INVALID_TOPIC_EXCEPTION))
        else:
            missing.append(name)
            results.append(_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    # Before version 4 every client allowed it.
    allowed = request.allow_auto_topic_creation or context.api_version < 4
    if missing and allowed and services.config.auto_create_topics_enable:
        create_in_background(services, missing)
    return results


def _by_id(image: MetadataImage, topic_id: bytes, context: RequestContext) -> _Topic:
    if context.api_version < FIRST_BY_ID:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in requests of version {context.api_version}"
        )
    if topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic was asked for by neither name nor id")
    topic = image.topics.get(topic_id)
    if topic is None:
        return _Topic(name=None, topic_id=topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    return describe_topic(image, topic, context.listener_name, context.api_version)


def _error(name: str, code: ErrorCode) -> _Topic:
    return _Topic(name=name, error_code=code, is_internal=is_internal(name))


def describe_topic(image: MetadataImage, topic: TopicImage, listener_name: str, version: int) -> _Topic:
    """A topic with all its partitions."""
    return _Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[
            _describe_partition(image, index, partition, listener_name, version)
            for index, partition in sorted(topic.partitions.items())
        ],
    )


def _describe_partition(
    image: MetadataImage, index: int, partition: PartitionRegistration, listener_name: str, version: int
) -> _Partition:
    replicas, isr = list(partition.replicas), list(partition.isr)
    error = ErrorCode.NONE
    if version == 0:
        # The oldest clients fail on brokers that the answer does not list.
        replicas = [replica for replica in replicas if reachable(image, replica, listener_name)]
        isr = [replica for replica in isr if reachable(image, replica, listener_name)]
        if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    leader = partition.leader
    if not has_listener(image, leader, listener_name):
        leader_registered = leader in image.brokers and version >= FIRST_LISTENER_NOT_FOUND
        error = ErrorCode.LISTENER_NOT_FOUND if leader_registered else ErrorCode.LEADER_NOT_AVAILABLE
        leader = -1
    return _Partition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline_replicas(image, partition, listener_name),
    )


def has_listener(image: MetadataImage, broker_id: int, listener_name: str) -> bool:
    """Whether a registered broker listens under the name."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.endpoint(listener_name) is not None


def reachable(image: MetadataImage, broker_id: int, listener_name: str) -> bool:
    """The same of a broker that is not fenced."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced and broker.endpoint(listener_name) is not None


def offline_replicas(image: MetadataImage, partition: PartitionRegistration, listener_name: str) -> list[int]:
    """Replicas that clients cannot reach under this listener, and those whose broker cannot use their log."""
    return [
        replica
        for replica in partition.replicas
        if partition.is_lost(replica) or not reachable(image, replica, listener_name)
    ]


def on_error(request: m.MetadataRequest, version: int, code: int, message: str) -> m.MetadataResponse:
    """Every topic asked for with the error; version 13 and later also as a whole."""
    return m.MetadataResponse(
        error_code=code,
        topics=[
            _Topic(name=topic.name or ("" if version < FIRST_BY_ID else None), topic_id=topic.topic_id, error_code=code)
            for topic in request.topics or ()
        ],
    )


APIS: Final = (Api(API_KEY, 0, 13, metadata, on_error=on_error),)
