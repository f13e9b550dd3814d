"""Names of files and folders of a partition log (`LogFileUtils`, `UnifiedLog.parseTopicPartitionName` of Kafka)."""

from __future__ import annotations

from typing import Final

from backend.tiering.ids import TopicPartition

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
DELETE_DIR_SUFFIX: Final = "-delete"
FUTURE_DIR_SUFFIX: Final = "-future"
STRAY_DIR_SUFFIX: Final = "-stray"

LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
# Name that a damaged epoch file gets; it stays until the epochs are known again from the log's start on.
DAMAGED_EPOCH_FILE: Final = "leader-epoch-checkpoint.damaged"
PARTITION_METADATA_FILE: Final = "partition.metadata"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
META_PROPERTIES_FILE: Final = "meta.properties"
LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"

# Longest name of a file or folder on the usual file systems.
NAME_BYTES_MAX: Final = 255


def file_name(base_offset: int, suffix: str) -> str:
    """`00000000000000000042.log` and the like."""
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The offset in a segment or snapshot file's name; None for any other name."""
    stem = name.split(".", 1)[0]
    return int(stem) if len(stem) == 20 and stem.isdigit() else None


def dir_name(partition: TopicPartition) -> str:
    """`orders-0`."""
    return f"{partition.topic}-{partition.partition}"


def dir_name_for_delete(partition: TopicPartition, unique: bytes) -> str:
    """`orders-0.<32 hex>-delete`; a long topic name is shortened to fit."""
    return _unique_dir_name(partition, unique, DELETE_DIR_SUFFIX)


def dir_name_for_future(partition: TopicPartition, unique: bytes) -> str:
    """`orders-0.<32 hex>-future`: the copy of a log that is on its way to another directory."""
    return _unique_dir_name(partition, unique, FUTURE_DIR_SUFFIX)


def dir_name_for_stray(partition: TopicPartition, unique: bytes) -> str:
    """`orders-0.<32 hex>-stray`: an unused replica that is kept."""
    return _unique_dir_name(partition, unique, STRAY_DIR_SUFFIX)


def _unique_dir_name(partition: TopicPartition, unique: bytes, ending: str) -> str:
    suffix = f"-{partition.partition}.{unique.hex()}{ending}"
    return partition.topic[: NAME_BYTES_MAX - len(suffix)] + suffix


def parse_future_dir_name(name: str) -> TopicPartition | None:
    """The partition that was being moved into a folder; None for any other name."""
    return parse_dir_name(name.rpartition(".")[0]) if name.endswith(FUTURE_DIR_SUFFIX) else None


def parse_stray_dir_name(name: str) -> TopicPartition | None:
    """The partition whose replica is kept in a folder; None for any other name. A long topic's name is shortened."""
    return parse_dir_name(name.rpartition(".")[0]) if name.endswith(STRAY_DIR_SUFFIX) else None


def parse_dir_name(name: str) -> TopicPartition | None:
    """The partition whose log a folder holds; None for anything else (being deleted, future, stray, foreign)."""
    if name.endswith((DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX)):
        return None
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isdigit():
        return None
    return TopicPartition(topic, int(number))
