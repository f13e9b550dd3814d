"""The offset checkpoints of a broker's log directories, written on worker threads (`LogManager` of Kafka)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Protocol

from backend.engine.log.file_names import CLEANER_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from backend.engine.log.log_errors import FULL_ERRNOS
from backend.engine.log.manager.directory_set import LogDirectories
from backend.engine.log.manager.log_directory import LogDirectory
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import Workers, tasks
from backend.tiering.ids import TopicPartition

OffsetsOf = Callable[[Iterable[UnifiedLog]], dict[TopicPartition, int]]


class LogsByDirectory(Protocol):
    """The logs that lie in the directories; `LogManager` is it."""

    def logs_in(self, log_dir: LogDirectory) -> list[UnifiedLog]: ...

    def offline_in(self, log_dir: LogDirectory) -> Collection[TopicPartition]: ...

    def broken_logs_in(self, log_dir: LogDirectory) -> list[UnifiedLog]:
        """The offline logs of a directory that had been open."""
        ...

    def fail_dir(self, path: str, reason: str) -> None:
        """The directory cannot be used any longer."""
        ...


class LogCheckpoints:
    """A full disk is an OSError, tried again later; any other failure is one of the directory."""

    def __init__(self, directories: LogDirectories, logs: LogsByDirectory, workers: Workers) -> None:
        self._directories = directories
        self._logs = logs
        self._workers = workers
        # Cleanings and moves may finish while the clock asks for a checkpoint, and each is one file.
        self._writing = tasks.Lock()
        self._high_watermarks_moved = True

    def high_watermark_moved(self) -> None:
        """One of the logs has another, or there are other logs."""
        self._high_watermarks_moved = True

    async def write_all(self) -> None:
        """Writes all four."""
        await self.write_recovery_points()
        await self.write_log_starts()
        # Also while the clock's own turn is writing them: who asks goes on once they are on the disk.
        self._high_watermarks_moved = True
        await self.write_high_watermarks()

    async def write_recovery_points(self) -> None:
        """`recovery-point-offset-checkpoint` and `cleaner-offset-checkpoint` of every directory."""
        await self._write(RECOVERY_POINT_FILE, lambda logs: {log.topic_partition: log.recovery_point for log in logs})
        for log_dir in self._directories.usable_dirs:
            await self._write_cleaned_in(log_dir)

    async def write_cleaned(self, log: UnifiedLog) -> None:
        """`cleaner-offset-checkpoint` of the directory that the log lies in."""
        path = log.dir.rpartition("/")[0]
        for log_dir in self._directories.usable_dirs:
            if log_dir.path == path:
                await self._write_cleaned_in(log_dir)

    async def _write_cleaned_in(self, log_dir: LogDirectory) -> None:
        await self._write_in(
            log_dir,
            CLEANER_FILE,
            lambda logs: {
                log.topic_partition: log.cleaning.checkpoint for log in logs if log.cleaning.checkpoint is not None
            },
        )

    async def write_high_watermarks(self) -> None:
        """`replication-offset-checkpoint` of every directory, if any moved: it is asked every few seconds."""
        if not self._high_watermarks_moved:
            return
        self._high_watermarks_moved, written = False, False
        try:
            await self._write(HIGH_WATERMARK_FILE, _high_watermarks)
            written = True
        finally:
            self._high_watermarks_moved = self._high_watermarks_moved or not written

    async def write_log_starts(self) -> None:
        """`log-start-offset-checkpoint`: tiered partitions always, others when log start is past the first segment's
        base.
        """
        await self._write(
            LOG_START_FILE,
            lambda logs: {
                log.topic_partition: log.log_start_offset
                for log in logs
                if log.remote_enabled or log.log_start_offset > log.segments.first_base_offset
            },
        )

    async def _write(self, name: str, offsets: OffsetsOf) -> None:
        for log_dir in self._directories.usable_dirs:
            await self._write_in(log_dir, name, offsets)

    async def _write_in(self, log_dir: LogDirectory, name: str, offsets: OffsetsOf) -> None:
        async with self._writing:
            try:
                last = log_dir.last_offsets(name)
                # An offline log keeps its checkpoint: at the next start it may look whole, and would lead with less.
                checkpoint = {
                    partition: last[partition] for partition in self._logs.offline_in(log_dir) if partition in last
                }
                checkpoint |= offsets(self._logs.broken_logs_in(log_dir))
                checkpoint |= offsets(self._logs.logs_in(log_dir))
                await self._workers.run(partial(log_dir.write_offsets, name, checkpoint))
            except OSError as error:
                if error.errno in FULL_ERRNOS:
                    raise
                self._logs.fail_dir(log_dir.path, f"its {name} could not be written: {error}")


def _high_watermarks(logs: Iterable[UnifiedLog]) -> dict[TopicPartition, int]:
    return {log.topic_partition: log.high_watermark for log in logs}
