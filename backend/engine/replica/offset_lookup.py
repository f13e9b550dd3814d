"""Answers to ListOffsets from one replica: what each timestamp that names an offset means (KIP-405, 1005, 1023).

Kafka: `Partition.fetchOffsetForTimestamp`, `UnifiedLog.fetchOffsetByTimestamp`, and answers of running brokers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from backend.engine.log.segments.timestamp_search import TimestampedOffset
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.replica.fetch_data import CONSUMER, DEBUG, Isolation
from backend.engine.replica.partition import Partition
from backend.protocol import offset_timestamps
from backend.protocol.errors import ErrorCode, KafkaError

UNKNOWN: Final = -1


class OffsetResult(NamedTuple):
    """One answer; all -1 when the timestamp names nothing."""

    offset: int = UNKNOWN
    timestamp: int = UNKNOWN
    leader_epoch: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class OffsetQuery:
    """One partition of a ListOffsets request. `kafka_compat`: followers get Kafka 4.3's answers to -6."""

    timestamp: int
    replica_id: int
    isolation_level: int
    current_leader_epoch: int = -1
    kafka_compat: bool = False


NOTHING: Final = OffsetResult()


def is_known(timestamp: int, version: int) -> bool:
    """Whether a request of the version may ask for the timestamp."""
    return timestamp >= 0 or version >= offset_timestamps.FIRST_VERSION.get(timestamp, 1 << 15)


def check(partition: Partition, query: OffsetQuery) -> None:
    """Raises 74, 75 for another leader epoch, 6 for a follower; a debug reader may ask any replica."""
    partition.check_epoch(query.current_leader_epoch)
    if query.replica_id != DEBUG:
        partition.check_leader()


def needs_remote(partition: Partition, query: OffsetQuery) -> bool:
    """Whether a record by its timestamp has to be looked for in the remote tier too."""
    log = partition.log
    return query.timestamp >= 0 and log.remote_enabled and log.log_start_offset != log.log_end_offset


def look_up(partition: Partition, query: OffsetQuery) -> OffsetResult:
    """The answer from what this replica has on disk. Raises KafkaError."""
    check(partition, query)
    log = partition.log
    match query.timestamp:
        case offset_timestamps.LATEST:
            _check_high_watermark_is_current(partition, query)
            return OffsetResult(_last_fetchable(partition, query), leader_epoch=_latest_epoch(partition, query))
        case offset_timestamps.EARLIEST:
            return _earliest(log)
        case offset_timestamps.EARLIEST_LOCAL:
            if not log.remote_enabled:
                return _earliest(log)
            return _with_epoch(log, log.local_log_start_offset)
        case offset_timestamps.MAX_TIMESTAMP:
            return visible(partition, query, of_record(log.reader.max_timestamp_offset()))
        case offset_timestamps.LATEST_TIERED:
            tiered = log.remote_enabled and log.highest_remote_offset != UNKNOWN
            return visible(partition, query, _with_epoch(log, log.highest_remote_offset) if tiered else NOTHING)
        case offset_timestamps.EARLIEST_PENDING_UPLOAD:
            pending = _earliest_pending_upload(log)
            if query.replica_id >= 0 and not query.kafka_compat:
                # A follower must learn that everything is tiered, or it could never start behind it (KIP-1023).
                return pending
            return visible(partition, query, pending)
        case timestamp:
            return visible(partition, query, of_record(log.reader.offset_by_timestamp(timestamp)))


def visible(partition: Partition, query: OffsetQuery, result: OffsetResult) -> OffsetResult:
    """The result, unless the reader must not see that far yet. Raises OFFSET_NOT_AVAILABLE when it soon may."""
    if result.offset < _last_fetchable(partition, query):
        return result
    _check_high_watermark_is_current(partition, query)
    return NOTHING


def of_record(record: TimestampedOffset | None) -> OffsetResult:
    """The result for a record that was looked up by its timestamp, locally or remotely; None: there is none."""
    if record is None:
        return NOTHING
    return OffsetResult(
        record.offset, record.timestamp, UNKNOWN if record.leader_epoch is None else record.leader_epoch
    )


def _latest_epoch(partition: Partition, query: OffsetQuery) -> int:
    """Kafka gives the partition's leader epoch. To a debug reader of a partition without a leader it is the epoch of
    the replica's last record instead: which log is the best is what such a reader wants to know (KIP-966).
    """
    if query.replica_id != DEBUG or partition.leader >= 0:
        return partition.leader_epoch
    return partition.log.last_record_epoch


def _earliest(log: UnifiedLog) -> OffsetResult:
    first = log.leader_epochs.earliest_entry
    covered = first is not None and first[1] <= log.log_start_offset
    return OffsetResult(log.log_start_offset, leader_epoch=first[0] if covered and first is not None else UNKNOWN)


def _with_epoch(log: UnifiedLog, offset: int) -> OffsetResult:
    epoch = log.leader_epochs.epoch_for_offset(offset)
    return OffsetResult(offset, leader_epoch=UNKNOWN if epoch is None else epoch)


def _earliest_pending_upload(log: UnifiedLog) -> OffsetResult:
    if not log.remote_enabled:
        return NOTHING
    if log.highest_remote_offset == UNKNOWN:
        return _earliest(log) if log.local_log_start_offset == log.log_start_offset else NOTHING
    return _with_epoch(log, max(log.highest_remote_offset + 1, log.log_start_offset))


def _last_fetchable(partition: Partition, query: OffsetQuery) -> int:
    return partition.fetchable_end(Isolation.of(query.replica_id, query.isolation_level))


def _check_high_watermark_is_current(partition: Partition, query: OffsetQuery) -> None:
    """After an election the high watermark may be older than what consumers of the last leader have seen."""
    if (
        query.replica_id == CONSUMER
        and partition.is_leader
        and partition.followers.epoch_start_offset > partition.high_watermark
    ):
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition} has a new leader whose high watermark {partition.high_watermark} has not reached the start"
            f" {partition.followers.epoch_start_offset} of its epoch yet",
        )
