"""Building logs and records for the tests of the log layer."""

from __future__ import annotations

import os
from pathlib import Path

from backend.engine.log.log_appender import AppendInfo
from backend.engine.log.log_config import LogConfig
from backend.engine.log.recovery.log_loader import LoadOptions, open_log
from backend.engine.log.unified_log import IGNORE_EVENTS, LogListener, UnifiedLog
from backend.engine.ports.disk import OsDisk
from backend.engine.ports.random import SystemRandom
from backend.protocol.record_batches.record_batch import RecordData, build_batch, iter_batches, iter_records
from backend.tiering.ids import TopicIdPartition

FIXTURES = Path(__file__).parents[3] / "fixtures" / "apache-kafka-4.3.1"
NOW_MS = 1_700_000_000_000
TIP = TopicIdPartition("orders", bytes(range(1, 17)), 0)
# Every batch but the first of a segment gets an index entry, as in the fixtures.
DENSE = LogConfig(index_interval_bytes=1)


def open_test_log(
    folder: Path,
    config: LogConfig = DENSE,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start: int = 0,
    remote: bool = False,
    high_watermark: int = 0,
    has_others: bool = False,
    tip: TopicIdPartition = TIP,
    listener: LogListener = IGNORE_EVENTS,
    disk: OsDisk | None = None,
) -> UnifiedLog:
    options = LoadOptions(
        recovery_point=recovery_point,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        clean_shutdown=clean,
        has_others=has_others,
        remote_system_enabled=remote,
    )
    path = str(folder / "orders-0")
    return open_log(disk or OsDisk(), SystemRandom(1), path, tip, config, options, now_ms=NOW_MS, listener=listener)


def batch(index: int = 0, count: int = 1, **fields: int | bool) -> bytearray:
    """A batch of `count` records k<i>/v<i> at NOW_MS + i, from i = `index`."""
    records = [RecordData(NOW_MS + i, f"k{i}".encode(), f"v{i}".encode()) for i in range(index, index + count)]
    return build_batch(records, **fields)  # type: ignore[arg-type]  # names are build_batch's own


def append(log: UnifiedLog, *indexes: int, epoch: int = 0, **fields: int | bool) -> list[AppendInfo]:
    """One record per batch, each with its index as key and value."""
    return [log.append_as_leader(memoryview(batch(i, **fields)), epoch, now_ms=NOW_MS) for i in indexes]


def replicate(log: UnifiedLog) -> None:
    """Every follower has everything."""
    log.update_high_watermark(log.log_end_offset)


def values(log: UnifiedLog, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all local records."""
    offset = log.local_log_start_offset if start is None else start
    records: list[tuple[int, bytes | None]] = []
    while offset < log.log_end_offset:
        info = log.reader.read(offset, 300, up_to_offset=log.log_end_offset, min_one_message=True)
        if not info.records:
            break
        for position, header in iter_batches(info.records):
            for record in iter_records(info.records, position):
                if record.offset >= offset:
                    records.append((record.offset, record.value))
            offset = header.next_offset
    return records


def files(folder: Path) -> dict[str, bytes]:
    """Name → bytes of the partition's files."""
    path = folder / "orders-0"
    return {name: (path / name).read_bytes() for name in sorted(os.listdir(path))}
