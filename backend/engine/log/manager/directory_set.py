"""The directories of `log.dirs`: which are open, which have failed (`LogManager` of Kafka, KIP-858)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from backend.engine.log.log_errors import LogDirError, LogDirUnusable
from backend.engine.log.manager.log_directory import LogDirectory
from backend.engine.log.manager.stray_replicas import SetAsideFolder, remove_set_aside, set_aside_in
from backend.engine.ports import Ports
from backend.protocol.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)


class LogDirectories:
    """The directories of one broker."""

    def __init__(self, ports: Ports, log_dirs: Sequence[str]) -> None:
        self._ports = ports
        self._paths = [path.rstrip("/") for path in log_dirs]
        self._dirs: list[LogDirectory] = []
        # Directories that failed, with the reason.
        self.failed_dirs: dict[str, str] = {}

    def open_dirs(self, cluster_id: str, node_id: int) -> None:
        """Locks and checks the directories; goes on without one that the system refuses, as when a disk is gone.

        Raises `LogDirError`, after releasing what was locked, also when the first one is refused: it has the cluster's
        metadata.
        """
        disk, random = self._ports.disk, self._ports.random
        try:
            for path in self._paths:
                try:
                    self._dirs.append(
                        LogDirectory.open(disk, path, cluster_id=cluster_id, node_id=node_id, random=random)
                    )
                except LogDirUnusable as error:
                    if not self._dirs:
                        raise
                    self.failed_dirs[path] = str(error)
                    _log.error("Log directory %s is left out, its partitions are offline: %s", path, error)
        except LogDirError:
            self.unlock()
            raise

    def note_failure(self, path: str, reason: str) -> None:
        """The directory cannot be used any longer; its logs are the log manager's to take offline."""
        self.failed_dirs[path] = reason
        _log.error("Log directory %s failed, its partitions are offline: %s; repair it and start again", path, reason)

    @property
    def dirs(self) -> tuple[LogDirectory, ...]:
        """The open directories, in the order of `log.dirs`, those that failed since among them."""
        return tuple(self._dirs)

    @property
    def usable_dirs(self) -> list[LogDirectory]:
        """The directories that have not failed."""
        return [log_dir for log_dir in self._dirs if log_dir.path not in self.failed_dirs]

    @property
    def failed_directory_ids(self) -> list[bytes]:
        """Ids of directories that failed since the start (KIP-858); those of the ones left out are not known."""
        return [log_dir.meta.directory_id for log_dir in self._dirs if log_dir.path in self.failed_dirs]

    @property
    def left_out(self) -> list[str]:
        """Paths that were refused at the start: what lies there is not known."""
        return [path for path in self._paths if path in self.failed_dirs and path not in self.directory_ids]

    @property
    def directory_ids(self) -> dict[str, bytes]:
        """Path → directory id (KIP-858)."""
        return {log_dir.path: log_dir.meta.directory_id for log_dir in self._dirs}

    @property
    def previous_broker_epoch(self) -> int:
        """Epoch of the last run when it stopped cleanly in every directory, else -1 (KIP-966): also where they do not
        agree, as when one is from a backup (`LogManager.readBrokerEpochFromCleanShutdownFiles`).
        """
        epochs = {log_dir.previous_broker_epoch for log_dir in self._dirs}
        return epochs.pop() if len(epochs) == 1 and not self.left_out else -1

    def set_aside_in(self, log_dir: LogDirectory) -> list[SetAsideFolder]:
        """Unused replicas that a directory keeps; nothing for one that cannot be read."""
        try:
            return set_aside_in(self._ports.disk, log_dir.path)
        except OSError:
            return []

    async def remove_set_aside(self, names: Sequence[str]) -> None:
        """Removes the set-aside replicas of these names for good, as an operator has asked for."""
        disk = self._ports.disk
        for log_dir in self.usable_dirs:
            for name in names:
                try:
                    gone = await self._ports.workers.run(partial(remove_set_aside, disk, log_dir.path, name))
                except OSError as error:
                    _log.error("The set-aside %s/%s cannot be removed: %s", log_dir.path, name, error)
                else:
                    if gone:
                        _log.info(
                            "The set-aside %s/%s is removed, as ebbline.remove.set.aside says", log_dir.path, name
                        )

    def dir_at(self, path: str) -> LogDirectory:
        """The directory of a path. Raises LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR when it has failed."""
        if path.rstrip("/") in self.failed_dirs:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
        for log_dir in self._dirs:
            if log_dir.path == path.rstrip("/"):
                return log_dir
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of the log directories of this broker")

    def unlock(self) -> None:
        """Lets go of the directories: another process may use them."""
        for log_dir in self._dirs:
            log_dir.unlock()
        self._dirs.clear()
