"""Opening a partition's folder (`LogLoader` of Kafka).

After a clean stop only the end of the last segment is looked at. After an unclean one every segment at or past the
recovery point is scanned, batch by batch, and its indexes are rebuilt. Damage is treated by its kind:

- after an unclean stop, anything past the recovery point: truncated to the last valid batch, as these records may never
  have reached the device;
- records that had: `CorruptLog`, and the caller takes the replica offline, which is copied again from the others. Where
  there are none, the tail of the log (nothing valid behind it) is truncated.
- what is derived from the records (indexes, snapshots, leader epochs): made again.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from typing import Final

from backend.engine.log.checkpoint_files import MalformedCheckpoint, decode_epochs
from backend.engine.log.file_names import (
    CLEANED_SUFFIX,
    DAMAGED_EPOCH_FILE,
    DELETED_SUFFIX,
    LEADER_EPOCH_FILE,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    base_offset_of,
    file_name,
)
from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.log_config import DAY_MS, LogConfig, is_remote_enabled
from backend.engine.log.log_errors import CorruptLog
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.log.recovery.interrupted_swaps import finish_swaps
from backend.engine.log.recovery.segment_recovery import (
    Damage,
    DamagedFile,
    epochs_in_batches,
    rebuild_producer_state,
    recover_segment,
    valid_batches,
)
from backend.engine.log.segments.log_segment import BatchEntry, LogSegment
from backend.engine.log.segments.log_segments import LogSegments
from backend.engine.log.segments.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from backend.engine.log.segments.offset_index import OffsetIndex
from backend.engine.log.segments.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from backend.engine.log.segments.time_index import TimeIndex
from backend.engine.log.unified_log import IGNORE_EVENTS, LogListener, UnifiedLog
from backend.engine.ports.disk import Disk
from backend.engine.ports.random import Random
from backend.protocol.record_batches.record_batch import HEADER_BYTES, parse_header
from backend.tiering.ids import TopicIdPartition

_INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
_TEMPORARY_SUFFIXES: Final = (DELETED_SUFFIX, ".tmp", CLEANED_SUFFIX)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The facts about a log to open that the directory's checkpoints and the broker have."""

    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    clean_shutdown: bool = False
    # Whether other replicas have the records, so that nobody need do with a shortened log.
    has_others: bool = False
    remote_system_enabled: bool = False
    producer_id_expiration_ms: int = DAY_MS
    # Whether only the last segment may be torn by a power failure.
    flush_before_roll: bool = False


def open_log(
    disk: Disk,
    random: Random,
    log_dir: str,
    topic_id_partition: TopicIdPartition,
    config: LogConfig,
    options: LoadOptions | None = None,
    *,
    now_ms: int,
    listener: LogListener = IGNORE_EVENTS,
) -> UnifiedLog:
    """The log in a folder, which is created when missing. Blocking; any thread. Raises `CorruptLog` or OSError."""
    loader = _Loader(disk, random, log_dir, topic_id_partition, config, options or LoadOptions(), now_ms)
    return loader.load(listener)


