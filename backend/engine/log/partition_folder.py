"""The folder of one partition's log: its other names and its end (`UnifiedLog.renameDir`, `delete` of Kafka)."""

from __future__ import annotations

from backend.engine.log.file_names import LEADER_EPOCH_FILE, dir_name_for_delete
from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.local_log import LocalLog
from backend.engine.log.log_health import LogHealth
from backend.engine.log.manager.stray_replicas import set_aside
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.ports.random import Random
from backend.tiering.ids import TopicPartition


class PartitionFolder:
    """The folder of one log. After all but `rename` the log must not be used again."""

    def __init__(
        self,
        partition: TopicPartition,
        local: LocalLog,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        health: LogHealth,
        random: Random,
    ) -> None:
        self._partition = partition
        self._local = local
        self._leader_epochs = leader_epochs
        self._producer_state = producer_state
        self._health = health
        self._random = random

    def rename(self, log_dir: str) -> None:
        """Gives the folder another name on the same file system; the log stays in use."""
        local = self._local
        with self._health.disk_errors("rename the folder of"):
            local.rename_dir(log_dir)
        path = f"{log_dir}/{LEADER_EPOCH_FILE}"
        self._leader_epochs.save_with(lambda data: local.disk.write_atomic(path, data, sync=False))
        self._producer_state.moved_to(log_dir)

    def abandon(self, reason: str) -> str:
        """Closes descriptors without writing anything; the folder to be removed."""
        self._local.close_files()
        self._health.retire(reason)
        return self._local.dir

    def rename_for_delete(self) -> str:
        """Closes the log and renames its folder to `…-delete`; returns the new path, to be removed later."""
        local = self._local
        local.close_files()
        parent = local.dir.rpartition("/")[0]
        target = f"{parent}/{dir_name_for_delete(self._partition, self._random.uuid())}"
        local.disk.rename(local.dir, target)
        local.dir = target
        self._health.retire("its topic or replica is deleted")
        return target

    def set_aside(self, reason: str, now_ms: int) -> str:
        """Closes the log and renames its folder to `…-stray`, where it is kept; returns the new path."""
        local, health = self._local, self._health
        local.close_files()
        health.retire(health.offline_reason or f"it is set aside: {reason}")
        local.dir = set_aside(local.disk, local.dir, self._partition, self._random.uuid(), reason, now_ms)
        return local.dir
