"""ApiVersions (18), versions 0-4: what this listener serves, and the cluster's features (KIP-511, KIP-584, KIP-1022).

A request of an unsupported version never reaches the handler: the listener answers it with :func:`unsupported_version`
in the format of version 0, which every client can read.
Kafka: `KafkaApis.handleApiVersionsRequest`.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

from backend.engine.apis.api_declaration import BOTH, Api, ApiTable, RequestContext
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

API_KEY: Final = 18
MIN_VERSION: Final = 0
MAX_VERSION: Final = 4

# Kafka's ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")

# Feature levels of Kafka 4.3 (metadata.version 30 = 4.3-IV0). Features that the engine lacks are not offered for
# UpdateFeatures to switch on: kraft.version (the voters stand in the settings), share.version, streams.version.
SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "metadata.version": (7, 30),
    "transaction.version": (0, 2),
}


def unsupported_version() -> m.ApiVersionsResponse:
    """Encode with version 0: the versions of this API alone, error 35."""
    return m.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[m.ApiVersionsResponse.ApiKeys(api_key=API_KEY, min_version=MIN_VERSION, max_version=MAX_VERSION)],
    )


class ApiVersionsServices(Protocol):
    """The parts of the node that these functions use."""

    metadata: MetadataCache
    apis: ApiTable[Any]


def api_versions(
    services: ApiVersionsServices, context: RequestContext, request: m.ApiVersionsRequest
) -> m.ApiVersionsResponse:
    """The APIs of the listener that was asked, and the cluster's features."""
    version = context.header.api_version
    if version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image = services.metadata.image
    response = m.ApiVersionsResponse
    return response(
        api_keys=[
            response.ApiKeys(
                api_key=api.key,
                min_version=api.min_version if api.advertised_min is None else api.advertised_min,
                max_version=api.max_version,
            )
            for api in services.apis.served(context.listener_kind).values()
        ],
        supported_features=[
            response.SupportedFeatures(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
            # Clients before version 4 refuse a feature whose lowest level is 0 (KAFKA-17011).
            if low > 0 or version >= 4
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            response.FinalizedFeatures(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(image.features.items())
        ],
    )


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, api_versions, BOTH),)