class _Loader:
    def __init__(
        self,
        disk: Disk,
        random: Random,
        log_dir: str,
        topic_id_partition: TopicIdPartition,
        config: LogConfig,
        options: LoadOptions,
        now_ms: int,
    ) -> None:
        self.disk = disk
        self.random = random
        self.dir = log_dir
        self.tip = topic_id_partition
        self.config = config
        self.options = options
        self.now_ms = now_ms
        self.remote_enabled = options.remote_system_enabled and is_remote_enabled(topic_id_partition.topic, config)
        self.producers = self._new_producers()
        self.recovery_point = options.recovery_point
        self.scanned = False
        # Whether the leader epochs may begin later than the log does.
        self.epochs_lost = False

    def _new_producers(self) -> ProducerStateManager:
        return ProducerStateManager(self.disk, self.dir, expiration_ms=self.options.producer_id_expiration_ms)

    def load(self, listener: LogListener) -> UnifiedLog:
        names = self._tidy(self._names())
        epochs = self._load_epochs(names)
        segments = self._open_segments(names)
        self._recover(segments, epochs)
        # Recovery stores snapshots, too.
        self.producers.load_stored(self.disk.list_dir(self.dir) if self.scanned else names)
        self._complete_local_epochs(epochs, segments)
        log_start = self._log_start(epochs)
        self._check_length(segments, log_start)
        if segments and segments.active.next_offset < log_start:
            _log.warning("Partition %s: the log ends at %d, below its start %d, and starts afresh there",
                         self.tip.topic_partition, segments.active.next_offset, log_start)  # fmt: skip
            self._delete(segments, list(segments))
            epochs.clear()
            self.producers.truncate_fully(log_start)
        if not segments:
            segments.add(LogSegment.create(self.disk, self.dir, log_start))
        log_end = segments.active.next_offset
        epochs.truncate_from_end(log_end)
        if not self.remote_enabled:
            log_start = max(log_start, segments.first_base_offset)
            self._complete_epochs(epochs, segments, log_start, log_end)
        epochs.truncate_from_start(self.options.log_start_offset)
        self.producers.keep_only({segment.base_offset for segment in segments})
        rebuild_producer_state(self.producers, segments, log_end, log_start, now_ms=self.now_ms)
        return UnifiedLog(
            disk=self.disk,
            random=self.random,
            log_dir=self.dir,
            topic_id_partition=self.tip,
            config=self.config,
            segments=segments,
            leader_epochs=epochs,
            producer_state=self.producers,
            log_start_offset=log_start,
            recovery_point=min(self.recovery_point, log_end),
            remote_system_enabled=self.options.remote_system_enabled,
            epochs_lost=self.epochs_lost,
            flush_before_roll=self.options.flush_before_roll,
            listener=listener,
        )

    def _log_start(self, epochs: LeaderEpochCache) -> int:
        """The checkpointed one; where the epochs of a tiered log begin later, it had moved there since: nothing older
        can be read without an epoch.
        """
        first = epochs.earliest_entry
        if not self.remote_enabled or first is None or self.epochs_lost:
            return self.options.log_start_offset
        return max(self.options.log_start_offset, first[1])

    def _complete_epochs(self, epochs: LeaderEpochCache, segments: LogSegments, log_start: int, log_end: int) -> None:
        """Reads the first epochs from the batches where they are missing: a power failure lost them, or a kill lost the
        entry that the log start had moved to. A segment without epochs could never be tiered.
        """
        first = epochs.earliest_entry
        end = log_end if first is None else first[1]
        if log_start < end:
            epochs.prepend(epochs_in_batches(segments, log_start, end).entries)

    def _complete_local_epochs(self, epochs: LeaderEpochCache, segments: LogSegments) -> None:
        """Of a tiered log whose checkpoint was damaged, from its local records; the remote tier knows the others."""
        if self.remote_enabled and self.epochs_lost and segments:
            self._complete_epochs(epochs, segments, segments.first_base_offset, segments.active.next_offset)

    def _names(self) -> list[str]:
        try:
            return self.disk.list_dir(self.dir)
        except FileNotFoundError:
            self.disk.make_dirs(self.dir)
            return []

    def _tidy(self, names: list[str]) -> list[str]:
        """Removes what an interrupted run left: deleted and temporary files, indexes without a log."""
        kept: list[str] = []
        there = set(names)
        for name in finish_swaps(self.disk, self.dir, names):
            base = base_offset_of(name)
            orphan = name.endswith(_INDEX_SUFFIXES) and base is not None and file_name(base, LOG_SUFFIX) not in there
            if name.endswith(_TEMPORARY_SUFFIXES) or orphan:
                self.disk.remove(f"{self.dir}/{name}")
            else:
                kept.append(name)
        return kept

    def _load_epochs(self, names: list[str]) -> LeaderEpochCache:
        path = f"{self.dir}/{LEADER_EPOCH_FILE}"
        entries: list[tuple[int, int]] = []
        if LEADER_EPOCH_FILE in names:
            try:
                decoded = decode_epochs(self.disk.read(path))
                if any(epoch < 0 or start < 0 for epoch, start in decoded):
                    raise MalformedCheckpoint("the leader epoch checkpoint has an epoch or an offset below 0")
                entries = decoded
            except MalformedCheckpoint as error:
                _log.warning("%s: %s; the epochs are found in the records again", path, error)
                if self.remote_enabled:
                    self.disk.rename(path, f"{self.dir}/{DAMAGED_EPOCH_FILE}")
        self.epochs_lost = self.disk.exists(f"{self.dir}/{DAMAGED_EPOCH_FILE}")
        return LeaderEpochCache(entries, lambda data: self.disk.write_atomic(path, data, sync=False))

    def _open_segments(self, names: list[str]) -> LogSegments:
        bases: list[int] = []
        for name in names:
            if name.endswith(LOG_SUFFIX):
                base = base_offset_of(name)
                if base is None:
                    _log.warning("%s/%s is no segment: it has no offset in its name", self.dir, name)
                    continue
                bases.append(base)
        segments = [
            LogSegment.open_sealed(self.disk, self.dir, base, following)
            for base, following in itertools.pairwise(bases)
        ]
        if bases:
            segments.append(LogSegment.open_sealed(self.disk, self.dir, bases[-1], bases[-1]))
        return LogSegments(segments)

    # --- recovery

    def _recover(self, segments: LogSegments, epochs: LeaderEpochCache) -> None:
        if not segments:
            return
        unclean = set() if self.options.clean_shutdown else {
            s.base_offset for s in segments.from_offset(self.recovery_point)
        }  # fmt: skip
        for segment in list(segments):
            last = segment is segments.active
            if segment not in segments:
                return
            if segment.base_offset in unclean:
                damage = self._scan(segment, segments, epochs) or self._hole_behind(segment, segments)
            elif last:
                damage = None if self._restore_active(segment) else self._scan(segment, segments, epochs)
            elif not self._indexes_present(segment):
                damage = self._scan(segment, segments, epochs)
            else:
                continue
            if damage is not None:
                self._handle(damage, segment, segments)
            elif not last:
                segment.seal()

    def _indexes_present(self, segment: LogSegment) -> bool:
        for path, entry_bytes in (
            (segment.files.offset_index_path, OFFSET_ENTRY_BYTES),
            (segment.files.time_index_path, TIME_ENTRY_BYTES),
        ):
            try:
                if self.disk.size(path) % entry_bytes:
                    return False
            except FileNotFoundError:
                return False
        return True

    def _scan(self, segment: LogSegment, segments: LogSegments, epochs: LeaderEpochCache) -> Damage | None:
        """Recovers one segment and stores the producer snapshot at its end, which the next segment starts from."""
        self.scanned = True
        base = segment.base_offset
        producers = self._new_producers()
        producers.load_stored([n for n in self.disk.list_dir(self.dir) if (base_offset_of(n) or 0) <= base])
        before = LogSegments([s for s in segments if s.base_offset < base])
        start = min(self.options.log_start_offset, base)
        rebuild_producer_state(producers, before, base, start, now_ms=self.now_ms)
        damage = recover_segment(segment, producers, epochs, self.config, self.disk.size(segment.files.log_path))
        following = segments.starting_at_or_after(base + 1)
        if damage is None and following:
            producers.map_end_offset = following[0].base_offset
            producers.take_snapshot()
        return damage

    def _hole_behind(self, segment: LogSegment, segments: LogSegments) -> Damage | None:
        """A power cut may take the end of a segment that was not flushed and leave all of the next one.

        Only compaction leaves gaps between offsets otherwise.
        """
        following = segments.starting_at_or_after(segment.base_offset + 1)
        if not following or segment.next_offset >= following[0].base_offset or self.config.is_compacted:
            return None
        reason = (
            f"{segment.files.log_path} ends there, and the next segment begins at offset {following[0].base_offset}"
        )
        return Damage(segment.size_bytes, reason, valid_after=True)

    def _handle(self, damage: Damage, segment: LogSegment, segments: LogSegments) -> None:
        """Truncates at the damage, or raises when that would drop records known to be durable."""
        last = segment is segments.active
        if segment.next_offset < self._durable_end and (self.options.has_others or not last or damage.valid_after):
            raise CorruptLog(f"{damage.reason}, below offset {self._durable_end}, to which the disk had everything;"
                             f" {self._way_out}")  # fmt: skip
        _log.warning(
            "Partition %s is truncated to offset %d: %s", self.tip.topic_partition, segment.next_offset, damage.reason
        )
        segment.files.file.truncate(damage.position)
        self._delete(segments, segments.starting_at_or_after(segment.base_offset + 1))
        self.recovery_point = min(self.recovery_point, segment.next_offset)

    @property
    def _durable_end(self) -> int:
        """Records below had reached the device. The recovery point follows the log start without a sync: what lies
        below that is no loss. After a clean stop all had, and the high watermark says so where the other is lost. After
        a kill the recovery point of a follower may be older than a truncation, which was not below its high watermark.
        """
        options = self.options
        if options.clean_shutdown:
            end = max(options.recovery_point, options.high_watermark)
        elif options.has_others:
            end = min(options.recovery_point, options.high_watermark)
        else:
            end = options.recovery_point
        return end if end > options.log_start_offset else 0

    @property
    def _way_out(self) -> str:
        if self.options.has_others:
            return "it is copied again by itself once another replica leads"
        return "no other replica has these records: restore the file"

    def _check_length(self, segments: LogSegments, log_start: int) -> None:
        """A log that lacks its end must not lead where others have it. Raises `CorruptLog`."""
        end = max(segments.active.next_offset if segments else 0, log_start)
        if self.options.has_others and end < self._durable_end:
            raise CorruptLog(
                f"{self.dir} ends at offset {end}, and the disk had everything to {self._durable_end}; {self._way_out}"
            )

    def _delete(self, segments: LogSegments, pending_delete: list[LogSegment]) -> None:
        for segment in pending_delete:
            segments.remove(segment)
            for path in segment.files.rename_deleted():
                self.disk.remove(path)

    def _restore_active(self, segment: LogSegment) -> bool:
        """The last segment from its index files and the batches behind the last entry.

        False when it must be scanned whole.
        """
        size_bytes = self.disk.size(segment.files.log_path)
        if size_bytes == 0:
            segment.reset()
            return True
        try:
            offsets = OffsetIndex.decode(segment.base_offset, self.disk.read(segment.files.offset_index_path))
            times = TimeIndex.decode(segment.base_offset, self.disk.read(segment.files.time_index_path))
            position = offsets.last[1]
            if position >= size_bytes:
                return False
            first = parse_header(segment.files.pread(HEADER_BYTES, 0))
            segment.adopt(offsets, times, size_bytes=position, first_timestamp=first.max_timestamp)
            batches = [
                BatchEntry(header.last_offset, header.size_bytes, header.max_timestamp)
                for _, header, _ in valid_batches(segment, position, size_bytes, segment.base_offset)
            ]
        except (ValueError, FileNotFoundError, DamagedFile):
            return False
        # The index files end where Kafka's would: batches behind the last entry add none.
        segment.index_recovered(batches, index_interval_bytes=size_bytes)
        segment.start_appending()
        return True
