"""Keys of a partition's objects in the remote tier: the layout of Kafka's `LocalTieredStorage`.

    kafka-tiered-storage/<topic>-<partition>-<topic id>/<start offset, 20 digits>-<segment id>.<suffix>

A file system takes 255 bytes for each part of a path, and the two numbers take 25 of them at least: of a topic's name
that does not fit beside them (from 231 characters on) the folder has the first characters. The topic id makes such
folders different. The whole key has some 350 bytes at most; S3 takes 1,024.
"""

from __future__ import annotations

from typing import Final

from backend.tiering.ids import TopicIdPartition, uuid_text

ROOT: Final = "kafka-tiered-storage"
PART_BYTES_MAX: Final = 255


def partition_folder(partition: TopicIdPartition) -> str:
    """Folder of a partition below the storage's root."""
    number = f"-{partition.partition}-{uuid_text(partition.topic_id)}"
    topic = partition.topic.encode()[: PART_BYTES_MAX - len(number)].decode(errors="ignore")
    return f"{ROOT}/{topic}{number}"


def former_partition_folder(partition: TopicIdPartition) -> str | None:
    """The folder in which a store that takes longer parts (S3) may hold objects of earlier versions, which did not
    shorten; None where it is the same.
    """
    folder = f"{ROOT}/{partition.topic}-{partition.partition}-{uuid_text(partition.topic_id)}"
    return None if folder == partition_folder(partition) else folder
