"""CreatePartitions (37), versions 0-3 (KIP-195). Brokers send it on to the controller.

Kafka: `ControllerApis.handleCreatePartitions`.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from backend.engine.apis.api_declaration import BROKER, CONTROLLER, Api, RequestContext
from backend.engine.apis.quotas.client_quota_manager import ClientQuotaManager
from backend.engine.apis.quotas.controller_mutation_quota import EXCEEDED, admit
from backend.engine.apis.support.forwarding import carried_out, caught_up, forward
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.controller.commands.partition.more_partitions import create_partitions
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

API_KEY: Final = 37
STRICT_SINCE: Final = 3


class CreatePartitionsServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    ports: Ports
    metadata: MetadataCache
    controller_channel: ControllerChannel
    controller: Controller | None
    client_quotas: ClientQuotaManager


async def on_broker(
    services: CreatePartitionsServices, context: RequestContext, request: m.CreatePartitionsRequest
) -> m.CreatePartitionsResponse:
    """The controller's answer, once this broker knows the new partitions too."""
    image = services.metadata.image
    counts_wanted = ((topic.name, _new_partitions(image, topic)) for topic in request.topics)
    admission = admit(services, context, counts_wanted, strict_since=STRICT_SINCE)
    refused: list[m.CreatePartitionsResponse.Results] = []
    response = m.CreatePartitionsResponse()
    if admission.refused:
        refused = on_error(request, context.api_version, ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED).results
        request.topics = [topic for topic in request.topics if topic.name not in admission.refused]
    if request.topics or not admission.refused:
        response = await forward(services, context, request, m.CreatePartitionsResponse)
    admission.refund({result.name for result in response.results if result.error_code})
    response.throttle_time_ms = admission.throttle_ms
    done = {result.name for result in response.results if not result.error_code}
    counts = {topic.name: topic.count for topic in request.topics if topic.name in done}

    def grown(image: MetadataImage) -> bool:
        topics = {name: image.topic(name) for name in counts}
        return all(topic is None or len(topic.partitions) >= counts[name] for name, topic in topics.items())

    if counts and not request.validate_only:
        await caught_up(services, grown)
    response.results += [result for result in refused if result.name in admission.refused]
    return response


def _new_partitions(image: MetadataImage, topic_request: m.CreatePartitionsRequest.Topics) -> int:
    topic = image.topic(topic_request.name)
    return 0 if topic is None else max(0, topic_request.count - len(topic.partitions))


async def on_controller(
    services: CreatePartitionsServices, context: RequestContext, request: m.CreatePartitionsRequest
) -> m.CreatePartitionsResponse:
    """See `controller.commands.partition.more_partitions`."""
    command = partial(create_partitions, request=request, choose=services.ports.random.randrange)
    return await carried_out(services, "create partitions", command, by_worker=True)


def on_error(
    request: m.CreatePartitionsRequest, version: int, code: int, message: str | None
) -> m.CreatePartitionsResponse:
    """Every topic with the error."""
    result_type = m.CreatePartitionsResponse.Results
    return m.CreatePartitionsResponse(
        results=[result_type(name=topic.name, error_code=code, error_message=message) for topic in request.topics]
    )


APIS: Final = (
    Api(API_KEY, 0, 3, on_broker, BROKER, on_error=on_error),
    Api(API_KEY, 0, 3, on_controller, CONTROLLER, on_error=on_error),
)
