"""The log directories of one broker: lock, identity, checkpoints, partitions (`LogManager` of Kafka)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC
from backend.engine.log.checkpoint_files import (
    MalformedCheckpoint,
    MetaProperties,
    decode_clean_shutdown,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_offsets,
    encode_partition_metadata,
    ensure_meta_properties,
)
from backend.engine.log.file_names import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_FILE,
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    HIGH_WATERMARK_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    parse_dir_name,
    parse_future_dir_name,
)
from backend.engine.log.log_errors import LogDirError, LogDirUnusable
from backend.engine.ports.disk import Disk, File
from backend.engine.ports.random import Random
from backend.tiering.ids import ZERO_UUID, TopicPartition

PROBE_FILE: Final = ".ebbline-probe"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Checkpoints:
    """The offset checkpoints of a directory, as they were when it was opened."""

    high_watermark: dict[TopicPartition, int] = field(default_factory=dict)
    recovery_point: dict[TopicPartition, int] = field(default_factory=dict)
    log_start: dict[TopicPartition, int] = field(default_factory=dict)
    cleaner: dict[TopicPartition, int] = field(default_factory=dict)


class LogDirectory:
    """One locked directory."""

    def __init__(self, disk: Disk, path: str, lock: File, meta: MetaProperties) -> None:
        self._disk = disk
        self._lock = lock
        self.path = path
        self.meta = meta
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        marker = f"{path}/{CLEAN_SHUTDOWN_FILE}"
        self.clean_shutdown = disk.exists(marker)
        # Epoch of the broker that stopped cleanly, for its next registration; -1 after an unclean stop.
        self.previous_broker_epoch = decode_clean_shutdown(disk.read(marker)) if self.clean_shutdown else -1
        self.checkpoints = Checkpoints(
            self._read_offsets(HIGH_WATERMARK_FILE),
            self._read_offsets(RECOVERY_POINT_FILE),
            self._read_offsets(LOG_START_FILE),
            self._read_offsets(CLEANER_FILE),
        )
        self._opened_with: Mapping[str, Mapping[TopicPartition, int]] = {
            HIGH_WATERMARK_FILE: self.checkpoints.high_watermark,
            RECOVERY_POINT_FILE: self.checkpoints.recovery_point,
            LOG_START_FILE: self.checkpoints.log_start,
            CLEANER_FILE: self.checkpoints.cleaner,
        }

    @staticmethod
    def open(disk: Disk, path: str, *, cluster_id: str, node_id: int, random: Random) -> LogDirectory:
        """Creates the directory when missing, locks it and checks whose it is.

        Raises `LogDirError`, one sentence for the operator; `LogDirUnusable` when others may do without it.
        """
        try:
            disk.make_dirs(path)
            lock = disk.lock(f"{path}/{LOCK_FILE}")
        except BlockingIOError:
            raise LogDirError(f"{path} is in use by another process; stop it or choose another folder") from None
        except OSError as error:
            raise LogDirUnusable(
                f"{path} cannot be written ({error.strerror}); fix its permissions or choose another folder"
            ) from None
        try:
            return LogDirectory(disk, path, lock, ensure_meta_properties(disk, path, cluster_id, node_id, random))
        except OSError as error:
            lock.close()
            raise LogDirUnusable(f"{path} cannot be used ({error}); fix it or choose another folder") from None
        except LogDirError:
            lock.close()
            raise

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self.path}/{name}"
        if not self._disk.exists(path):
            return {}
        try:
            return decode_offsets(self._disk.read(path))
        except MalformedCheckpoint as error:
            # Kafka does the same: without recovery points everything is scanned, without high watermarks they start at
            # log start.
            _log.warning("Checkpoint %s is not used: %s", path, error)
            return {}

    def partitions(self) -> list[tuple[TopicPartition, str]]:
        """Partitions with their folders, without the cluster metadata, which the quorum opens."""
        partitions: list[tuple[TopicPartition, str]] = []
        for name in self._disk.list_dir(self.path):
            partition = parse_dir_name(name)
            folder = f"{self.path}/{name}"
            if partition is not None and partition.topic != CLUSTER_METADATA_TOPIC and self._disk.is_dir(folder):
                partitions.append((partition, folder))
        return partitions

    def pending_delete_folders(self) -> list[str]:
        """Folders of deleted partitions that an earlier run did not get to remove."""
        names = self._disk.list_dir(self.path)
        return [f"{self.path}/{name}" for name in names if name.endswith(DELETE_DIR_SUFFIX)]

    def future_folders(self) -> list[tuple[TopicPartition | None, str]]:
        """Folders of copies that an earlier run did not complete, with their partitions."""
        names = [name for name in self._disk.list_dir(self.path) if name.endswith(FUTURE_DIR_SUFFIX)]
        return [(parse_future_dir_name(name), f"{self.path}/{name}") for name in names]

    def forget_clean_shutdown(self) -> None:
        """From now on a stop is unclean unless :meth:`write_clean_shutdown` is reached."""
        self._disk.remove(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
        self._disk.sync_dir(self.path)

    def write_clean_shutdown(self, broker_epoch: int) -> None:
        """All logs of this directory were closed cleanly."""
        self._disk.write_atomic(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown(broker_epoch))

    def last_offsets(self, name: str) -> Mapping[TopicPartition, int]:
        """The present content of one offset checkpoint."""
        return self._written[name] if name in self._written else self._opened_with[name]

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes one offset checkpoint unless it would not change. Blocking; any thread."""
        if self._written.get(name) != offsets:
            self._disk.write_atomic(f"{self.path}/{name}", encode_offsets(offsets))
            self._written[name] = offsets

    def unlock(self) -> None:
        self._lock.close()


def probe_dir(disk: Disk, path: str) -> None:
    """Writes and removes a file, lists the directory. Blocking; OSError when it does not work as it should."""
    disk.write_atomic(f"{path}/{PROBE_FILE}", b"")
    disk.remove(f"{path}/{PROBE_FILE}")
    disk.list_dir(path)


def read_topic_id(disk: Disk, folder: str) -> bytes:
    """The topic id in a partition's folder, the zero id when it has none that makes sense: metadata knows it, too."""
    path = f"{folder}/{PARTITION_METADATA_FILE}"
    try:
        data = disk.read(path)
    except FileNotFoundError:
        data = b""
    if not data:
        # An empty file is one that lost its content with the machine's power, before it was synced.
        return ZERO_UUID
    try:
        return decode_partition_metadata(data)
    except MalformedCheckpoint as error:
        _log.warning("%s: %s; it is written again as metadata has it", path, error)
        return ZERO_UUID


def write_topic_id(disk: Disk, folder: str, topic_id: bytes) -> None:
    """Writes `partition.metadata`, which outlives this process; it must be synced to outlive the machine's power."""
    disk.write_atomic(f"{folder}/{PARTITION_METADATA_FILE}", encode_partition_metadata(topic_id), sync=False)
