"""Moving a log to another directory of its broker: the copy under way (KIP-113; future logs of Kafka's `LogManager`).

A copy lies in a `-future` folder of its directory and is filled from the current log like a follower. Once it has
everything it takes the current log's place: it gets the plain name, then the old folder is given up. A crash between
these two leaves a folder in either directory; the marker that the copy carries meanwhile says which one counts. A copy
that was not complete at a stop begins again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from backend.engine.log.file_names import dir_name, dir_name_for_future
from backend.engine.log.log_errors import LogDirError
from backend.engine.log.manager.log_directory import write_topic_id
from backend.engine.log.recovery.log_loader import LoadOptions, open_log
from backend.engine.log.unified_log import LogListener, UnifiedLog
from backend.engine.ports import Ports
from backend.engine.ports.disk import Disk
from backend.tiering.ids import TopicPartition

MARKER_FILE: Final = "ebbline-moved-here"
# One read and one write of the loop's turn.
COPY_BYTES: Final = 1 << 20
INT32_MAX: Final = 2**31 - 1

_log = logging.getLogger(__name__)


class FutureLog:
    """The copy of one log on its way to another directory."""

    def __init__(
        self,
        ports: Ports,
        current: UnifiedLog,
        target_dir: str,
        *,
        producer_id_expiration_ms: int,
        listener: LogListener,
    ) -> None:
        """Creates the folder; `listener` is for the copy. Raises OSError, and leaves nothing behind then."""
        tip = current.topic_id_partition
        self._disk = ports.disk
        self._target_dir = target_dir
        folder = f"{target_dir}/{dir_name_for_future(tip.topic_partition, ports.random.uuid())}"
        options = LoadOptions(
            log_start_offset=_first_offset(current),
            clean_shutdown=True,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )
        now_ms = ports.clock.time_ms()
        try:
            ports.disk.make_dirs(folder)
            write_topic_id(ports.disk, folder, tip.topic_id)
            self.log = open_log(
                ports.disk, ports.random, folder, tip, current.config, options, now_ms=now_ms, listener=listener
            )
        except OSError:
            ports.disk.remove_tree(folder)
            raise
        self._truncations = current.truncations

    @property
    def target_dir(self) -> str:
        """The directory it is made in."""
        return self._target_dir

    def copy_some(self, current: UnifiedLog) -> int:
        """Copies the next batches; how many bytes there were, 0 once the copy has everything. Raises KafkaError."""
        log = self.log
        if current.truncations != self._truncations or not (
            _first_offset(current) <= log.log_end_offset <= current.log_end_offset
        ):
            # The copied records are no longer those of the log.
            self._truncations = current.truncations
            log.truncate_fully_and_start_at(_first_offset(current))
        if log.log_end_offset == current.log_end_offset:
            return 0
        records = current.reader.read(
            log.log_end_offset, COPY_BYTES, up_to_offset=current.log_end_offset, min_one_message=True
        ).records
        if not records:
            # Behind the last record there are offsets that nothing has: the active segment begins past them.
            log.roll(current.log_end_offset)
            return 0
        log.config = current.config
        log.append_as_follower(memoryview(records), INT32_MAX)
        return len(records)

    def finish(self, current: UnifiedLog) -> None:
        """Copies what is missing and takes the plain name; the caller then gives up the folder of `current`.

        Raises OSError and KafkaError.
        """
        while self.copy_some(current):
            pass
        self.log.take_over(current)
        self._disk.write_atomic(f"{self.log.dir}/{MARKER_FILE}", b"")
        self.log.folder.rename(f"{self._target_dir}/{dir_name(current.topic_id_partition.topic_partition)}")

    def remove_marker(self) -> None:
        """Removes the marker, once the old folder is given up."""
        forget_move(self._disk, self.log.dir)

    def abandon(self) -> str:
        """Gives the copy up; the folder to be removed."""
        return self.log.folder.abandon("its move to another directory was given up")


def _first_offset(current: UnifiedLog) -> int:
    return max(current.log_start_offset, current.segments.first_base_offset)


def forget_move(disk: Disk, folder: str) -> None:
    """No other folder of the partition is left: the marker has done its duty."""
    disk.remove(f"{folder}/{MARKER_FILE}")


def chosen_folder(disk: Disk, first: str, second: str) -> tuple[str, str] | None:
    """Returns (the valid one, the one left over) of a partition's two folders; None when nothing decides it."""
    marked = [disk.exists(f"{folder}/{MARKER_FILE}") for folder in (first, second)]
    if marked[0] == marked[1]:
        return None
    return (first, second) if marked[0] else (second, first)


def left_over_folders(
    disk: Disk, folders: Iterable[tuple[TopicPartition, str]], is_assigned: Callable[[TopicPartition, str], bool]
) -> Iterator[tuple[TopicPartition, str]]:
    """Yields the folder to remove of each partition that lies in two: a crash between a move's last two steps left it
    behind, or its directory was offline when the replica was deleted and then created elsewhere. In that case
    `is_assigned` is true for the folder in the directory that the controller has on record.

    Raises `LogDirError` where nothing decides it.
    """
    seen: dict[TopicPartition, str] = {}
    for partition, folder in folders:
        other = seen.setdefault(partition, folder)
        if other == folder:
            continue
        chosen = chosen_folder(disk, other, folder)
        if chosen is None and is_assigned(partition, folder) != is_assigned(partition, other):
            chosen = (folder, other) if is_assigned(partition, folder) else (other, folder)
        if chosen is None:
            raise LogDirError(f"{partition} lies in {other} and in {folder}; move one of them away")
        seen[partition] = chosen[0]
        _log.info("Partition %s is in %s now; %s is removed", partition, *chosen)
        yield partition, chosen[1]
