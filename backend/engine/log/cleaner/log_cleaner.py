"""The log cleaner of a broker: chooses the dirtiest compacted log, drives its cleaning, puts the results in place.

`LogCleaner` and `LogCleanerManager` of Kafka. Choosing and swapping happen on the loop, so that appends, reads,
retention, truncation and deletion never see half a change; reading and copying happen on worker threads, a buffer at a
time (`cleaner`). A log that is truncated, deleted or goes offline meanwhile ends its cleaning; what cannot be cleaned
is reported once, left alone until the next start, and counted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from backend.engine.log.cleaner.batch_filter import LastRecord
from backend.engine.log.cleaner.cleanable_logs import Cleanable, GroupedSegment, LogFacts, SegmentFacts, cleanable
from backend.engine.log.cleaner.cleaner import Cleaned, Cleaner, CleanerStats, CleaningJob, CleaningStep, Done, Moved
from backend.engine.log.log_config import INT64_MAX, CleanerConfig
from backend.engine.log.segments.log_segment import LogSegment
from backend.engine.log.segments.transaction_index import AbortedTxn
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import Ports, tasks
from backend.protocol.errors import KafkaError
from backend.tiering.ids import TopicPartition

# Logs looked at before other tasks get a turn.
LOGS_PER_TURN: Final = 50
# A step of one I/O buffer takes some tens of milliseconds; one that waited for the disk needs no pause as long.
PAUSE_MS_MAX: Final = 100.0

_log = logging.getLogger(__name__)


class LogCleaner:
    """Use: `start`, `reconfigure` at any time, `stop`. `checkpoint` stores the cleaned offsets of a log's directory."""

    def __init__(
        self,
        ports: Ports,
        config: CleanerConfig,
        logs: Callable[[], Iterable[UnifiedLog]],
        checkpoint: Callable[[UnifiedLog], Awaitable[None]],
    ) -> None:
        self._ports = ports
        self._logs = logs
        self._checkpoint = checkpoint
        self._running: dict[int, tasks.Task[None]] = {}
        self._changed = tasks.Event()
        self._io_free_ms = 0.0
        self.config = config
        # Logs that cannot be cleaned, with the reason; and how many bytes they have.
        self.uncleanable: dict[TopicPartition, str] = {}
        self.uncleanable_bytes: dict[TopicPartition, int] = {}
        # For the metrics: of each thread's last cleaning, of the last choice, and when that was.
        self.last_stats: dict[int, CleanerStats] = {}
        self.dirtiest_ratio = 0.0
        self.overdue_ms_max = 0
        self.last_run_ms = ports.clock.time_ms()

    # --- life

    def start(self) -> None:
        """Begins to clean, unless the cleaner is switched off."""
        if self.config.enabled:
            for number in range(self.config.threads):
                if number not in self._running:
                    self._running[number] = tasks.spawn(self._run(number), name=f"log cleaner {number}")

    def reconfigure(self, config: CleanerConfig) -> None:
        """Takes over new settings; what is being cleaned goes on with the old ones, except for the rate."""
        if config != self.config:
            self.config = config
            self._changed.set()
            if self._running:
                self.start()

    async def stop(self) -> None:
        """Ends what is being cleaned; finished segments stay, unfinished ones go."""
        for task in list(self._running.values()):
            await tasks.cancel(task)
        self._running.clear()

    @property
    def dead_threads(self) -> int:
        """Cleaners that ended by an error of our own."""
        return sum(1 for task in list(self._running.values()) if task.done())

    async def _run(self, number: int) -> None:
        while number < self.config.threads:
            self._changed.clear()
            if not await self.clean_dirtiest(number):
                with suppress(tasks.Timeout):
                    await tasks.wait_for(self._changed.wait(), self.config.backoff_ms)
        self._running.pop(number, None)
        self.last_stats.pop(number, None)

    # --- choosing

    async def clean_dirtiest(self, number: int = 0) -> bool:
        """Cleans the log that needs it most, then deletes old segments of compacted logs; False when none was due."""
        compacted = [log for log in self._logs() if log.config.is_compacted]
        chosen = self._choose(compacted)
        if chosen is not None:
            log, part = chosen
            log.cleaning.under_way = True
            try:
                await self._clean(number, log, part)
            finally:
                log.cleaning.under_way = False
        await self._delete_old_segments(compacted)
        return chosen is not None

    def _choose(self, logs: Iterable[UnifiedLog]) -> tuple[UnifiedLog, Cleanable] | None:
        now_ms = self.last_run_ms = self._ports.clock.time_ms()
        compacted = {log.topic_partition: log for log in logs}
        for partition in self.uncleanable.keys() - compacted.keys():
            del self.uncleanable[partition]
            self.uncleanable_bytes.pop(partition, None)
        candidates: list[tuple[UnifiedLog, Cleanable]] = []
        for partition, log in compacted.items():
            if log.cleaning.under_way or log.cleaning.paused or len(log.segments) < 2:
                continue
            try:
                part = self.cleanable(log, now_ms)
            except (OSError, KafkaError) as error:
                self._give_up(log, str(error))
                continue
            if partition in self.uncleanable:
                self.uncleanable_bytes[partition] = part.cleanable_bytes
            elif part.clean_bytes + part.cleanable_bytes > 0:
                candidates.append((log, part))
        self.dirtiest_ratio = max((part.ratio for _, part in candidates), default=0.0)
        self.overdue_ms_max = max((part.overdue_ms for _, part in candidates), default=0)
        due = [(log, part) for log, part in candidates if part.cleanable_bytes > 0 and part.is_due(log.config)]
        return max(due, key=lambda candidate: candidate[1].ratio, default=None)

    def cleanable(self, log: UnifiedLog, now_ms: int) -> Cleanable:
        """Returns the part of a log that could be cleaned now."""
        config = log.config
        largest, first = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms < INT64_MAX
        from_offset = log.cleaning.checkpoint or 0

        def facts(segment: LogSegment) -> SegmentFacts:
            dirty = segment.next_offset > from_offset
            return SegmentFacts(
                segment.base_offset,
                segment.size_bytes,
                segment.largest_timestamp if largest and dirty else None,
                segment.first_batch_timestamp if first and dirty else None,
            )

        return cleanable(
            LogFacts(
                log.log_start_offset,
                log.log_end_offset,
                log.last_stable_offset,
                log.cleaning.checkpoint,
                tuple(facts(segment) for segment in log.segments),
            ),
            config,
            now_ms=now_ms,
        )

    async def _delete_old_segments(self, compacted: Sequence[UnifiedLog]) -> None:
        now_ms = self._ports.clock.time_ms()
        for count, log in enumerate(compacted, 1):
            if count % LOGS_PER_TURN == 0:
                await tasks.sleep_ms(0)
            # One may have gone offline or been deleted while another was cleaned.
            if not log.cleaning.under_way and not log.cleaning.paused and log.offline_reason is None:
                try:
                    log.delete_old_segments(now_ms)
                except KafkaError as error:
                    _log.error("Retention of %s failed: %s", log, error.message)

    def _give_up(self, log: UnifiedLog, reason: str) -> None:
        partition = log.topic_partition
        if partition in self.uncleanable:
            return
        self.uncleanable[partition] = reason
        _log.error("Partition %s cannot be compacted and will not be until the next start: %s", partition, reason)

    # --- cleaning

    async def _clean(self, number: int, log: UnifiedLog, part: Cleanable) -> None:
        config = self.config
        cleaner = Cleaner(
            self._ports.disk,
            dedupe_buffer_bytes=config.dedupe_buffer_bytes // max(1, config.threads),
            load_factor=config.load_factor,
            io_buffer_bytes=config.io_buffer_bytes // max(1, config.threads) // 2,
        )
        began_ms = self._ports.clock.time_ms()
        truncations = log.truncations
        try:
            steps = cleaner.steps(self._work(log, part, began_ms))
            try:
                end = await self._drive(log, steps, truncations)
            finally:
                await tasks.shield(self._ports.workers.run(steps.close))
        except OSError as error:
            if not _is_over(log, truncations):
                _log.warning("Cleaning of %s will be tried again: %s", log, error)
                await tasks.sleep_ms(self.config.backoff_ms)
            return
        except Exception as error:  # whatever one log's bytes cause must not end the cleaning of the others
            if not _is_over(log, truncations):
                self._give_up(log, str(error) or type(error).__name__)
            return
        cleaner.stats.elapsed_ms = self._ports.clock.time_ms() - began_ms
        self.last_stats[number] = cleaner.stats
        if end is not None:
            await self._cleaned_up_to(log, part, end, cleaner.stats)

    async def _cleaned_up_to(self, log: UnifiedLog, part: Cleanable, end: int, stats: CleanerStats) -> None:
        log.cleaning.checkpoint = end
        await self._checkpoint(log)
        records = stats.records
        _log.info(
            "Compacted %s, dirty from offset %d to %d: %d bytes became %d, %d records became %d, in %d ms",
            log, part.first_dirty, end, stats.bytes_read, stats.bytes_written, records.records_read,
            records.records_kept, stats.elapsed_ms,
        )  # fmt: skip
        if records.records_without_key:
            _log.warning("Compaction of %s dropped %d records without a key", log, records.records_without_key)

    def _work(self, log: UnifiedLog, part: Cleanable, now_ms: int) -> CleaningJob:
        segments = list(log.segments)
        sources: list[GroupedSegment] = []
        later: list[AbortedTxn] = []
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            if segment.base_offset >= part.first_uncleanable or following is None:
                later.extend(t for t in segment.aborted_transactions if t.first_offset < part.first_uncleanable)
            else:
                sizes = segment.files.index_sizes
                sources.append(GroupedSegment(segment.base_offset, following.base_offset, segment.size_bytes, *sizes))
        last_records = {
            entry.producer_id: LastRecord(entry.last_data_offset, entry.epoch) for entry in log.producer_state.producers
        }
        return CleaningJob(
            dir=log.dir,
            config=log.config,
            segments=tuple(sources),
            first_dirty=part.first_dirty,
            first_uncleanable=part.first_uncleanable,
            later_aborted=tuple(later),
            last_records=last_records,
            now_ms=now_ms,
        )

    async def _drive(self, log: UnifiedLog, steps: Generator[CleaningStep], truncations: int) -> int | None:
        """Carries out all steps; the offset below which the log is clean, None when the log changed too much."""
        clock = self._ports.clock
        while True:
            began_ms = clock.monotonic_ms()
            step = await self._next(steps)
            # A step keeps the interpreter from the loop, which gets as much time before the next one.
            await tasks.sleep_ms(min(clock.monotonic_ms() - began_ms, PAUSE_MS_MAX))
            if isinstance(step, Cleaned):
                if not self._swap_in(log, step, truncations):
                    return None
            elif _is_over(log, truncations):
                return None
            elif isinstance(step, Done):
                return step.end_offset
            elif isinstance(step, Moved):
                await self._throttle(step.size_bytes)
            else:
                return None

    async def _next(self, steps: Generator[CleaningStep]) -> CleaningStep | None:
        """The next step. A cancellation waits for it: an iterator that is at work cannot be closed."""
        running = tasks.start(self._ports.workers.run(partial(next, steps, None)), name="step of a log cleaner")
        try:
            return await tasks.shield(running)
        except tasks.Cancelled:
            await tasks.gather_settled([running])
            raise

    def _swap_in(self, log: UnifiedLog, done: Cleaned, truncations: int) -> bool:
        bases = set(done.bases)
        old = [segment for segment in log.segments if segment.base_offset in bases]
        if _is_over(log, truncations) or len(old) != len(bases) or not all(segment.sealed for segment in old):
            return False
        log.cleaning.replace_segments(old, done.segment)
        return True

    async def _throttle(self, size_bytes: int) -> None:
        """Waits until what all cleaners moved keeps to the rate."""
        now_ms = self._ports.clock.time_ms()
        cost_ms = 1000.0 * size_bytes / self.config.io_bytes_per_second_max
        self._io_free_ms = max(self._io_free_ms, now_ms) + cost_ms
        if self._io_free_ms - now_ms >= 1:
            await tasks.sleep_ms(self._io_free_ms - now_ms)


def _is_over(log: UnifiedLog, truncations: int) -> bool:
    """Whether the log that is being cleaned was truncated, deleted, taken offline, or is to be left alone."""
    return log.offline_reason is not None or log.truncations != truncations or log.cleaning.paused
