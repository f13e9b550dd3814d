"""CreateTopics (19), versions 2-7 (KIP-4, KIP-464, KIP-525). Brokers send it on to the controller.

Kafka: `ControllerApis.handleCreateTopics`.
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
from backend.engine.controller.commands.topic_commands import create_topics
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

API_KEY: Final = 19
STRICT_SINCE: Final = 6


class CreateTopicsServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    ports: Ports
    metadata: MetadataCache
    controller_channel: ControllerChannel
    controller: Controller | None
    client_quotas: ClientQuotaManager


async def on_broker(
    services: CreateTopicsServices, context: RequestContext, request: m.CreateTopicsRequest
) -> m.CreateTopicsResponse:
    """The controller's answer, once this broker knows the new topics too."""
    counts = ((topic.name, _partitions(topic, services.config)) for topic in request.topics)
    admission = admit(services, context, counts, strict_since=STRICT_SINCE)
    refused: list[m.CreateTopicsResponse.Topics] = []
    response = m.CreateTopicsResponse()
    if admission.refused:
        refused = on_error(request, context.api_version, ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED).topics
        request.topics = [topic for topic in request.topics if topic.name not in admission.refused]
    if request.topics or not admission.refused:
        response = await forward(services, context, request, m.CreateTopicsResponse)
    admission.refund({topic.name for topic in response.topics if topic.error_code})
    created = [topic.name for topic in response.topics if not topic.error_code]
    response.topics += [topic for topic in refused if topic.name in admission.refused]
    response.throttle_time_ms = admission.throttle_ms
    if created and not request.validate_only:
        await caught_up(services, lambda image: all(name in image.topic_ids for name in created))
    return response


def _partitions(topic: m.CreateTopicsRequest.Topics, config: BrokerConfig) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return config.num_partitions if topic.num_partitions == -1 else max(0, topic.num_partitions)


async def on_controller(
    services: CreateTopicsServices, context: RequestContext, request: m.CreateTopicsRequest
) -> m.CreateTopicsResponse:
    """See `controller.commands.topic_commands`."""
    command = partial(
        create_topics,
        request=request,
        config=services.config,
        new_topic_id=services.ports.random.uuid,
        choose=services.ports.random.randrange,
    )
    return await carried_out(services, "create topics", command, by_worker=True)


def on_error(request: m.CreateTopicsRequest, version: int, code: int, message: str | None) -> m.CreateTopicsResponse:
    """Every topic with the error."""
    result_type = m.CreateTopicsResponse.Topics
    return m.CreateTopicsResponse(
        topics=[result_type(name=topic.name, error_code=code, error_message=message) for topic in request.topics]
    )


APIS: Final = (
    Api(API_KEY, 2, 7, on_broker, BROKER, on_error=on_error),
    Api(API_KEY, 2, 7, on_controller, CONTROLLER, on_error=on_error),
)
