"""Deferred work of a broker's logs: retention, flushes of sealed segments and of old records, removal of files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from backend.engine.log.local_log import FlushWork, sync_files
from backend.engine.log.log_config import INT64_MAX
from backend.engine.log.log_errors import CorruptLog, DamagedIndex
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import Ports, tasks
from backend.protocol.errors import KafkaError
from backend.protocol.record_batches.record_validation import columns_requested, load_columns
from backend.tiering.ids import TopicPartition

# Delay before a roll's flush, the sync of a new log's topic id and the removal of files that are due.
INTERVAL_MS: Final = 1000
# Logs looked at before other tasks get a turn: a pass over one takes some tens of microseconds.
LOGS_PER_TURN: Final = 50
# A pass of retention takes some 5 µs for a log that it leaves as it is: where thousands are, passes come less often,
# so that they take 0.04 % of a core. Never less often than Kafka's own default, from 25,000 logs on. The 200 logs of a
# broker of the embedded cluster have theirs each second, as set there, for 0.1 %.
RETENTION_LOGS_FREE, RETENTION_MS_PER_LOG = 200, 12
RETENTION_INTERVAL_MS_MAX: Final = 300_000

_log = logging.getLogger(__name__)


def retention_interval_ms(set_ms: int, logs: int) -> int:
    """Between two passes of retention: what is set, or more where there are more logs than fit."""
    beyond = max(0, logs - RETENTION_LOGS_FREE)
    return max(set_ms, min(beyond * RETENTION_MS_PER_LOG, RETENTION_INTERVAL_MS_MAX))


class Housekeeping:
    """Syncs and removals run on worker threads."""

    def __init__(self, ports: Ports, all_logs: Callable[[], Sequence[UnifiedLog]], *, compacts: bool = True) -> None:
        """`compacts`: whether there is a log cleaner."""
        self._ports = ports
        self._all_logs = all_logs
        # Logs that may have work: thousands have none.
        self.with_work: dict[UnifiedLog, None] = {}
        self._compacts = compacts
        # Files and folders to remove: (due, path, whether a folder), in no order.
        self._pending_delete: list[tuple[int, str, bool]] = []
        self._flushed_ms: dict[TopicPartition, int] = {}
        # Whether logs were created since the last turn.
        self._creating = False

    def remove_folder(self, path: str, due_ms: int = 0) -> None:
        """Removes a folder once that time has come."""
        self._pending_delete.append((due_ms, path, True))

    def note_creation(self) -> None:
        """A log has been created, whose topic id is to be synced."""
        self._creating = True

    def enqueue(self, log: UnifiedLog) -> None:
        """The next turn looks at this log: it is new here, or may have work now."""
        self.with_work[log] = None

    def forget(self, partition: TopicPartition) -> None:
        """The partition is no longer here."""
        self._flushed_ms.pop(partition, None)

    async def work(self) -> None:
        """Flushes sealed segments, topic ids of new logs, and logs whose `flush.ms` has passed.

        Then removes the files that are due, and makes large batches cheap to check once there was one.
        """
        now_ms = self._ports.clock.time_ms()
        # On the same device a sync makes creations wait, so a burst of them is over first.
        creating, self._creating = self._creating, False
        for count, log in enumerate(list(self.with_work), 1):
            if log.offline_reason is not None or not log.has_work:
                self.with_work.pop(log, None)
                continue
            await self._rebuild_indexes(log)
            paths = log.take_deleted_paths()
            self._pending_delete.extend((now_ms + log.config.file_delete_delay_ms, path, False) for path in paths)
            work = self._flush_due(log, now_ms) or (None if creating else log.flusher.topic_id_work())
            if work is not None:
                await self.flush(log, work)
            if count % LOGS_PER_TURN == 0:
                await tasks.sleep_ms(0)
        await self._remove_due(now_ms)
        if columns_requested():
            await self._ports.workers.run(load_columns)

    async def _rebuild_indexes(self, log: UnifiedLog) -> None:
        """Makes damaged indexes again; the log goes offline when its records are what is damaged."""
        while (work := log.index_repair.next_work()) is not None:
            path = work.segment.files.log_path
            _log.warning("The indexes of %s are damaged and are made again from its records", path)
            try:
                await self._ports.workers.run(partial(log.index_repair.rebuild, work))
            except CorruptLog as error:
                log.mark_offline(error.message)
            except DamagedIndex as error:
                # One before it, whose records say what its producers had begun.
                log.health.note_damaged_index(error)
            except FileNotFoundError:
                # Gone with its segment meanwhile; what is still there is looked at in the next turn.
                return
            except OSError as error:
                _log.warning("The indexes of %s cannot be made again yet: %s", path, error)
                return
            else:
                log.index_repair.rebuilt(work)

    def _flush_due(self, log: UnifiedLog, now_ms: int) -> FlushWork | None:
        if log.config.flush_ms < INT64_MAX:
            partition = log.topic_partition
            since_ms = self._flushed_ms.setdefault(partition, now_ms)
            if now_ms - since_ms >= log.config.flush_ms:
                self._flushed_ms[partition] = now_ms
                return log.flusher.work()
        return log.flusher.sealed_work()

    async def flush(self, log: UnifiedLog, work: FlushWork) -> None:
        """Brings it to the device; the log goes offline when that fails."""
        try:
            await self._ports.workers.run(partial(sync_files, self._ports.disk, work))
        except OSError as error:
            if log.offline_reason is None:
                log.mark_offline(f"its files could not be flushed: {error}")
        else:
            log.flusher.done(work)

    async def _remove_due(self, now_ms: int) -> None:
        due = [(path, folder) for at_ms, path, folder in self._pending_delete if at_ms <= now_ms]
        if not due:
            return
        self._pending_delete = [item for item in self._pending_delete if item[0] > now_ms]
        disk = self._ports.disk

        def remove() -> None:
            for path, folder in due:
                (disk.remove_tree if folder else disk.remove)(path)

        await self._ports.workers.run(remove)

    async def apply_retention(self) -> None:
        """One pass of retention over every log, and of the expiration of silent producers.

        Compacted logs are left to the cleaner, unless it is switched off.
        """
        now_ms = self._ports.clock.time_ms()
        for count, log in enumerate(self._all_logs(), 1):
            try:
                cleaned = self._compacts and log.config.is_compacted
                # A log that was compacted a moment ago may still be at it.
                deleted = 0 if cleaned or log.cleaning.under_way else log.delete_old_segments(now_ms)
                log.producer_state.remove_expired(now_ms)
            except DamagedIndex:
                # The next pass finds it made again.
                continue
            except KafkaError as error:
                _log.error("Retention of %s failed: %s", log, error.message)
                continue
            if deleted:
                _log.info(
                    "Deleted %d local segments of %s; local start is %d", deleted, log, log.local_log_start_offset
                )
            if count % LOGS_PER_TURN == 0:
                await tasks.sleep_ms(0)
