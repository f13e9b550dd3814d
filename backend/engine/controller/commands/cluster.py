"""The first records of a cluster's life, and controllers that introduce themselves (KIP-631, KIP-919)."""

from __future__ import annotations

from typing import Final

from backend.engine.controller.commands.outcome import Outcome, outcome
from backend.engine.controller.image import MetadataImage
from backend.protocol import messages as m

METADATA_VERSION: Final = "metadata.version"
# 4.3-IV0. Every feature that is not named here stays at level 0 until the engine has it:
# eligible.leader.replicas.version (KIP-966), share.version (KIP-932), streams.version (KIP-1071).
METADATA_VERSION_LEVEL: Final = 30
# The consumer group protocol (KIP-848).
GROUP_VERSION: Final = "group.version"
GROUP_VERSION_LEVEL: Final = 1
# KIP-890: producers get a new epoch at the end of every transaction.
TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSION_LEVEL: Final = 2


def bootstrap(image: MetadataImage) -> Outcome[None]:
    """Records that make an empty log a cluster's; none when there are some already."""
    if METADATA_VERSION in image.features:
        return outcome([], None)
    levels = (
        (METADATA_VERSION, METADATA_VERSION_LEVEL),
        (GROUP_VERSION, GROUP_VERSION_LEVEL),
        (TRANSACTION_VERSION, TRANSACTION_VERSION_LEVEL),
    )
    return outcome([m.FeatureLevelRecord(name=name, feature_level=level) for name, level in levels], None)


def register_controller(
    image: MetadataImage, request: m.ControllerRegistrationRequest
) -> Outcome[m.ControllerRegistrationResponse]:
    """Where a controller listens and what it supports, for DescribeCluster and brokers that look for one."""
    record = m.RegisterControllerRecord
    return outcome(
        [
            record(
                controller_id=request.controller_id,
                incarnation_id=bytes(request.incarnation_id),
                zk_migration_ready=request.zk_migration_ready,
                end_points=[
                    record.EndPoints(
                        name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
                    )
                    for one in request.listeners
                ],
                features=[
                    record.Features(
                        name=one.name,
                        min_supported_version=one.min_supported_version,
                        max_supported_version=one.max_supported_version,
                    )
                    for one in request.features
                ],
            )
        ],
        m.ControllerRegistrationResponse(),
    )
