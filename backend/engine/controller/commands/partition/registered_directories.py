"""Whether a replica's log is where metadata says: in a directory that its broker has registered (KIP-858).

A broker that comes back with a new disk registers another directory id. Its new, empty log is not the log that the ISR,
the ELR or the last known ELR refer to.
"""

from __future__ import annotations

from typing import Final

from backend.engine.controller.image.metadata_image import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    MetadataImage,
    PartitionRegistration,
)

_NOT_KNOWN_YET: Final = frozenset({DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING})
# Ids that name no directory.
NO_DIRECTORIES: Final = frozenset({*_NOT_KNOWN_YET, DIRECTORY_LOST})


def has_log(image: MetadataImage, partition: PartitionRegistration, replica: int) -> bool:
    """Whether the replica's broker has the directory that its log lies in (`BrokerRegistration.hasOnlineDir`)."""
    directory = partition.directory_of(replica)
    if directory in _NOT_KNOWN_YET:
        return True
    if directory == DIRECTORY_LOST:
        return False
    broker = image.brokers.get(replica)
    return broker is not None and (not broker.log_dirs or directory in broker.log_dirs)


def log_is_gone(image: MetadataImage, partition: PartitionRegistration, replica: int) -> bool:
    """Whether the broker came back without the directory that held the replica's log."""
    return partition.directory_of(replica) not in NO_DIRECTORIES and not has_log(image, partition, replica)
