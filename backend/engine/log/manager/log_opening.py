"""The logs that a start finds in its directories, and opening them (`LogManager.loadLogs` of Kafka)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from backend.engine.log.file_names import dir_name, dir_name_for_delete
from backend.engine.log.log_config import LogConfig, LogManagerConfig
from backend.engine.log.log_errors import CorruptLog
from backend.engine.log.manager.future_log import forget_move, left_over_folders
from backend.engine.log.manager.log_directory import LogDirectory, read_topic_id
from backend.engine.log.recovery.log_loader import LoadOptions, open_log
from backend.engine.log.unified_log import LogListener, UnifiedLog
from backend.engine.ports import Ports
from backend.protocol.errors import DecodeError
from backend.tiering.ids import TopicIdPartition, TopicPartition

# Logs that were closed in order are opened so many at a time, in some 10 ms: to hand one to a thread and to hear of it
# costs as much as to open it. One that was not closed may be read for minutes.
CLEAN_LOGS_PER_JOB: Final = 64


class LogFolder(NamedTuple):
    """A partition's folder in a log directory, and whether other replicas of it exist."""

    log_dir: LogDirectory
    partition: TopicPartition
    folder: str
    has_others: bool = False


class FoundFolders(NamedTuple):
    """The folders of all directories, sorted by their use at a start."""

    logs: list[LogFolder]
    # Folders to be removed: of deleted partitions, unfinished moves, and replicas that lie elsewhere, too.
    pending_delete: list[str]
    # Partitions whose move was under way, and the directory that they were on their way to.
    moving: dict[TopicPartition, str]
    # (partition, folder, reason) of replicas whose folder is gone.
    missing: list[tuple[TopicPartition, str, str]]


def find_folders(
    ports: Ports,
    dirs: Sequence[LogDirectory],
    directory_of: Callable[[TopicPartition], bytes | None],
    has_others: Callable[[TopicPartition], bool],
) -> FoundFolders:
    """Lists the partitions' folders, each partition once. Raises OSError.

    `directory_of` gives the id of the directory where the controller has a partition's replica, as far as it knows;
    `has_others` whether it has further replicas.
    """
    logs: list[LogFolder] = []
    pending_delete: list[str] = []
    moving: dict[TopicPartition, str] = {}
    for log_dir in dirs:
        pending_delete.extend(log_dir.pending_delete_folders())
        for partition, folder in log_dir.future_folders():
            pending_delete.append(folder)
            if partition is not None:
                moving[partition] = log_dir.path
        logs.extend(
            LogFolder(log_dir, partition, folder, has_others(partition)) for partition, folder in log_dir.partitions()
        )
    left_over = _rename_left_over(ports, logs, directory_of)
    logs = [log_folder for log_folder in logs if log_folder.folder not in left_over]
    present = {log_folder.partition for log_folder in logs}
    return FoundFolders(logs, [*pending_delete, *left_over.values()], moving, list(_missing(dirs, present, has_others)))


def _rename_left_over(
    ports: Ports, logs: Sequence[LogFolder], directory_of: Callable[[TopicPartition], bytes | None]
) -> dict[str, str]:
    """The folders that do not count, since their partition lies elsewhere too, with their new names."""
    ids = {log_folder.folder: log_folder.log_dir.meta.directory_id for log_folder in logs}

    def is_assigned(partition: TopicPartition, folder: str) -> bool:
        return ids[folder] == directory_of(partition)

    renamed = {}
    folders = [(log_folder.partition, log_folder.folder) for log_folder in logs]
    for partition, folder in left_over_folders(ports.disk, folders, is_assigned):
        renamed[folder] = f"{folder.rpartition('/')[0]}/{dir_name_for_delete(partition, ports.random.uuid())}"
        ports.disk.rename(folder, renamed[folder])
    return renamed


def _missing(
    dirs: Sequence[LogDirectory], present: Collection[TopicPartition], has_others: Callable[[TopicPartition], bool]
) -> Iterator[tuple[TopicPartition, str, str]]:
    """A replica whose folder was taken away must not lead with an empty one: the checkpoints still know it."""
    for log_dir in dirs:
        checkpoints = log_dir.checkpoints
        for partition in {**checkpoints.recovery_point, **checkpoints.high_watermark}:
            end = max(checkpoints.recovery_point.get(partition, 0), checkpoints.high_watermark.get(partition, 0))
            if end > 0 and partition not in present and has_others(partition):
                folder = f"{log_dir.path}/{dir_name(partition)}"
                reason = f"{folder} is missing, which had records up to offset {end}"
                yield partition, folder, f"{reason}; it is copied again once another replica leads"


def in_jobs(log_folders: Iterable[LogFolder]) -> Iterator[list[LogFolder]]:
    """Groups folders into jobs; the logs of a job are opened one after the other on one thread."""
    for log_dir, of_dir in itertools.groupby(log_folders, key=lambda log_folder: log_folder.log_dir):
        size = CLEAN_LOGS_PER_JOB if log_dir.clean_shutdown else 1
        while job := list(itertools.islice(of_dir, size)):
            yield job


def open_found(
    ports: Ports,
    job: Sequence[LogFolder],
    configs: Sequence[LogConfig],
    config: LogManagerConfig,
    listener: LogListener,
) -> list[UnifiedLog | CorruptLog | OSError]:
    """Each log, with its settings in `configs`, or what is wrong with it. Blocking; any thread."""
    outcomes: list[UnifiedLog | CorruptLog | OSError] = []
    for log_folder, log_config in zip(job, configs, strict=True):
        try:
            outcomes.append(_open(ports, log_folder, log_config, config, listener))
        except (CorruptLog, OSError) as error:
            outcomes.append(error)
        except (ValueError, DecodeError) as error:
            # One replica's file must not keep the others from being opened, whatever is in it.
            outcomes.append(CorruptLog(f"{log_folder.folder} cannot be read: {error}"))
    return outcomes


def _open(
    ports: Ports, log_folder: LogFolder, log_config: LogConfig, config: LogManagerConfig, listener: LogListener
) -> UnifiedLog:
    disk, (log_dir, partition, folder, has_others) = ports.disk, log_folder
    options = LoadOptions(
        recovery_point=log_dir.checkpoints.recovery_point.get(partition, 0),
        log_start_offset=log_dir.checkpoints.log_start.get(partition, 0),
        high_watermark=log_dir.checkpoints.high_watermark.get(partition, 0),
        clean_shutdown=log_dir.clean_shutdown,
        has_others=has_others,
        remote_system_enabled=config.remote_system_enabled,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
    )
    forget_move(disk, folder)
    tip = TopicIdPartition(partition.topic, read_topic_id(disk, folder), partition.partition)
    now_ms = ports.clock.time_ms()
    return open_log(disk, ports.random, folder, tip, log_config, options, now_ms=now_ms, listener=listener)
