"""The state of one partition's log: its offsets, its settings, and whether its disk still works (see `unified_log`).

The offsets of a tiered log, and the ranges between them (KIP-405). "Pending upload" begins behind the highest remote
offset and is on local disks alone.

    log start          local start         highest remote     high watermark    log end
        |---------- remote only ------------|                       |              |
        |------------------- tiered ------------------|             |              |
                            |---------------------- local ------------------------|
                                                      |------ pending upload ------|
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.local_log import LocalLog
from backend.engine.log.log_config import LogConfig
from backend.engine.log.log_errors import CorruptLog, DamagedIndex, NoSpace, OffsetOutOfRange
from backend.engine.log.producers.producer_state_manager import ProducerStateManager
from backend.engine.log.segments.log_segment import LogSegment
from backend.engine.log.segments.log_segments import LogSegments
from backend.engine.log.topics import is_remote_enabled
from backend.engine.ports.disk import Disk
from backend.engine.ports.random import Random
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicIdPartition

NO_REMOTE_OFFSET: Final = -1
# Removed at once; a `.tmp` that a crash leaves is removed when the log is opened.
SPACE_PROBE_FILE: Final = "space.tmp"
# No space, no quota, or the process may not write files of that size.
FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_log = logging.getLogger(__name__)


def _ignore(*_: object) -> None:
    """Nobody follows the event."""


@dataclass(frozen=True, slots=True)
class LogListener:
    """The events of a log that its owner follows. Kafka: `LogOffsetsListener`; for failures `LogDirFailureChannel`.

    Called in the middle of the log's own change, and on a worker thread while a log is opened or closed there: a
    listener only notes the event.
    """

    on_offline: Callable[[LogState, str], None] = _ignore  # with the reason; at most once for each log
    on_log_start: Callable[[LogState], None] = _ignore  # the log start was raised
    on_high_watermark: Callable[[], None] = _ignore  # some log has another high watermark
    on_work: Callable[[LogState], None] = _ignore  # `has_work` may have become true; not for a new topic id


IGNORE_EVENTS: Final = LogListener()


class LogState:
    """Offsets, settings and health of one partition's log."""

    def __init__(
        self,
        *,
        disk: Disk,
        random: Random,
        log_dir: str,
        topic_id_partition: TopicIdPartition,
        config: LogConfig,
        segments: LogSegments,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        log_start_offset: int,
        recovery_point: int,
        remote_system_enabled: bool,
        epochs_lost: bool = False,
        listener: LogListener = IGNORE_EVENTS,
    ) -> None:
        self._disk = disk
        self._random = random
        self._listener = listener
        # Called with every acknowledged record, so it stands here.
        self._on_high_watermark = listener.on_high_watermark
        on_work = partial(listener.on_work, self)
        self._local = LocalLog(disk, random, log_dir, segments, config, on_work, self._unreadable)
        self.topic_id_partition = topic_id_partition
        # Checkpoints and lists of all logs are made of it every few seconds: once made, it costs nothing.
        self.topic_partition = topic_id_partition.topic_partition
        self.leader_epochs = leader_epochs
        # Whether a damaged checkpoint was made again from what is local: what is remote has epochs that are not here.
        self.epochs_lost = epochs_lost
        self.producer_state = producer_state
        self.remote_system_enabled = remote_system_enabled
        self.recovery_point = recovery_point
        # The metadata log: only its last segment may be torn by a power failure, whatever it has promised.
        self.flush_before_roll = False
        # Whether `partition.metadata` has yet to reach the device; the next flush sees to it, before any records.
        self.topic_id_dirty = False
        self.offline_reason: str | None = None
        # The facts with which retention found nothing to do, and until when that stays so while they do not change.
        self._retention_facts_seen: tuple[object, ...] = ()
        self._idle_until_ms = 0
        self._disk_full = False
        # Base offsets of segments whose index files have to be made again.
        self.damaged_indexes: dict[int, None] = {}
        self._log_start_offset = log_start_offset
        self._local_log_start_offset = max(log_start_offset, segments.first_base_offset)
        if not self.remote_enabled:
            self._log_start_offset = self._local_log_start_offset
        self._high_watermark = self._log_start_offset
        self._highest_remote_offset = NO_REMOTE_OFFSET
        # Compaction: first offset that has never been cleaned (None: all), how often the log was cut, and whether a
        # cleaning is under way, during which retention waits.
        self.cleaner_checkpoint: int | None = None
        self.truncations = 0
        self.cleaning = False
        # Whether cleaning has to wait, since the log is being moved to another directory.
        self.cleaning_paused = False

    @property
    def dir(self) -> str:
        """The partition's folder."""
        return self._local.dir

    @property
    def config(self) -> LogConfig:
        """May be replaced at any time."""
        return self._local.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._local.config = config
        self._listener.on_work(self)

    @property
    def remote_enabled(self) -> bool:
        """Whether this log may have a remote part.

        The broker's and the topic's switch are on, and the topic is neither compacted nor internal.
        """
        return self.remote_system_enabled and is_remote_enabled(self.topic_id_partition.topic, self.config)

    def __str__(self) -> str:
        return str(self.topic_partition)

    # --- offsets

    @property
    def log_start_offset(self) -> int:
        """First offset of the partition, remote part included."""
        return self._log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """First offset on the local disk."""
        return self._local_log_start_offset if self.remote_enabled else self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The next offset to be written."""
        return self._local.end_offset

    @property
    def high_watermark(self) -> int:
        """Offsets below are replicated to the in-sync replicas."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Offsets below are replicated and belong to no open transaction."""
        unstable = self.producer_state.first_unstable_offset
        if unstable is None or unstable >= self._high_watermark:
            return self._high_watermark
        return max(unstable, self._log_start_offset)

    @property
    def highest_remote_offset(self) -> int:
        """Last offset known to be in the remote tier, -1 when none is; never persisted."""
        return self._highest_remote_offset

    def update_highest_remote_offset(self, offset: int) -> None:
        """Only moves up; a truncation below it takes it back."""
        self._highest_remote_offset = max(self._highest_remote_offset, offset)

    def forget_highest_remote_offset(self) -> None:
        """The topic is not tiered any more: what was copied does not count if it ever is again."""
        self._highest_remote_offset = NO_REMOTE_OFFSET

    def update_high_watermark(self, offset: int) -> bool:
        """Sets it, moved into `[log start, log end]`; True when it changed. May lower it."""
        clamped = min(max(offset, self._log_start_offset), self.log_end_offset)
        if clamped == self._high_watermark:
            return False
        self._set_high_watermark(clamped)
        self.producer_state.on_high_watermark(clamped)
        return True

    def _set_high_watermark(self, offset: int) -> None:
        self._high_watermark = offset
        self._on_high_watermark()

    def maybe_increment_high_watermark(self, offset: int) -> bool:
        """Raises it; True when it moved. A value past the log end is the caller's mistake."""
        if offset > self._local.end_offset:
            raise ValueError(f"high watermark {offset} of {self} is past its log end {self.log_end_offset}")
        return offset > self._high_watermark and self.update_high_watermark(offset)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raises log start, and local start with it; True when it moved.

        Raises OFFSET_OUT_OF_RANGE past the high watermark. A full disk is no reason not to: then
        :meth:`require_saved_epochs` raises where it would not outlast a restart.
        """
        self.check_online()
        if offset > self._high_watermark:
            raise OffsetOutOfRange(
                f"Cannot increment the log start offset of {self} to {offset}, "
                f"past its high watermark {self._high_watermark}"
            )
        if offset <= self._log_start_offset:
            return False
        self._log_start_offset = offset
        self._local_log_start_offset = max(self._local_log_start_offset, offset)
        self.recovery_point = max(self.recovery_point, offset)
        with self._disk_errors("raise the log start of"):
            try:
                self.leader_epochs.truncate_from_start(offset)
            except OSError as error:
                # On a full disk the file keeps the entries below the log start; its readers leave them out.
                if error.errno not in FULL_ERRNOS:
                    raise
            self.producer_state.on_log_start(offset)
        self._listener.on_log_start(self)
        return True

    def require_saved_epochs(self) -> None:
        """Sees to it that a restart finds the log start: before what lies below it goes from the remote tier.

        Raises NoSpace.
        """
        self.check_online()
        try:
            self.leader_epochs.save_again()
        except OSError as error:
            raise self._no_space("write the leader epochs of", error) from error

    def maybe_increment_local_log_start_offset(self, offset: int) -> bool:
        """Raises local start only (tiered topics); True when it moved."""
        if offset <= self.local_log_start_offset:
            return False
        self._local_log_start_offset = offset
        return True

    def check(self) -> None:
        """Invariants; AssertionError when one is broken."""
        bases = [segment.base_offset for segment in self.segments]
        assert 0 <= self.log_start_offset <= self.local_log_start_offset <= self.log_end_offset, self.describe()
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark, self.describe()
        assert self.high_watermark <= self.log_end_offset == self.active_segment.next_offset, self.describe()
        assert bases == sorted(set(bases)), bases

    def describe(self) -> str:
        """All offsets on one line, for messages."""
        return (
            f"{self}: log start {self.log_start_offset}, local start {self.local_log_start_offset}, "
            f"high watermark {self.high_watermark}, log end {self.log_end_offset}, "
            f"remote up to {self.highest_remote_offset}, {len(self.segments)} segments"
        )

    # --- failures

    def mark_offline(self, reason: str) -> None:
        """From now on every call raises KAFKA_STORAGE_ERROR with the first reason given."""
        if self.offline_reason is None:
            self.offline_reason = reason
            _log.error("Partition %s is offline: %s", self, reason)
            self._listener.on_offline(self, reason)

    def check_online(self) -> None:
        """KAFKA_STORAGE_ERROR when the log's disk failed."""
        if self.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {self} is offline: {self.offline_reason}")

    def _failed(self, doing: str, error: OSError | CorruptLog) -> KafkaError:
        if isinstance(error, CorruptLog):
            self.mark_offline(error.message)
            return error
        self.mark_offline(f"could not {doing} {self.dir}: {error}")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {self} is offline: {self.offline_reason}")

    def _unreadable(self, error: OSError) -> None:
        """Takes the log offline: records could not be read while they were being sent."""
        self._failed("read", error)

    def _not_written(self, doing: str, error: OSError | CorruptLog) -> KafkaError:
        """As :meth:`_failed`, but a full disk harms nobody once what was written of the append is gone again."""
        active = self.active_segment
        if not isinstance(error, OSError) or error.errno not in FULL_ERRNOS or active.sealed:
            return self._failed(doing, error)
        try:
            active.files.file.truncate(active.size_bytes)
        except OSError as second:
            return self._failed(doing, second)
        message = f"could not {doing} {self.dir}: {error.strerror}; free some space there, appends go on by themselves"
        if not self._disk_full:
            self._disk_full = True
            _log.error("Partition %s takes no records: %s", self, message)
        return NoSpace(message)

    def _no_space(self, doing: str, error: OSError) -> KafkaError:
        """For what may wait: a full disk takes nothing offline. As :meth:`_failed` for any other error."""
        if error.errno not in FULL_ERRNOS:
            return self._failed(doing, error)
        return NoSpace(f"could not {doing} {self.dir}: {error.strerror}; free some space there, it goes on by itself")

    def require_space(self, size_bytes: int) -> None:
        """Finds out whether the disk takes so many bytes more, before something that must not fail half-way.

        Raises NoSpace; the log is as it was.
        """
        self.check_online()
        path = f"{self.dir}/{SPACE_PROBE_FILE}"
        try:
            try:
                probe = self._disk.open(path, create=True)
                try:
                    probe.append([bytes(size_bytes)])
                finally:
                    probe.close()
            finally:
                self._disk.remove(path)
        except OSError as error:
            raise self._no_space("write", error) from error

    def note_damaged_index(self, error: DamagedIndex) -> None:
        """The segment's indexes are made again soon; until then what needs them fails, and nothing else."""
        if error.base_offset not in self.damaged_indexes:
            self.damaged_indexes[error.base_offset] = None
            self._listener.on_work(self)

    @contextmanager
    def _disk_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except DamagedIndex as error:
            self.note_damaged_index(error)
            raise
        except (OSError, CorruptLog) as error:
            raise self._failed(doing, error) from error

    # --- what is built on it

    @property
    def segments(self) -> LogSegments:
        """Ordered; not to be changed."""
        return self._local.segments

    @property
    def active_segment(self) -> LogSegment:
        return self._local.segments.active

    def assign_epoch_start_offset(self, epoch: int, start_offset: int) -> None:
        """Notes where a leader's epoch starts."""
        with self._disk_errors("write the leader epochs of"):
            self.leader_epochs.assign(epoch, start_offset)
