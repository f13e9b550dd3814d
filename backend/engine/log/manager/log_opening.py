"""Opening the logs that a start finds in its directories (`LogManager.loadLogs` of Kafka)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from backend.engine.log.log_config import LogConfig, LogManagerConfig
from backend.engine.log.log_errors import CorruptLog
from backend.engine.log.manager.future_log import forget_move
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
