"""All partition logs of one broker: opening, creating, deleting, and the work in the background (`LogManager` of
Kafka).

Use: `directories.open_dirs` → `await load_all` → `start` … `await shutdown`. A partition that cannot be opened, or
breaks later, is offline with a reason; the others go on. Periodic fsync, checkpoints, removal of files and recovery run
on worker threads, everything else on the loop's thread: appends and local reads, which go through the page cache, and
the creation of empty logs. A flush that `flush.messages` asks for is part of its append.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final

from backend.engine.log.changed_logs import ChangedLogs
from backend.engine.log.cleaner.log_cleaner import LogCleaner
from backend.engine.log.file_names import dir_name
from backend.engine.log.log_config import LogConfig, LogManagerConfig
from backend.engine.log.log_errors import FULL_ERRNOS, CorruptLog
from backend.engine.log.manager.directory_set import LogDirectories
from backend.engine.log.manager.future_log import FutureLog
from backend.engine.log.manager.housekeeping import INTERVAL_MS, Housekeeping, retention_interval_ms
from backend.engine.log.manager.log_directory import LogDirectory, probe_dir, write_topic_id
from backend.engine.log.manager.log_opening import LogFolder, find_folders, in_jobs, open_found
from backend.engine.log.manager.offset_checkpoints import LogCheckpoints
from backend.engine.log.manager.stray_replicas import set_aside
from backend.engine.log.recovery.log_loader import LoadOptions, open_log
from backend.engine.log.unified_log import LogListener, UnifiedLog
from backend.engine.ports import Ports, tasks
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import ZERO_UUID, TopicIdPartition, TopicPartition

# num.recovery.threads.per.data.dir of Kafka 4.3.
RECOVERIES_AT_ONCE: Final = 2

_log = logging.getLogger(__name__)


class LogManager:
    """The logs of one broker, in its `directories`."""

    def __init__(
        self,
        ports: Ports,
        config: LogManagerConfig,
        log_dirs: Sequence[str],
        *,
        on_all_dirs_failed: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`on_all_dirs_failed` is called with the reason once no directory is left."""
        self._ports = ports
        self.config = config
        self.directories = LogDirectories(ports, log_dirs)
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        # Partitions that cannot be used: reason and folder.
        self._offline: dict[TopicPartition, tuple[str, str]] = {}
        # Logs that have gone offline after they were opened, or whose log start was raised.
        self.changed_logs = ChangedLogs()
        self._on_all_dirs_failed = on_all_dirs_failed
        self._tasks: list[tasks.Task[None]] = []
        # Logs are closed on worker threads: failures there are written to the broker's log, and that is all.
        self._ending = False
        # Copies on their way to another directory; and where a partition is to be (again) moved, or created.
        self.futures: dict[TopicPartition, FutureLog] = {}
        self.preferred_dirs: dict[TopicPartition, str] = {}
        self.checkpoints = LogCheckpoints(self.directories, self, ports.workers)
        self.housekeeping = Housekeeping(ports, lambda: self.all_logs, compacts=config.cleaner.enabled)
        self.cleaner = LogCleaner(ports, config.cleaner, lambda: self.all_logs, self.checkpoints.write_cleaned)
        self._listener = LogListener(
            on_offline=self._on_offline,
            on_log_start=self._on_log_start,
            on_high_watermark=self.checkpoints.high_watermark_moved,
            on_work=self._on_work,
        )

    # --- opening

    async def load_all(
        self,
        config_of: Callable[[str], LogConfig] | None = None,
        directory_of: Callable[[TopicPartition], bytes | None] = lambda _: None,
        has_others: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> None:
        """Opens every log found. `config_of` gives a topic's settings; the broker's defaults without it. `directory_of`
        gives the id of the directory where the controller has a partition's replica, as far as it knows; `has_others`
        whether it has further replicas: then one that lacks records is offline and not shortened.
        """
        folders = find_folders(self._ports, self.directories.dirs, directory_of, has_others)
        for folder in folders.pending_delete:
            self.housekeeping.remove_folder(folder)
        self.preferred_dirs.update(folders.moving)
        for partition, folder, reason in folders.missing:
            self._set_offline(partition, folder, reason)
        jobs = in_jobs(folders.logs)
        await tasks.gather(self._load(jobs, config_of) for _ in range(RECOVERIES_AT_ONCE))
        for log_dir in self.directories.dirs:
            log_dir.forget_clean_shutdown()
        _log.info("Loaded %d partition logs, %d are offline", len(self._logs), len(self._offline))

    async def _load(self, jobs: Iterator[list[LogFolder]], config_of: Callable[[str], LogConfig] | None) -> None:
        """Opens the logs of one job after the other; several workers share the iterator."""
        for job in jobs:
            configs = [
                self.config.default_log if config_of is None else config_of(log_folder.partition.topic)
                for log_folder in job
            ]
            work = partial(open_found, self._ports, job, configs, self.config, self._listener)
            for log_folder, outcome in zip(job, await self._ports.workers.run(work), strict=True):
                self._opened(log_folder, outcome)

    def _opened(self, log_folder: LogFolder, outcome: UnifiedLog | CorruptLog | OSError) -> None:
        log_dir, partition, folder, _ = log_folder
        if isinstance(outcome, CorruptLog):
            self._set_offline(partition, folder, outcome.message)
        elif isinstance(outcome, OSError):
            self._set_offline(partition, folder, f"{folder} cannot be read: {outcome}")
        else:
            # Records that retention has deleted were committed, also when the checkpoint is older.
            checkpoint = log_dir.checkpoints.high_watermark.get(partition, 0)
            outcome.update_high_watermark(max(checkpoint, outcome.local_log_start_offset))
            outcome.cleaning.checkpoint = log_dir.checkpoints.cleaner.get(partition)
            self._adopt(outcome)

    # --- moving to another directory

    def start_move(self, log: UnifiedLog, target: LogDirectory) -> FutureLog:
        """Begins a copy in another directory, in place of one that is under way elsewhere. Raises OSError."""
        partition = log.topic_partition
        self.stop_move(partition)
        expiration_ms = self.config.producer_id_expiration_ms
        future = FutureLog(
            self._ports, log, target.path, producer_id_expiration_ms=expiration_ms, listener=self._listener
        )
        self.futures[partition] = future
        # A cleaning would make the copy miss what it has passed already.
        log.cleaning.paused = True
        return future

    def stop_move(self, partition: TopicPartition) -> None:
        """Gives up a move that is under way; nothing happens when there is none."""
        future = self.futures.pop(partition, None)
        if future is not None:
            self.housekeeping.remove_folder(future.abandon())
            log = self._logs.get(partition)
            if log is not None:
                log.cleaning.paused = False

    def finish_move(self, current: UnifiedLog) -> UnifiedLog:
        """The copy, complete by now, takes the place of the current log. Raises OSError and KafkaError."""
        partition = current.topic_id_partition.topic_partition
        future = self.futures[partition]
        future.finish(current)
        del self.futures[partition]
        due_ms = self._ports.clock.time_ms() + current.config.file_delete_delay_ms
        self.housekeeping.remove_folder(current.folder.rename_for_delete(), due_ms)
        future.remove_marker()
        self._adopt(future.log)
        return future.log

    async def flush_log(self, log: UnifiedLog) -> None:
        """Everything appended so far reaches the device."""
        work = log.flusher.work()
        if work is not None:
            await self.housekeeping.flush(log, work)

    def _adopt(self, log: UnifiedLog) -> None:
        partition = log.topic_partition
        self._logs[partition] = log
        self.housekeeping.enqueue(log)
        self.checkpoints.high_watermark_moved()

    def _has(self, log: UnifiedLog) -> bool:
        """Whether the table has this log. Events of others (being opened, copied or given up) are ignored."""
        return self._logs.get(log.topic_partition) is log

    def _on_log_start(self, log: UnifiedLog) -> None:
        if self._has(log):
            self.changed_logs.add(log)

    def _on_work(self, log: UnifiedLog) -> None:
        if self._has(log):
            self.housekeeping.enqueue(log)

    def _on_offline(self, log: UnifiedLog, reason: str) -> None:
        if not self._has(log):
            return
        self._offline[log.topic_partition] = (reason, log.dir)
        self.checkpoints.high_watermark_moved()
        self.changed_logs.add(log)
        path = log.dir.rpartition("/")[0]
        if not self._ending and path not in self.directories.failed_dirs and path in self.directories.directory_ids:
            tasks.spawn(self._probe(path), name=f"probe of {path}")

    async def _probe(self, path: str) -> None:
        """One log broke: does its directory still work?"""
        try:
            await self._ports.workers.run(partial(probe_dir, self._ports.disk, path))
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                self.fail_dir(path, str(error))

    def fail_dir(self, path: str, reason: str) -> None:
        """A directory cannot be used any longer: every log in it goes offline (`ReplicaManager.handleLogDirFailure`).

        The broker goes on with the others; with none left it cannot.
        """
        if path in self.directories.failed_dirs:
            return
        self.directories.note_failure(path, reason)
        for log in self.all_logs:
            if log.dir.rpartition("/")[0] == path:
                log.mark_offline(f"its directory {path} failed: {reason}")
        if not self.directories.usable_dirs:
            self._on_all_dirs_failed(f"all log directories have failed, {path} last: {reason}")

    def _set_offline(self, partition: TopicPartition, folder: str, reason: str) -> None:
        self._offline[partition] = (reason, folder)
        _log.error("Partition %s is offline: %s", partition, reason)

    # --- logs

    def get(self, partition: TopicPartition) -> UnifiedLog | None:
        """The log of a partition; None when there is none here or it is offline."""
        log = self._logs.get(partition)
        return log if log is not None and log.offline_reason is None else None

    def offline_reason(self, partition: TopicPartition) -> str | None:
        """Why a partition's log cannot be used; None when it can, or does not exist."""
        offline = self._offline.get(partition)
        return None if offline is None else offline[0]

    def lies_in_failed_dir(self, partition: TopicPartition) -> bool:
        """Whether an offline partition's folder is in a directory that cannot be used."""
        offline = self._offline.get(partition)
        return offline is not None and offline[1].rpartition("/")[0] in self.directories.failed_dirs

    @property
    def offline_partitions(self) -> dict[TopicPartition, str]:
        """Partition → reason."""
        return {partition: reason for partition, (reason, _) in self._offline.items()}

    @property
    def all_logs(self) -> list[UnifiedLog]:
        """Usable logs."""
        return [log for log in self._logs.values() if log.offline_reason is None]

    def directory_id(self, log: UnifiedLog) -> bytes:
        """Id of the directory that the log lies in (KIP-858)."""
        return self.directories.directory_ids[log.dir.rpartition("/")[0]]

    def offline_in(self, log_dir: LogDirectory) -> dict[TopicPartition, str]:
        """Partitions of one directory that cannot be used, with their folders."""
        return {
            partition: folder
            for partition, (_, folder) in self._offline.items()
            if folder.rpartition("/")[0] == log_dir.path
        }

    def broken_logs_in(self, log_dir: LogDirectory) -> list[UnifiedLog]:
        """Logs of one directory that were open and went offline."""
        return [log for partition in self.offline_in(log_dir) if (log := self._logs.get(partition)) is not None]

    def logs_in(self, log_dir: LogDirectory) -> list[UnifiedLog]:
        """Usable logs of one directory."""
        # Most brokers have one, and thousands of logs in it.
        if len(self.directories.dirs) == 1:
            return self.all_logs
        return [log for log in self.all_logs if log.dir.rpartition("/")[0] == log_dir.path]

    def get_or_create(self, tip: TopicIdPartition, config: LogConfig) -> UnifiedLog:
        """The partition's log, created empty in the directory with the fewest partitions when there is none.

        Raises KAFKA_STORAGE_ERROR when it is offline or cannot be created, INCONSISTENT_TOPIC_ID when the folder holds
        another topic of the same name.
        """
        partition = tip.topic_partition
        reason = self.offline_reason(partition)
        if reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {partition} is offline: {reason}")
        log = self._logs.get(partition)
        try:
            if log is None:
                return self._create(tip, config)
            if log.topic_id_partition.topic_id == ZERO_UUID:
                write_topic_id(self._ports.disk, log.dir, tip.topic_id)
                log.topic_id_partition = tip
                log.flusher.note_topic_id()
                self.housekeeping.enqueue(log)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {partition} cannot be created: {error}"
            ) from None
        if log.topic_id_partition.topic_id != tip.topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.dir} belongs to {log.topic_id_partition}, not {tip}; it must be deleted first",
            )
        log.config = config
        return log

    def _create(self, tip: TopicIdPartition, config: LogConfig) -> UnifiedLog:
        usable = self.directories.usable_dirs
        preferred = self.preferred_dirs.pop(tip.topic_partition, None)
        if any(usable_dir.path == preferred for usable_dir in usable):
            usable = [usable_dir for usable_dir in usable if usable_dir.path == preferred]
        if not usable:
            raise OSError("no log directory is left that works")
        log_dir = usable[0] if len(usable) == 1 else min(usable, key=lambda usable_dir: len(self.logs_in(usable_dir)))
        folder = f"{log_dir.path}/{dir_name(tip.topic_partition)}"
        options = LoadOptions(
            clean_shutdown=True,
            remote_system_enabled=self.config.remote_system_enabled,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
        )
        disk = self._ports.disk
        disk.make_dirs(folder)
        try:
            write_topic_id(disk, folder, tip.topic_id)
            now_ms = self._ports.clock.time_ms()
            log = open_log(
                disk, self._ports.random, folder, tip, config, options, now_ms=now_ms, listener=self._listener
            )
        except OSError:
            # The next attempt may choose another directory, and a partition that lies in two lets no broker start.
            with contextlib.suppress(OSError):
                disk.remove_tree(folder)
            raise
        # An fsync would hold the loop, a thousand of them for seconds. As in Kafka it follows in the background.
        log.flusher.note_topic_id()
        self.housekeeping.note_creation()
        self._adopt(log)
        return log

    def async_delete(self, partition: TopicPartition) -> None:
        """Forgets a partition at once and removes its folder after `file.delete.delay.ms`.

        Nothing happens when there is none.
        """
        self.stop_move(partition)
        self.preferred_dirs.pop(partition, None)
        log = self._logs.pop(partition, None)
        offline = self._offline.pop(partition, None)
        self.housekeeping.forget(partition)
        self.checkpoints.high_watermark_moved()
        now_ms = self._ports.clock.time_ms()
        try:
            if log is not None:
                folder = log.folder.rename_for_delete()
                self.housekeeping.remove_folder(folder, now_ms + log.config.file_delete_delay_ms)
            elif offline is not None:
                self.housekeeping.remove_folder(offline[1])
        except OSError as error:
            _log.error("The folder of the deleted partition %s could not be renamed: %s", partition, error)

    def set_aside(self, partition: TopicPartition, reason: str) -> str | None:
        """Forgets a partition and keeps its folder as `…-stray` (`LogManager.addStrayLog`); where, None without one.

        Raises KAFKA_STORAGE_ERROR when the folder cannot be renamed: it stays as it is then, and offline.
        """
        self.stop_move(partition)
        log, offline = self._logs.get(partition), self._offline.get(partition)
        disk, now_ms = self._ports.disk, self._ports.clock.time_ms()
        try:
            if log is not None:
                kept = log.folder.set_aside(reason, now_ms)
            elif offline is not None and not disk.exists(offline[1]):
                kept = ""
            elif offline is not None:
                kept = set_aside(disk, offline[1], partition, self._ports.random.uuid(), reason, now_ms)
            else:
                return None
        except OSError as error:
            message = f"{partition} cannot be set aside: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        self._logs.pop(partition, None)
        self._offline.pop(partition, None)
        self.housekeeping.forget(partition)
        self.checkpoints.high_watermark_moved()
        if kept:
            _log.warning("The replica of %s is kept as %s: %s", partition, kept, reason)
        return kept

    # --- background work

    def start(self) -> None:
        """Begins retention, compaction, flushes, checkpoints and removals."""
        config, checkpoints, housekeeping = self.config, self.checkpoints, self.housekeeping
        self.cleaner.start()
        self._every(
            "retention",
            lambda: retention_interval_ms(config.retention_check_interval_ms, len(self._logs)),
            housekeeping.apply_retention,
            delay_ms=config.initial_task_delay_ms,
        )
        for name, interval_ms, job in (
            ("housekeeping", INTERVAL_MS, housekeeping.work),
            ("recovery points", config.recovery_point_checkpoint_interval_ms, checkpoints.write_recovery_points),
            ("log starts", config.log_start_checkpoint_interval_ms, checkpoints.write_log_starts),
            ("high watermarks", config.high_watermark_checkpoint_interval_ms, checkpoints.write_high_watermarks),
        ):
            self._every(name, partial(int, interval_ms), job, delay_ms=interval_ms)

    def _every(
        self, name: str, interval_ms: Callable[[], int], job: Callable[[], Awaitable[None]], *, delay_ms: int
    ) -> None:
        self._tasks.append(tasks.spawn(self._repeat(name, delay_ms, interval_ms, job), name=f"log manager: {name}"))

    async def _repeat(
        self, name: str, delay_ms: int, interval_ms: Callable[[], int], job: Callable[[], Awaitable[None]]
    ) -> None:
        await tasks.sleep_ms(delay_ms)
        while True:
            try:
                await job()
            except OSError as error:
                _log.error(
                    "Log manager could not complete %s and will try again in %d ms: %s", name, interval_ms(), error
                )
            await tasks.sleep_ms(interval_ms())

    # --- end

    async def shutdown(self, broker_epoch: int = -1) -> None:
        """Closes every log, writes the checkpoints and, when all went well, the clean-shutdown markers.

        Unlocks the directories.
        """
        self._ending = True
        await self.cleaner.stop()
        for future in self.futures.values():
            future.log.close_files()
        for task in self._tasks:
            await tasks.cancel(task)
        self._tasks.clear()
        results = await tasks.gather_settled(self._ports.workers.run(log.close) for log in self.all_logs)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            _log.error("A log was not closed cleanly, and will be recovered at the next start: %s", failure)
        await self.checkpoints.write_all()
        if not failures:
            for log_dir in self.directories.usable_dirs:
                await self._ports.workers.run(partial(log_dir.write_clean_shutdown, broker_epoch))
        self.directories.unlock()

    def abandon(self) -> None:
        """Lets go of everything without writing, as a killed process would.

        For tests and for a broker that must not go on.
        """
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        for log in (*self._logs.values(), *(future.log for future in self.futures.values())):
            log.close_files()
        self.directories.unlock()
