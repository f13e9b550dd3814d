"""The leader epochs of one partition's log on its disk: `leader-epoch-checkpoint` (KIP-101)."""

from __future__ import annotations

from collections.abc import Sequence

from backend.engine.log.file_names import DAMAGED_EPOCH_FILE
from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.local_log import LocalLog
from backend.engine.log.log_health import LogHealth


class EpochCheckpoint:
    """Changes of the leader epochs that are written at once. A failure of the disk takes the log offline."""

    def __init__(self, local: LocalLog, leader_epochs: LeaderEpochCache, health: LogHealth, *, lost: bool) -> None:
        self._local = local
        self._leader_epochs = leader_epochs
        self._health = health
        # Whether a damaged checkpoint was made again from what is local: what is remote has epochs that are not here.
        self.lost = lost

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes where a leader's epoch starts."""
        with self._health.disk_errors("write the leader epochs of"):
            self._leader_epochs.assign(epoch, start_offset)

    def replace(self, entries: Sequence[tuple[int, int]]) -> None:
        """Replaces all epochs of the log by these."""
        with self._health.disk_errors("write the leader epochs of"):
            self._leader_epochs.clear()
            self._leader_epochs.assign_all(entries)

    def require_saved(self) -> None:
        """Sees to it that a restart finds the log start: before what lies below it goes from the remote tier.

        Raises NoSpace.
        """
        self._health.check_online()
        try:
            self._leader_epochs.save_again()
        except OSError as error:
            raise self._health.no_space("write the leader epochs of", error) from error

    def restore(self, entries: Sequence[tuple[int, int]]) -> None:
        """Puts the epochs that a damaged checkpoint had before the others: it counts from now on."""
        with self._health.disk_errors("write the leader epochs of"):
            self._leader_epochs.prepend(entries)
            self._local.disk.remove(f"{self._local.dir}/{DAMAGED_EPOCH_FILE}")
        self.lost = False
