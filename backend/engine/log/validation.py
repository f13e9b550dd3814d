"""Checks of records before they are appended (`UnifiedLog.analyzeAndValidateRecords`, `LogValidator` and
`ProduceRequest.validateRecords` of Kafka; the codes are those that running brokers answered).

An uncompressed batch whose header is right costs no work per record. A compressed one is decompressed once, bounded, to
be sure that consumers will be able to.
"""

from __future__ import annotations

from typing import Final

from backend.engine.log.config import INT64_MAX, LogConfig
from backend.engine.log.errors import InvalidBatch, RecordsRejected
from backend.protocol.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    RecordData,
    build_batch,
    crc_valid,
    iter_batches,
    iter_records,
    parse_header,
    patch_max_timestamp,
)
from backend.protocol.compression import Compression
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.records import RECORD_BYTES_MIN
from backend.tiering.ids import TopicPartition

NO_TIMESTAMP: Final = -1
_MAGIC_AT: Final = 16
_TARGET_CODECS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_REJECTED: Final = "One or more records have been rejected"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _inconsistent(message: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.INVALID_RECORD, message, "invalidoffsetorsequencerecords")


def _check_shape(records: memoryview, position: int) -> int | None:
    """Size of the whole batch at `position`, None when it is cut off; raises CORRUPT_MESSAGE for what is no batch."""
    left = len(records) - position
    if left < LOG_OVERHEAD_BYTES:
        return None
    length = int.from_bytes(records[position + 8 : position + 12], "big", signed=True)
    if length < 14 - LOG_OVERHEAD_BYTES:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"Record size {length} is less than the minimum record overhead (14)"
        )
    if left <= _MAGIC_AT:
        return None
    magic = records[position + _MAGIC_AT]
    if magic > MAGIC:
        signed = magic - 256 if magic > 127 else magic
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {signed}")
    size_bytes = length + LOG_OVERHEAD_BYTES
    return size_bytes if size_bytes <= left else None


def validate_produced(records: memoryview, config: LogConfig, *, now_ms: int) -> tuple[memoryview, BatchHeader]:
    """The one batch of a client's produce request for a partition, ready to be given its offset: writable, and without
    what follows it.

    Raises KafkaError with Kafka's codes: CORRUPT_MESSAGE (CRC, magic), INVALID_RECORD (shape, counts, control batch),
    MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, UNKNOWN_SERVER_ERROR (compression that is not what it
    says).
    """
    header = _one_batch(records)
    size_bytes = header.size_bytes
    if len(records) > size_bytes:
        records = records[:size_bytes]
    codec = header.compression
    _check_header(header, records, config)
    if codec:
        _check_compressed(header, records)
    _check_timestamps(header, records, config, now_ms)
    if records.readonly:
        records = memoryview(bytearray(records))
    if config.compression_type != "producer" and _TARGET_CODECS[config.compression_type] != codec:
        records = _recompressed(header, records, config)
        header = parse_header(records)
        if header.size_bytes > config.max_message_bytes:
            raise _too_large(header.size_bytes, config)
    if config.is_log_append_time:
        patch_max_timestamp(records, 0, now_ms, log_append_time=True)
        header = parse_header(records)
    if header.size_bytes > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {header.size_bytes} bytes in append, "
            f"which exceeds the maximum configured segment size of {config.segment_bytes}",
        )
    return records, header


def _one_batch(records: memoryview) -> BatchHeader:
    size_bytes = len(records)
    if size_bytes >= HEADER_BYTES and records[_MAGIC_AT] == MAGIC:
        length = int.from_bytes(records[8:12], "big", signed=True)
        if length + LOG_OVERHEAD_BYTES == size_bytes:
            return parse_header(records)
    whole = _check_shape(records, 0)
    if whole is None:
        raise _invalid("Produce requests must have exactly one record batch per partition, found none that is whole")
    if records[_MAGIC_AT] != MAGIC or whole < HEADER_BYTES:
        raise _invalid(f"Produce requests are only allowed to contain record batches with magic version {MAGIC}")
    if _check_shape(records, whole) is not None:
        raise _invalid("Produce requests must have exactly one record batch per partition")
    return parse_header(records)


def _too_large(size_bytes: int, config: LogConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size in the append is {size_bytes} bytes "
        f"which exceeds the maximum configured value of {config.max_message_bytes}",
    )


def _check_header(header: BatchHeader, records: memoryview, config: LogConfig) -> None:
    if header.base_offset != 0:
        raise _invalid(f"The baseOffset of the record batch in the append is {header.base_offset}, but it should be 0")
    if header.size_bytes > config.max_message_bytes:
        raise _too_large(header.size_bytes, config)
    if not crc_valid(records, 0, header):
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE,
            "Record is corrupt: its CRC-32C does not match its bytes",
            "invalidmessagecrcrecords",
        )
    count = header.record_count
    if header.last_offset_delta < 0 or count <= 0 or count != header.last_offset_delta + 1:
        raise _inconsistent(
            f"Inconsistent batch: count of {count} records with a last offset delta of {header.last_offset_delta}"
        )
    if not header.compression and count * RECORD_BYTES_MIN > header.size_bytes - HEADER_BYTES:
        raise _invalid(f"Inconsistent batch: {count} records in {header.size_bytes - HEADER_BYTES} bytes")
    if header.has_producer and header.base_sequence < 0:
        raise _inconsistent(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}"
        )
    if header.is_control:
        raise _inconsistent("Clients are not allowed to write control records")


