"""Replicas on their way to another log directory of this broker (KIP-113; Kafka's `ReplicaAlterLogDirsThread`).

One task for each; it copies on the loop, a megabyte a turn, so that appends, reads and role changes go on. Once the
copy has everything and what was copied is on the device, copy and log change places between two callbacks.

All moves together are as fast as the dynamic setting `replica.alter.log.dirs.io.max.bytes.per.second` lets them be.
"""

from __future__ import annotations

import logging
from typing import Final

from backend.engine.common.rates import WindowedRate, Windows
from backend.engine.config.setting_definition import LONG_MAX
from backend.engine.log.log_errors import FULL_ERRNOS
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.ports import Clock, tasks
from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.engine.replica.assignments_manager import AssignmentsManager
from backend.engine.replica.partition import Partition
from backend.protocol.errors import ErrorCode, KafkaError

THROTTLE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
# Moves that are too fast check this often whether they may go on.
PAUSE_MS: Final = 100

_log = logging.getLogger(__name__)


class LogDirMoves:
    """The moves of one broker."""

    def __init__(
        self,
        log_manager: LogManager,
        assignments: AssignmentsManager,
        metadata: AppliedMetadata,
        *,
        clock: Clock,
        windows: Windows,
    ) -> None:
        """`assignments` reports the new directory of a replica that has moved."""
        self._logs = log_manager
        self._assignments = assignments
        self._metadata = metadata
        self._clock = clock
        self._rate = WindowedRate(windows, simple=True)
        self._running: dict[Partition, tasks.Task[None]] = {}

    def move(self, partition: Partition, path: str) -> None:
        """Begins to move a replica; to the directory that it is in: ends a move.

        Raises KafkaError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR. A full directory refuses; what is in it goes on.
        """
        target = self._logs.directories.dir_at(path)
        future = self._logs.futures.get(partition.topic_partition)
        if future is not None and future.target_dir == target.path:
            return
        self.stop(partition)
        if partition.log.dir.rpartition("/")[0] == target.path:
            return
        try:
            self._logs.start_move(partition.log, target)
        except OSError as error:
            partition.log.cleaning.paused = False
            if error.errno not in FULL_ERRNOS:
                self._logs.fail_dir(target.path, str(error))
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the copy of {partition} in {target.path} cannot be begun: {error}; free or repair it, and ask again",
            ) from error
        _log.info("Moving %s from %s to %s", partition, partition.log.dir, target.path)
        self._running[partition] = tasks.spawn(self._copy(partition), name=f"move of {partition} to {target.path}")

    def resume(self, partition: Partition) -> None:
        """Begins again a move that a stop interrupted."""
        path = self._logs.preferred_dirs.pop(partition.topic_partition, None)
        if path is None:
            return
        try:
            self.move(partition, path)
        except KafkaError as error:
            _log.warning("The move of %s to %s is given up: %s", partition, path, error)

    def stop(self, partition: Partition) -> None:
        """Gives up a move; nothing happens when there is none."""
        task = self._running.pop(partition, None)
        if task is not None:
            task.cancel()
            self._logs.stop_move(partition.topic_partition)

    async def shutdown(self) -> None:
        """Ends all tasks; the next start begins the moves again."""
        for task in list(self._running.values()):
            await tasks.cancel(task)
        self._running.clear()

    async def _throttle(self, size_bytes: int) -> None:
        """Others have a turn; returns once the rate is within its bound, which may change meanwhile."""
        self._rate.record(size_bytes, self._clock.monotonic_ms())
        await tasks.sleep_ms(0)
        while self._rate.rate(self._clock.monotonic_ms()) > self._bound:
            await tasks.sleep_ms(PAUSE_MS)

    @property
    def _bound(self) -> float:
        text = self._metadata.image.broker_config(self._metadata.node_id).get(THROTTLE)
        # A text that is no number is refused by the controller.
        return float(text) if text is not None and text.isdecimal() else float(LONG_MAX)

    async def _copy(self, partition: Partition) -> None:
        future = self._logs.futures[partition.topic_partition]
        try:
            while size := future.copy_some(partition.log):
                await self._throttle(size)
            await self._logs.flush_log(future.log)
            partition.use(self._logs.finish_move(partition.log))
        except (KafkaError, OSError) as error:
            _log.error("The move of %s to %s failed: %s", partition, future.target_dir, error)
            self._running.pop(partition, None)
            self._logs.stop_move(partition.topic_partition)
            return
        self._running.pop(partition, None)
        _log.info("Moved %s to %s", partition, partition.log.dir)
        self._assignments.submit(partition.topic_id_partition, self._logs.directory_id(partition.log))
        await self._logs.checkpoints.write_all()
