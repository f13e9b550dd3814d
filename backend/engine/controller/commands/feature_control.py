"""UpdateFeatures (KIP-584, KIP-778) → FeatureLevelRecord; rules and words of FeatureControlManager."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.cluster_bootstrap import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION
from backend.engine.controller.commands.command import ControllerResult, checked_result
from backend.engine.controller.commands.config.min_isr import cluster_min_isr
from backend.engine.controller.commands.partition.elections import all_partitions
from backend.engine.controller.image.metadata_image import MetadataImage, SupportedFeature
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
# Results by feature left the answer with version 2.
RESULTS_UNTIL: Final = 1

_Update = m.UpdateFeaturesRequest.FeatureUpdates


def update_features(
    image: MetadataImage, request: m.UpdateFeaturesRequest, config: BrokerConfig, version: int
) -> ControllerResult[m.UpdateFeaturesResponse]:
    """All updates or none: what one of them is refused for is the answer to the whole request."""
    records: list[Message] = []
    response = m.UpdateFeaturesResponse(error_message=None)
    seen: set[str] = set()
    try:
        for update in request.feature_updates:
            if update.feature in seen:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Provided feature {update.feature} twice")
            seen.add(update.feature)
            records += _update(image, update, upgrade_type(update, version), config)
    except KafkaError as error:
        message = f"The update failed for all features since the following feature had an error: {error.message}"
        return ControllerResult((), m.UpdateFeaturesResponse(error_code=error.code, error_message=message))
    if version <= RESULTS_UNTIL:
        response.results = [
            m.UpdateFeaturesResponse.Results(feature=update.feature, error_message=None)
            for update in request.feature_updates
        ]
    return checked_result([] if request.validate_only else records, response)


def upgrade_type(update: _Update, version: int) -> int:
    """Version 0 had only a flag for it."""
    if version == 0:
        return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return update.upgrade_type


def _update(image: MetadataImage, update: _Update, kind: int, config: BrokerConfig) -> list[Message]:
    name, level = update.feature, update.max_version_level
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    reason = not_supported(image, name, level)
    if reason is not None:
        raise _invalid(name, level, reason)
    current = image.features.get(name, 0)
    if level < current and kind == UPGRADE:
        raise _invalid(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade.",
        )
    if level > current and kind != UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION and level < current:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. Refusing to perform the requested"
            " downgrade because it might delete metadata information.",
        )
    record = m.FeatureLevelRecord(name=name, feature_level=level)
    if name != ELIGIBLE_LEADER_REPLICAS:
        return [record]
    if level > current:
        return [record, *cluster_min_isr(image, config)]
    if level < current and kind == SAFE_DOWNGRADE:
        _check_nobody_waits_for_elr(image, level)
    return [record]


def _check_nobody_waits_for_elr(image: MetadataImage, level: int) -> None:
    """Below level 1 an ISR says who may lead: an empty one would leave no candidate (Kafka does not check)."""
    waiting = next((located for located in all_partitions(image) if not located[2].isr), None)
    if waiting is not None:
        topic, index, _ = waiting
        raise _invalid(
            ELIGIBLE_LEADER_REPLICAS,
            level,
            f"Partition {topic.name}-{index} has nobody in sync, and only its eligible leader replicas say who may lead"
            " it; start their brokers first.",
        )


def not_supported(image: MetadataImage, name: str, level: int) -> str | None:
    """Names a node that cannot run that level, in Kafka's words; None when all can."""
    for controller in sorted(image.controllers.values(), key=lambda registration: registration.id):
        # With one voter the controller that is asked is the only one there is.
        if reason := _reason(f"Local controller {controller.id}", controller.features, name, level):
            return reason
    for broker in sorted(image.brokers.values(), key=lambda registration: registration.id):
        if reason := _reason(f"Broker {broker.id}", broker.features, name, level):
            return reason
    return None


def _reason(node: str, features: Iterable[SupportedFeature], name: str, level: int) -> str | None:
    low, high = next(((feature.min_level, feature.max_level) for feature in features if feature.name == name), (0, 0))
    if low <= level <= high:
        return None
    if high == 0:
        return f"{node} does not support this feature."
    return f"{node} only supports versions {low}-{high}"


def _invalid(name: str, level: int, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}")
