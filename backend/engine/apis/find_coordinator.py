"""FindCoordinator (10), versions 0-6: which broker coordinates a group or a transactional id (KIP-699: many at once
from version 4).

The first question creates `__consumer_offsets` or `__transaction_state` in the background; the client asks again. Share
groups have no coordinator here: who asks well (group:topic id:partition, version 6) gets COORDINATOR_NOT_AVAILABLE, as
from Apache Kafka while `__share_group_state` is not there, anybody else INVALID_REQUEST.
Kafka: `KafkaApis.handleFindCoordinatorRequest`.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.apis.support.auto_topic_creation import create_in_background
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.coordinator.group.group_records import OFFSETS_TOPIC, coordinator_partition
from backend.engine.coordinator.transaction.transaction_records import TRANSACTIONS_TOPIC
from backend.engine.ports.time_slices import Steps
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.ids import uuid_bytes

API_KEY: Final = 10
MIN_VERSION: Final = 0
MAX_VERSION: Final = 6
FIRST_BATCHED: Final = 4
NO_NODE: Final = -1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
FIRST_FOR_SHARES: Final = 6
# Kafka's texts of the codes, where the answer has one code for the whole.
TEXTS: Final = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: "This most likely occurs because of a request being malformed by the client library or"
    " the message was sent to an incompatible broker. See the broker logs for more details.",
}

_Coordinator = m.FindCoordinatorResponse.Coordinators


class KeyType(IntEnum):
    """The kinds of coordinator that a key may name."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS: Final = {KeyType.GROUP: OFFSETS_TOPIC, KeyType.TRANSACTION: TRANSACTIONS_TOPIC}


class FindCoordinatorServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    metadata: MetadataCache
    controller_channel: ControllerChannel


def find_coordinator(
    services: FindCoordinatorServices, context: RequestContext, request: m.FindCoordinatorRequest
) -> Steps[m.FindCoordinatorResponse]:
    """The coordinator of each key, with its address on the listener that was asked."""
    keys = request.coordinator_keys if context.api_version >= FIRST_BATCHED else [request.key]
    coordinators = []
    for key in keys:
        coordinators.append(_find(services, context, key, request.key_type))
        yield
    if context.api_version >= FIRST_BATCHED:
        return m.FindCoordinatorResponse(coordinators=coordinators)
    coordinator = coordinators[0]
    return m.FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=TEXTS[ErrorCode(coordinator.error_code)],
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _find(services: FindCoordinatorServices, context: RequestContext, key: str, key_type: int) -> _Coordinator:
    if key_type not in tuple(KeyType):
        return _unknown(key, ErrorCode.INVALID_REQUEST, TEXTS[ErrorCode.INVALID_REQUEST])
    topic_name = _TOPICS.get(KeyType(key_type))
    if topic_name is None:
        well_formed = context.api_version >= FIRST_FOR_SHARES and is_share_key(key)
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE if well_formed else ErrorCode.INVALID_REQUEST)
    image = services.metadata.image
    topic = image.topic(topic_name)
    if topic is None:
        create_in_background(services, [topic_name])
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions.get(coordinator_partition(key, len(topic.partitions)))
    broker = None if partition is None else image.broker(partition.leader)
    endpoint = None if broker is None or broker.fenced else broker.endpoint(context.listener_name)
    if broker is None or endpoint is None:
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _Coordinator(key=key, node_id=broker.id, host=endpoint.host, port=endpoint.port, error_message="")


def is_share_key(key: str) -> bool:
    """Whether a key has the form of Kafka's SharePartitionKey: group:topic id:partition."""
    group, _, rest = key.rpartition(":")[0].rpartition(":")
    try:
        uuid_bytes(rest)
    except ValueError:
        return False
    return bool(group.strip()) and _is_int32(key.rpartition(":")[2])


def _is_int32(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(1 << 31) <= int(text) < 1 << 31


def _unknown(key: str, error: ErrorCode, message: str = "") -> _Coordinator:
    return _Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=error, error_message=message)


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, find_coordinator),)
