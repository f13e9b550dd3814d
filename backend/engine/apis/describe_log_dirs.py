"""DescribeLogDirs (35), versions 1-5: sizes and lags of the replicas in each log directory (KIP-113, KIP-827).

Kafka: `KafkaApis.handleDescribeLogDirsRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.log.file_names import LOG_SUFFIX
from backend.engine.log.manager.log_directory import LogDirectory
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import Disk, Ports
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

API_KEY: Final = 35
MIN_VERSION: Final = 1
MAX_VERSION: Final = 5

# A lag that is not known, as Kafka's tools show it (`UnifiedLog.UNKNOWN_OFFSET`).
UNKNOWN_LAG: Final = -1

# Of a reason why a log is offline: a file's name and what is wrong with it.
REASON_CHARS_MAX: Final = 1_000

_Result = m.DescribeLogDirsResponse.Results
_Partition = m.DescribeLogDirsResponse.Results.Topics.Partitions


class DescribeLogDirsServices(Protocol):
    """The parts of the node that these functions use."""

    ports: Ports
    log_manager: LogManager


def describe_log_dirs(
    services: DescribeLogDirsServices, context: RequestContext, request: m.DescribeLogDirsRequest
) -> m.DescribeLogDirsResponse:
    """Local bytes only: what lies in the remote tier does not count. No topics given means all.

    Partitions that are offline are listed, too; a directory that failed answers KAFKA_STORAGE_ERROR. An
    answer about all has, in tagged fields that Kafka has not, the unused folders that are kept, and
    the reasons why logs are offline, with files as they lie in the directory.
    """
    partitions = None
    if request.topics is not None:
        partitions = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    manager = services.log_manager
    results = [_result(services, log_dir, partitions) for log_dir in manager.directories.dirs]
    return m.DescribeLogDirsResponse(results=results + [_failed(path) for path in manager.directories.left_out])


def _result(
    services: DescribeLogDirsServices, log_dir: LogDirectory, partitions: set[tuple[str, int]] | None
) -> _Result:
    manager, disk = services.log_manager, services.ports.disk
    try:
        total_bytes, usable_bytes = disk.total_bytes(log_dir.path), disk.free_bytes(log_dir.path)
    except OSError:
        return _failed(log_dir.path)
    if log_dir.path in manager.directories.failed_dirs:
        return _failed(log_dir.path)
    rows = {log.topic_partition: _row(log) for log in manager.logs_in(log_dir)}
    for partition, folder in manager.offline_in(log_dir).items():
        # A log that cannot be used still takes its room; nobody knows where it ends.
        rows[partition] = _Partition(
            partition_index=partition.partition, partition_size=_size_on_disk(disk, folder), offset_lag=UNKNOWN_LAG
        )
    listed = list(rows.items())
    for partition, future in manager.futures.items():
        if future.target_dir == log_dir.path:
            current = manager.get(partition)
            listed.append((partition, _future_row(future.log, current)))
    topics: dict[str, _Result.Topics] = {}
    for partition, row in listed:
        if partitions is None or (partition.topic, partition.partition) in partitions:
            topics.setdefault(partition.topic, _Result.Topics(name=partition.topic)).partitions.append(row)
    return _Result(
        log_dir=log_dir.path,
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        set_aside=[_Result.SetAside(**kept._asdict()) for kept in manager.directories.set_aside_in(log_dir)]
        if partitions is None
        else [],
        offline_logs=_offline_logs(services, log_dir) if partitions is None else [],
    )


def _offline_logs(services: DescribeLogDirsServices, log_dir: LogDirectory) -> list[_Result.OfflineLogs]:
    manager = services.log_manager
    return [
        _Result.OfflineLogs(
            topic=log.topic,
            partition_index=log.partition,
            reason=(manager.offline_reason(log) or "").replace(f"{log_dir.path}/", "")[:REASON_CHARS_MAX],
        )
        for log in manager.offline_in(log_dir)
    ]


def _failed(path: str) -> _Result:
    return _Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)


def _row(log: UnifiedLog) -> _Partition:
    return _Partition(
        partition_index=log.topic_id_partition.partition,
        partition_size=log.size_bytes,
        offset_lag=max(0, log.high_watermark - log.log_end_offset),
    )


def _future_row(log: UnifiedLog, current: UnifiedLog | None) -> _Partition:
    row = _row(log)
    row.offset_lag = UNKNOWN_LAG if current is None else max(0, current.log_end_offset - log.log_end_offset)
    row.is_future_key = True
    return row


def _size_on_disk(disk: Disk, folder: str) -> int:
    try:
        return sum(disk.size(f"{folder}/{name}") for name in disk.list_dir(folder) if name.endswith(LOG_SUFFIX))
    except OSError:
        return 0


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, describe_log_dirs),)
