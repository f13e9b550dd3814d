"""Whether one partition's log can be used: failures of its disk, and bytes that cannot be right.

Kafka: `LocalLog.maybeHandleIOException`; a full disk and an index that is damaged take no partition offline here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from backend.engine.log.local_log import LocalLog
from backend.engine.log.log_errors import FULL_ERRNOS, CorruptLog, DamagedIndex, NoSpace
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

# Removed at once; a `.tmp` that a crash leaves is removed when the log is opened.
SPACE_PROBE_FILE: Final = "space.tmp"

_log = logging.getLogger(__name__)


class LogHealth:
    """The failures of one log, in the words that its callers and the broker's log get."""

    def __init__(
        self,
        partition: TopicPartition,
        local: LocalLog,
        on_offline: Callable[[str], None],
        on_damaged_index: Callable[[], None],
    ) -> None:
        """`on_offline` is called with the reason, at most once."""
        self.offline_reason: str | None = None
        # Whether the last append found no space.
        self.disk_full = False
        # Base offsets of segments whose index files have to be made again.
        self.damaged_indexes: dict[int, None] = {}
        self._partition = partition
        self._local = local
        self._on_offline = on_offline
        self._on_damaged_index = on_damaged_index

    def mark_offline(self, reason: str) -> None:
        """From now on every call raises KAFKA_STORAGE_ERROR with the first reason given."""
        if self.offline_reason is None:
            self.offline_reason = reason
            _log.error("Partition %s is offline: %s", self._partition, reason)
            self._on_offline(reason)

    def retire(self, reason: str) -> None:
        """The log is given up for good, and nobody has to act on it: a last reason, without a word to anybody."""
        self.offline_reason = reason

    def check_online(self) -> None:
        """KAFKA_STORAGE_ERROR when the log's disk failed."""
        if self.offline_reason is not None:
            raise self._offline()

    def _offline(self) -> KafkaError:
        message = f"Partition {self._partition} is offline: {self.offline_reason}"
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def failed(self, doing: str, error: OSError | CorruptLog) -> KafkaError:
        """Takes the log offline; the error to raise."""
        if isinstance(error, CorruptLog):
            self.mark_offline(error.message)
            return error
        self.mark_offline(f"could not {doing} {self._local.dir}: {error}")
        return self._offline()

    def not_written(self, doing: str, error: OSError | CorruptLog) -> KafkaError:
        """As :meth:`failed`, but a full disk harms nobody once what was written of the append is gone again."""
        active = self._local.segments.active
        if not isinstance(error, OSError) or error.errno not in FULL_ERRNOS or active.sealed:
            return self.failed(doing, error)
        try:
            active.files.file.truncate(active.size_bytes)
        except OSError as second:
            return self.failed(doing, second)
        where = self._local.dir
        message = f"could not {doing} {where}: {error.strerror}; free some space there, appends go on by themselves"
        if not self.disk_full:
            self.disk_full = True
            _log.error("Partition %s takes no records: %s", self._partition, message)
        return NoSpace(message)

    def written_again(self) -> None:
        """The first append succeeded after the disk had been full."""
        self.disk_full = False
        _log.info("Partition %s takes records again", self._partition)

    def no_space(self, doing: str, error: OSError) -> KafkaError:
        """For what may wait: a full disk takes nothing offline. As :meth:`failed` for any other error."""
        if error.errno not in FULL_ERRNOS:
            return self.failed(doing, error)
        where = self._local.dir
        return NoSpace(f"could not {doing} {where}: {error.strerror}; free some space there, it goes on by itself")

    def require_space(self, size_bytes: int) -> None:
        """Finds out whether the disk takes so many bytes more, before something that must not fail half-way.

        Raises NoSpace; the log is as it was.
        """
        self.check_online()
        disk, path = self._local.disk, f"{self._local.dir}/{SPACE_PROBE_FILE}"
        try:
            try:
                probe = disk.open(path, create=True)
                try:
                    probe.append([bytes(size_bytes)])
                finally:
                    probe.close()
            finally:
                disk.remove(path)
        except OSError as error:
            raise self.no_space("write", error) from error

    def note_damaged_index(self, error: DamagedIndex) -> None:
        """The segment's indexes are made again soon; until then what needs them fails, and nothing else."""
        if error.base_offset not in self.damaged_indexes:
            self.damaged_indexes[error.base_offset] = None
            self._on_damaged_index()

    def forget_damaged_index(self, base_offset: int) -> None:
        """The segment has intact indexes again, or is no longer in the log."""
        self.damaged_indexes.pop(base_offset, None)

    @contextmanager
    def disk_errors(self, doing: str) -> Iterator[None]:
        """Turns an OSError and `CorruptLog` into the log's being offline, and the error to raise."""
        try:
            yield
        except DamagedIndex as error:
            self.note_damaged_index(error)
            raise
        except (OSError, CorruptLog) as error:
            raise self.failed(doing, error) from error
