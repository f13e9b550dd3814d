"""Replica lists given by hand, and new partitions made of replica lists."""

from __future__ import annotations

from collections.abc import Sequence

from backend.engine.controller.commands.partition.partition_change import default_directory
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError


def check_assignment(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None = None) -> None:
    """KafkaError INVALID_REPLICA_ASSIGNMENT unless the list names distinct registered brokers (as many as given)."""
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    ordered = sorted(replicas)
    for position, broker in enumerate(ordered):
        if broker not in image.brokers:
            raise _invalid(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if position and ordered[position - 1] == broker:
            raise _invalid(f"The manual partition assignment includes the broker {broker} more than once.")
    if replication_factor is not None and len(ordered) != replication_factor:
        raise _invalid(
            f"The manual partition assignment includes a partition with {len(ordered)} replica(s), but this is not"
            f" consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def new_partition_record(
    image: MetadataImage, topic_id: bytes, index: int, replicas: Sequence[int]
) -> m.PartitionRecord | None:
    """The record of a new partition: active replicas are in sync, the first of them leads. None when none is active."""
    isr = [replica for replica in replicas if image.is_active(replica)]
    if not isr:
        return None
    return m.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[default_directory(image, replica) for replica in replicas],
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
