"""DescribeLogDirs (35), versions 1-5: sizes and lags of the replicas in each log directory (KIP-113, KIP-827)."""

from __future__ import annotations

from typing import Final

from backend.engine.apis.context import Api, RequestContext
from backend.engine.apis.services import Services
from backend.engine.log.log_dirs import LogDir
from backend.engine.log.unified_log import UnifiedLog
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

API_KEY: Final = 35
MIN_VERSION: Final = 1
MAX_VERSION: Final = 5

_Result = m.DescribeLogDirsResponse.Results


def describe_log_dirs(
    services: Services, context: RequestContext, request: m.DescribeLogDirsRequest
) -> m.DescribeLogDirsResponse:
    """Local bytes only: what lies in the remote tier does not count. No topics given means all."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return m.DescribeLogDirsResponse(
        results=[_result(services, log_dir, wanted) for log_dir in services.log_manager.dirs]
    )


def _result(services: Services, log_dir: LogDir, wanted: set[tuple[str, int]] | None) -> _Result:
    disk = services.ports.disk
    try:
        total_bytes, usable_bytes = disk.total_bytes(log_dir.path), disk.free_bytes(log_dir.path)
    except OSError:
        return _Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir.path)
    topics: dict[str, _Result.Topics] = {}
    for log in services.log_manager.logs_in(log_dir):
        tip = log.topic_id_partition
        if wanted is None or (tip.topic, tip.partition) in wanted:
            topics.setdefault(tip.topic, _Result.Topics(name=tip.topic)).partitions.append(_row(log))
    return _Result(
        log_dir=log_dir.path, topics=list(topics.values()), total_bytes=total_bytes, usable_bytes=usable_bytes
    )


def _row(log: UnifiedLog) -> _Result.Topics.Partitions:
    return _Result.Topics.Partitions(
        partition_index=log.topic_id_partition.partition,
        partition_size=log.size_bytes,
        offset_lag=max(0, log.high_watermark - log.log_end_offset),
    )


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, describe_log_dirs),)
