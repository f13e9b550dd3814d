"""FindCoordinator (10), versions 0-6: which broker coordinates a group or a transactional id (KIP-699: many at once
from version 4).

The first question creates `__consumer_offsets` or `__transaction_state` in the background; the client asks again. Gap:
share groups have no coordinator here and are answered COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from backend.engine.apis.auto_topic_creation import create_in_background
from backend.engine.apis.context import Api, RequestContext
from backend.engine.apis.services import Services
from backend.engine.coordinator.group_records import OFFSETS_TOPIC, coordinator_partition
from backend.engine.coordinator.transaction_records import TRANSACTIONS_TOPIC
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

API_KEY: Final = 10
MIN_VERSION: Final = 0
MAX_VERSION: Final = 6
FIRST_BATCHED: Final = 4
NO_NODE: Final = -1
NOT_AVAILABLE_TEXT: Final = "The coordinator is not available."

_Coordinator = m.FindCoordinatorResponse.Coordinators


class KeyType(IntEnum):
    """What a key names."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS: Final = {KeyType.GROUP: OFFSETS_TOPIC, KeyType.TRANSACTION: TRANSACTIONS_TOPIC}


def find_coordinator(
    services: Services, context: RequestContext, request: m.FindCoordinatorRequest
) -> m.FindCoordinatorResponse:
    """The coordinator of each key, with its address on the listener that was asked."""
    keys = request.coordinator_keys if context.api_version >= FIRST_BATCHED else [request.key]
    found = [_find(services, context, key, request.key_type) for key in keys]
    if context.api_version >= FIRST_BATCHED:
        return m.FindCoordinatorResponse(coordinators=found)
    one = found[0]
    ok = one.error_code == ErrorCode.NONE
    return m.FindCoordinatorResponse(
        error_code=one.error_code,
        # Kafka sends the name of the code where all is well.
        error_message="NONE" if ok else (one.error_message or NOT_AVAILABLE_TEXT),
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(services: Services, context: RequestContext, key: str, key_type: int) -> _Coordinator:
    if key_type not in tuple(KeyType):
        return _unknown(key, ErrorCode.INVALID_REQUEST, f"There is no kind {key_type} of coordinators")
    topic_name = _TOPICS.get(KeyType(key_type))
    if topic_name is None:
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
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


def _unknown(key: str, error: ErrorCode, message: str = "") -> _Coordinator:
    return _Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=error, error_message=message)


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, find_coordinator),)
