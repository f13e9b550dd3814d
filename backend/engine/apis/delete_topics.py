"""DeleteTopics (20), versions 1-6 (KIP-4, KIP-516). Brokers send it on to the controller.

Kafka: `ControllerApis.handleDeleteTopics`.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.quotas.client_quota_manager import ClientQuotaManager
from backend.engine.apis.quotas.controller_mutation_quota import EXCEEDED, admit
from backend.engine.apis.support.forwarding import carried_out, caught_up, forward
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.topic_commands import delete_topics
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

API_KEY: Final = 20
FIRST_BY_ID: Final = 6
STRICT_SINCE: Final = 5
NO_ID: Final = bytes(16)


class DeleteTopicsServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    ports: Ports
    metadata: MetadataCache
    controller_channel: ControllerChannel
    controller: Controller | None
    client_quotas: ClientQuotaManager


async def on_broker(
    services: DeleteTopicsServices, context: RequestContext, request: m.DeleteTopicsRequest
) -> m.DeleteTopicsResponse:
    """The controller's answer, once this broker has let go of the topics too."""
    before = services.metadata.image
    counts = ((key, _partitions(before, key)) for key in _keys(request, context.api_version))
    admission = admit(services, context, counts, strict_since=STRICT_SINCE)
    response = m.DeleteTopicsResponse()
    refused: list[m.DeleteTopicsResponse.Responses] = []
    if admission.refused:
        everything = on_error(request, context.api_version, ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED).responses
        refused = [named for named in everything if (named.name, bytes(named.topic_id)) in admission.refused]
        request.topics = [t for t in request.topics if (t.name, bytes(t.topic_id)) not in admission.refused]
        request.topic_names = [name for name in request.topic_names if (name, NO_ID) not in admission.refused]
    if request.topics or request.topic_names or not refused:
        response = await forward(services, context, request, m.DeleteTopicsResponse)
    response.throttle_time_ms = admission.throttle_ms
    names = [topic.name for topic in response.responses if not topic.error_code and topic.name is not None]
    deleted = {before.topic_ids[name] for name in names if name in before.topic_ids}
    await caught_up(services, lambda image: not any(topic_id in image.topics for topic_id in deleted))
    response.responses += refused
    return response


def _keys(request: m.DeleteTopicsRequest, version: int) -> list[tuple[str | None, bytes]]:
    if version >= FIRST_BY_ID:
        return [(topic.name, bytes(topic.topic_id)) for topic in request.topics]
    return [(name, NO_ID) for name in request.topic_names]


def _partitions(image: MetadataImage, key: tuple[str | None, bytes]) -> int:
    """Of the topic as this broker knows it; one it does not know counts for nothing."""
    name, topic_id = key
    topic = image.topics.get(topic_id) if name is None else image.topic(name)
    return 0 if topic is None else len(topic.partitions)


async def on_controller(
    services: DeleteTopicsServices, context: RequestContext, request: m.DeleteTopicsRequest
) -> m.DeleteTopicsResponse:
    """See `controller.commands.topic_commands`."""
    command = partial(delete_topics, request=request, config=services.config, version=context.api_version)
    return await carried_out(services, "delete topics", command, by_worker=True)


def on_error(request: m.DeleteTopicsRequest, version: int, code: int, message: str | None) -> m.DeleteTopicsResponse:
    """Every topic with the error."""
    result_type = m.DeleteTopicsResponse.Responses
    if version >= FIRST_BY_ID:
        topics = [(topic.name, bytes(topic.topic_id)) for topic in request.topics]
    else:
        topics = [(name, NO_ID) for name in request.topic_names]
    return m.DeleteTopicsResponse(
        responses=[
            result_type(name=name, topic_id=topic_id, error_code=code, error_message=message)
            for name, topic_id in topics
        ]
    )


APIS: Final = (
    Api(API_KEY, 1, 6, on_broker, BROKER, on_error=on_error),
    Api(API_KEY, 1, 6, on_controller, CONTROLLER, on_error=on_error),
)
