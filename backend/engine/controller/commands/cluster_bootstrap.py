"""The first records of a cluster's life, and controllers that introduce themselves (KIP-631, KIP-919)."""

from __future__ import annotations

from typing import Final

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.command import ControllerResult, checked_result
from backend.engine.controller.image.metadata_image import BROKER_RESOURCE, CLUSTER_DEFAULT, MetadataImage
from backend.protocol import messages as m
from backend.protocol.messages import Message

METADATA_VERSION: Final = "metadata.version"
# 4.3-IV0. Every feature that is not named here stays at level 0 until the engine has it: share.version (KIP-932),
# streams.version (KIP-1071).
METADATA_VERSION_LEVEL: Final = 30
# The consumer group protocol (KIP-848).
GROUP_VERSION: Final = "group.version"
GROUP_VERSION_LEVEL: Final = 1
# KIP-890: producers get a new epoch at the end of every transaction.
TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSION_LEVEL: Final = 2
# KIP-966: replicas that left the ISR below min.insync.replicas and still have every committed record may lead.
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
ELIGIBLE_LEADER_REPLICAS_LEVEL: Final = 1
MIN_ISR: Final = "min.insync.replicas"


def bootstrap(image: MetadataImage, config: BrokerConfig) -> ControllerResult[None]:
    """Records that make an empty log a cluster's; none when there are some already.

    A cluster with eligible leader replicas has one `min.insync.replicas`: at first the value of who makes it.
    """
    if METADATA_VERSION in image.features:
        return checked_result([], None)
    feature_levels = (
        (METADATA_VERSION, METADATA_VERSION_LEVEL),
        (GROUP_VERSION, GROUP_VERSION_LEVEL),
        (TRANSACTION_VERSION, TRANSACTION_VERSION_LEVEL),
        (ELIGIBLE_LEADER_REPLICAS, ELIGIBLE_LEADER_REPLICAS_LEVEL),
    )
    records: list[Message] = [m.FeatureLevelRecord(name=name, feature_level=level) for name, level in feature_levels]
    return checked_result([*records, cluster_wide(MIN_ISR, str(config.min_insync_replicas))], None)


def cluster_wide(name: str, value: str) -> m.ConfigRecord:
    """A dynamic default for all brokers."""
    return m.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=CLUSTER_DEFAULT, name=name, value=value)


def register_controller(
    image: MetadataImage, request: m.ControllerRegistrationRequest
) -> ControllerResult[m.ControllerRegistrationResponse]:
    """Records a controller's endpoints and features, for DescribeCluster and for brokers that look for a controller."""
    record = m.RegisterControllerRecord
    return checked_result(
        [
            record(
                controller_id=request.controller_id,
                incarnation_id=bytes(request.incarnation_id),
                zk_migration_ready=request.zk_migration_ready,
                end_points=[
                    record.EndPoints(
                        name=listener.name,
                        host=listener.host,
                        port=listener.port,
                        security_protocol=listener.security_protocol,
                    )
                    for listener in request.listeners
                ],
                features=[
                    record.Features(
                        name=feature.name,
                        min_supported_version=feature.min_supported_version,
                        max_supported_version=feature.max_supported_version,
                    )
                    for feature in request.features
                ],
            )
        ],
        m.ControllerRegistrationResponse(),
    )
