"""ListConfigResources (74), versions 0-1: what configs can be described (KIP-714, KIP-1142).

Version 0 lists subscriptions to clients' metrics only.
Kafka: `KafkaApis.handleListConfigResources`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.apis.support.broker_loggers import BROKER_LOGGER_RESOURCE
from backend.engine.controller.image.metadata_image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 74
# By version, in the order of Kafka's answers.
_SUPPORTED: Final = (
    (CLIENT_METRICS_RESOURCE,),
    (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE, BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE),
)

_Resource = m.ListConfigResourcesResponse.ConfigResources


class ListConfigResourcesServices(Protocol):
    """The parts of the node that these functions use."""

    metadata: MetadataCache


def list_config_resources(
    services: ListConfigResourcesServices, context: RequestContext, request: m.ListConfigResourcesRequest
) -> m.ListConfigResourcesResponse:
    """Names of the kinds asked for, of all kinds when none is."""
    supported = _SUPPORTED[context.api_version]
    for kind in request.resource_types:
        if kind not in supported:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unexpected resource type {kind}.")
    image = services.metadata.image
    brokers = [str(broker.id) for broker in image.alive_brokers() if broker.endpoint(context.listener_name) is not None]
    names: dict[int, list[str]] = {
        GROUP_RESOURCE: sorted(name for kind, name in image.configs if kind == GROUP_RESOURCE),
        CLIENT_METRICS_RESOURCE: sorted(name for kind, name in image.configs if kind == CLIENT_METRICS_RESOURCE),
        BROKER_LOGGER_RESOURCE: brokers,
        BROKER_RESOURCE: brokers,
        TOPIC_RESOURCE: sorted(image.topic_ids),
    }
    return m.ListConfigResourcesResponse(
        config_resources=[
            _Resource(resource_name=name, resource_type=kind)
            for kind in supported
            if not request.resource_types or kind in request.resource_types
            for name in names.get(kind, ())
        ]
    )


APIS: Final = (Api(API_KEY, 0, 1, list_config_resources),)