def _check_compressed(header: BatchHeader, records: memoryview) -> None:
    try:
        # The first record is enough: the whole batch is decompressed for it, and the count is bounded by what came out.
        next(iter_records(records))
    except (DecodeError, StopIteration) as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The batch cannot be decompressed with codec {header.compression}: {error}"
        ) from None


def _check_timestamps(header: BatchHeader, records: memoryview, config: LogConfig, now_ms: int) -> None:
    if header.is_log_append_time:
        message = "Producer should not set timestamp type to LogAppendTime."
        errors = tuple((index, message) for index in range(header.record_count))
        raise RecordsRejected(ErrorCode.INVALID_TIMESTAMP, f"{_REJECTED} due to invalid timestamp", errors)
    if config.is_log_append_time:
        return
    earliest_ms = now_ms - config.message_timestamp_before_max_ms
    latest_ms = now_ms + config.message_timestamp_after_max_ms
    # Both ends of a batch are in its header except a record older than the first, which only a limit on the past makes
    # interesting.
    if header.max_timestamp <= latest_ms and config.message_timestamp_before_max_ms == INT64_MAX:
        return
    errors_found: list[tuple[int, str | None]] = []
    for index, record in enumerate(_records(records)):
        if record.timestamp_ms != NO_TIMESTAMP and not earliest_ms <= record.timestamp_ms <= latest_ms:
            text = f"Timestamp {record.timestamp_ms} of message with offset {index} is out of range. "
            errors_found.append((index, f"{text}The timestamp should be within [{earliest_ms}, {latest_ms}]"))
    if errors_found:
        raise RecordsRejected(ErrorCode.INVALID_TIMESTAMP, f"{_REJECTED} due to invalid timestamp", tuple(errors_found))


# What Kafka shows of the errors in the message; the response has them all.
_ERRORS_SHOWN: Final = 3


def check_keys(records: memoryview, partition: TopicPartition) -> None:
    """Raises RecordsRejected (INVALID_RECORD) when a record of a batch for a compacted topic has no key: compaction
    could neither keep nor remove it. Reads every record; call it for compacted topics only.
    """
    message = f"Compacted topic cannot accept message without key in topic partition {partition}."
    errors = tuple((index, message) for index, record in enumerate(_records(records)) if record.key is None)
    if errors:
        shown = ", ".join(
            f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:_ERRORS_SHOWN]
        )
        raise RecordsRejected(
            ErrorCode.INVALID_RECORD,
            f"{_REJECTED} due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
            errors,
        )


def _records(records: memoryview) -> list[RecordData]:
    try:
        return [RecordData(r.timestamp, r.key, r.value, r.headers) for r in iter_records(records)]
    except DecodeError as error:
        raise _invalid(f"The records of the batch are malformed: {error}") from None


def _recompressed(header: BatchHeader, records: memoryview, config: LogConfig) -> memoryview:
    codec = _TARGET_CODECS[config.compression_type]
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return memoryview(
        build_batch(
            _records(records),
            compression=codec,
            compression_level=levels.get(codec),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
    )


Batches = list[tuple[int, BatchHeader]]


def validate_trusted(records: memoryview) -> tuple[memoryview, Batches]:
    """Whole batches of a broker's own making, with their positions; a batch cut off at the end is left out.

    Raises CORRUPT_MESSAGE for a wrong CRC or magic.
    """
    batches: Batches = []
    end = 0
    try:
        for position, header in iter_batches(records):
            if header.last_offset_delta < 0 or not crc_valid(records, position, header):
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"Record batch at offset {header.base_offset} is corrupt: its CRC-32C does not match its bytes",
                )
            batches.append((position, header))
            end = position + header.size_bytes
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return records[:end], batches


def validate_fetched(records: memoryview, leader_epoch: int) -> tuple[memoryview, Batches]:
    """The same for batches of a leader, up to the first of an epoch above `leader_epoch`.

    Raises CORRUPT_MESSAGE, and INVALID_RECORD unless each batch starts past the one before.
    """
    records, batches = validate_trusted(records)
    previous = -1
    for count, (position, header) in enumerate(batches):
        if header.leader_epoch > leader_epoch:
            return records[:position], batches[:count]
        if header.base_offset <= previous:
            raise _invalid(f"Out of order offsets: {header.base_offset} follows {previous}")
        previous = header.base_offset + header.last_offset_delta
    return records, batches
