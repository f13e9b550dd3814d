"""Feature levels of the cluster (KIP-584): what they are, up to where its brokers could raise them, and raising one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import Gateway
from backend.protocol import messages as m
from backend.protocol.errors import error_for

UPGRADE: Final = 1
TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """The level that the cluster has (0: switched off) and the highest that the broker asked supports."""

    level: int
    max_level: int


async def fetch_features(gateway: Gateway) -> Mapping[str, FeatureLevel]:
    """By name: every feature that the broker supports or the cluster has. Raises GatewayError."""
    request = m.ApiVersionsRequest(client_software_name="ebbline", client_software_version="1")
    response = await gateway.ask_any(request, m.ApiVersionsResponse)
    supported = {feature.name: feature.max_version for feature in response.supported_features}
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return {
        name: FeatureLevel(finalized.get(name, 0), supported.get(name, finalized.get(name, 0)))
        for name in sorted({*supported, *finalized})
    }


async def raise_feature(gateway: Gateway, name: str, level: int) -> None:
    """UpdateFeatures as an upgrade. Raises KafkaError when it is refused, GatewayError."""
    update = m.UpdateFeaturesRequest.FeatureUpdates(feature=name, max_version_level=level, upgrade_type=UPGRADE)
    request = m.UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update])
    response = await gateway.ask_any(request, m.UpdateFeaturesResponse, at_least=1, lane=Lane.ACT)
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
