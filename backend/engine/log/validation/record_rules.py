"""A topic's rules for the records of a produced batch: times and keys (`LogValidator.validateRecord`, KIP-467)."""

from __future__ import annotations

from typing import Final

from backend.engine.log.log_config import INT64_MAX, LogConfig
from backend.engine.log.log_errors import RecordsRejected
from backend.protocol.errors import ErrorCode
from backend.protocol.record_batches.record_batch import BatchHeader, iter_records
from backend.protocol.record_batches.record_check import RecordsSummary
from backend.tiering.ids import TopicPartition

NO_TIMESTAMP: Final = -1
INT64_MIN: Final = -INT64_MAX - 1
_REJECTED: Final = "One or more records have been rejected"
# Of a batch; each has a sentence of some 170 bytes, so that the answer for a partition stays below 200 kB. A producer
# takes records that are not named for rejected with the others.
RECORD_ERRORS_MAX: Final = 1000
# Number of them that Kafka shows in the message.
_ERRORS_SHOWN: Final = 3


def check_record_rules(
    header: BatchHeader,
    records: memoryview,
    summary: RecordsSummary,
    config: LogConfig,
    partition: TopicPartition,
    now_ms: int,
) -> int:
    """The largest timestamp of a batch whose records are well-formed, -1 when none has one.

    Raises RecordsRejected (INVALID_TIMESTAMP, INVALID_RECORD) when there are records that the topic does not take: with
    a time beyond its limits, or without a key where compaction could neither keep nor remove them.
    """
    if header.is_log_append_time:
        message = "Producer should not set timestamp type to LogAppendTime."
        errors = tuple((index, message) for index in range(min(header.record_count, RECORD_ERRORS_MAX)))
        raise RecordsRejected(ErrorCode.INVALID_TIMESTAMP, f"{_REJECTED} due to invalid timestamp", errors)
    # Not below -(2^63 - 1), whatever the setting.
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    if latest_ms > INT64_MAX:
        latest_ms = INT64_MAX
    min_timestamp = header.base_timestamp + summary.delta_ms_min
    max_timestamp = header.base_timestamp + summary.delta_ms_max
    keys_wanted = summary.has_null_key and config.is_compacted
    in_time = (earliest_ms <= min_timestamp and max_timestamp <= latest_ms) or config.is_log_append_time
    if keys_wanted or not in_time:
        limits = None if in_time else (earliest_ms, latest_ms)
        _reject(records, partition if keys_wanted else None, limits)
    return max_timestamp if max_timestamp > NO_TIMESTAMP else NO_TIMESTAMP


def _reject(records: memoryview, compacted: TopicPartition | None, limits_ms: tuple[int, int] | None) -> None:
    """Raises RecordsRejected when a record has no key though it must, or a timestamp beyond the limits."""
    errors: list[tuple[int, str | None]] = []
    untimely = False
    for index, record in enumerate(iter_records(records)):
        if compacted is not None and record.key is None:
            errors.append((index, f"Compacted topic cannot accept message without key in topic partition {compacted}"))
        elif limits_ms is not None and record.timestamp != NO_TIMESTAMP:
            earliest_ms, latest_ms = limits_ms
            if not earliest_ms <= record.timestamp <= latest_ms:
                untimely = True
                text = f"Timestamp {_int64(record.timestamp)} of message with offset {index} is out of range. "
                errors.append((index, f"{text}The timestamp should be within [{earliest_ms}, {latest_ms}]"))
        if len(errors) == RECORD_ERRORS_MAX:
            break
    if untimely:
        raise RecordsRejected(ErrorCode.INVALID_TIMESTAMP, f"{_REJECTED} due to invalid timestamp", tuple(errors))
    if errors:
        shown = ", ".join(
            f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:_ERRORS_SHOWN]
        )
        raise RecordsRejected(
            ErrorCode.INVALID_RECORD,
            f"{_REJECTED} due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
            tuple(errors),
        )


def _int64(value: int) -> int:
    """Wraps a sum of two 64-bit integers as Java's arithmetic does."""
    return (value - INT64_MIN) % (1 << 64) + INT64_MIN
