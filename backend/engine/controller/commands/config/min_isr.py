"""`min.insync.replicas` where the cluster keeps eligible leader replicas (KIP-966).

The controller decides by it who is eligible, and brokers when the high watermark may move, so all must mean the same
value: the cluster has one, topics may have their own, a single broker may not (`ConfigurationControlManager`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.cluster_bootstrap import MIN_ISR, cluster_wide
from backend.engine.controller.commands.partition.elections import (
    LocatedPartition,
    leader_and_isr_changes,
    partitions_of,
)
from backend.engine.controller.commands.partition.eligible_leader_replicas import elr_enabled
from backend.engine.controller.image.metadata_image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    TOPIC_RESOURCE,
    MetadataImage,
)
from backend.engine.controller.image.replay import apply_records
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError


def check_min_isr(image: MetadataImage, broker: str, changes: Mapping[str, str | None]) -> None:
    """INVALID_CONFIG for a value of one broker's own, and when the cluster would be left without one."""
    if MIN_ISR not in changes or not elr_enabled(image):
        return
    if broker != CLUSTER_DEFAULT:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
    if changes[MIN_ISR] is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")


def cluster_min_isr(image: MetadataImage, config: BrokerConfig) -> list[m.ConfigRecord]:
    """The cluster's only value once ELR is switched on: the present one, else the one in the controller's settings.

    Values of single brokers are removed (maybeGenerateElrSafetyRecords).
    """
    has_one = MIN_ISR in image.config(BROKER_RESOURCE, CLUSTER_DEFAULT)
    records = [] if has_one else [cluster_wide(MIN_ISR, str(config.min_insync_replicas))]
    return records + [
        m.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=MIN_ISR, value=None)
        for (kind, name), settings in sorted(image.configs.items())
        if kind == BROKER_RESOURCE and name != CLUSTER_DEFAULT and MIN_ISR in settings
    ]


def min_isr_changes(
    image: MetadataImage, config: BrokerConfig, changes: Iterable[m.ConfigRecord]
) -> list[m.PartitionChangeRecord]:
    """ELRs that become redundant under the new `min.insync.replicas`.

    Kafka clears every ELR that a change concerns, which forgets who may lead even when the value is raised, or while no
    replica is in sync; here each partition is looked at again.
    """
    concerned = [change for change in changes if change.name == MIN_ISR]
    if not concerned or not elr_enabled(image):
        return []
    after = apply_records(image, concerned, image.offset, image.epoch)
    return leader_and_isr_changes(after, config, _partitions(after, concerned))


def _partitions(image: MetadataImage, changes: Iterable[m.ConfigRecord]) -> Iterator[LocatedPartition]:
    for change in changes:
        names = [change.resource_name] if change.resource_type == TOPIC_RESOURCE else sorted(image.topic_ids)
        for name in names:
            yield from (
                located for located in partitions_of(image, name) if located[2].elr or located[2].last_known_elr
            )
