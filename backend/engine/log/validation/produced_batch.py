"""Checks of records before they are appended (`UnifiedLog.analyzeAndValidateRecords`, `LogValidator` and
`ProduceRequest.validateRecords` of Kafka; the codes are those that running brokers answered).

Every record of a client's batch is looked at, in compiled code where they are many (`record_validation`); compressed
ones are decompressed once, bounded. :func:`validate_produced` needs nothing but its arguments, so that a worker may
do it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from backend.engine.log.log_config import LogConfig
from backend.engine.log.log_errors import InvalidBatch
from backend.engine.log.validation.record_rules import NO_TIMESTAMP, check_record_rules
from backend.protocol.buffers import Buffer
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.record_batches.compression import (
    DECOMPRESSED_BYTES_MAX,
    Compression,
    check_lz4_frame,
    decompress,
)
from backend.protocol.record_batches.record_batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    RecordData,
    build_batch,
    crc_valid,
    iter_records,
    parse_header,
    patch_max_timestamp,
)
from backend.protocol.record_batches.record_check import MalformedRecords, RecordsSummary
from backend.protocol.record_batches.record_validation import check_records
from backend.tiering.ids import TopicPartition

_MAGIC_AT: Final = 16
_TARGET_CODECS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


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


class ValidatedBatch(NamedTuple):
    """A batch that may be appended: writable, and without what followed it. `decompressed_bytes` is what its codec gave
    back for that, 0 without a codec.
    """

    records: memoryview
    header: BatchHeader
    decompressed_bytes: int


def validate_produced(
    records: memoryview,
    config: LogConfig,
    partition: TopicPartition,
    *,
    now_ms: int,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> ValidatedBatch:
    """The one batch of a client's produce request for a partition, ready to be given its offset. `records` is patched
    in place where it is writable: its largest timestamp becomes that of its records.

    Raises KafkaError with Kafka's codes: CORRUPT_MESSAGE (CRC, magic), INVALID_RECORD (shape, counts, control batch,
    records that are none or lack a key), MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP,
    UNKNOWN_SERVER_ERROR (compression that is not what it says or holds more than `decompressed_bytes_max`).
    """
    header = _one_batch(records)
    size_bytes = header.size_bytes
    if len(records) > size_bytes:
        records = records[:size_bytes]
    _check_header(header, records, config)
    payload = records[HEADER_BYTES:]
    body: Buffer = payload
    decompressed_bytes = 0
    if header.compression:
        body = _decompressed(header, payload, decompressed_bytes_max)
        decompressed_bytes = len(body)
    rebuilt = config.compression_type != "producer" and _TARGET_CODECS[config.compression_type] != header.compression
    summary = _check_body(header, body, rebuilt)
    max_timestamp = check_record_rules(header, records, summary, config, partition, now_ms)
    if records.readonly:
        records = memoryview(bytearray(records))
    if rebuilt:
        if header.base_timestamp + summary.delta_ms_min < NO_TIMESTAMP and not config.is_log_append_time:
            # Kafka's builder refuses them, where it lets them pass in a batch that stays as it is.
            text = "Records with times before 1970 cannot be compressed again"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        records = _recompressed(header, records, config)
        header = parse_header(records)
        if header.size_bytes > config.max_message_bytes:
            raise _too_large(header.size_bytes, config)
    if config.is_log_append_time:
        patch_max_timestamp(records, 0, now_ms, log_append_time=True)
        header = parse_header(records)
    elif header.max_timestamp != max_timestamp:
        patch_max_timestamp(records, 0, max_timestamp, log_append_time=False)
        header = parse_header(records)
    if header.size_bytes > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {header.size_bytes} bytes in append, "
            f"which exceeds the maximum configured segment size of {config.segment_bytes}",
        )
    return ValidatedBatch(records, header, decompressed_bytes)


def _one_batch(records: memoryview) -> BatchHeader:
    try:
        header = parse_header(records)
    except DecodeError:
        pass
    else:
        if header.magic == MAGIC and header.size_bytes == len(records):
            return header
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
    if header.has_producer and header.base_sequence < 0:
        raise _inconsistent(
            f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}"
        )
    if header.is_control:
        raise _inconsistent("Clients are not allowed to write control records")


def _decompressed(header: BatchHeader, body: memoryview, bytes_max: int) -> Buffer:
    try:
        data = decompress(header.compression, body, bytes_max)
        if header.compression == Compression.LZ4:
            check_lz4_frame(body)
    except DecodeError as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The batch cannot be decompressed with codec {header.compression}: {error}"
        ) from None
    return data


def _check_body(header: BatchHeader, body: Buffer, rebuilt: bool) -> RecordsSummary:
    try:
        summary = check_records(body, header.record_count)
    except MalformedRecords as error:
        # Damage on which Kafka's reader of uncompressed batches fails is no "invalid record" to Kafka.
        unreadable = error.length_unreadable and not header.compression
        code = ErrorCode.UNKNOWN_SERVER_ERROR if unreadable else ErrorCode.INVALID_RECORD
        raise KafkaError(code, f"The records of the batch are malformed: {error}") from None
    if not summary.consecutive and not rebuilt:
        # Kafka takes them in plain batches, and its consumers then pass over records, or count the same ones twice.
        code = ErrorCode.UNKNOWN_SERVER_ERROR if header.compression else ErrorCode.INVALID_RECORD
        raise KafkaError(code, "The offset deltas of the records are not 0, 1, 2 and so on")
    return summary


def _records(records: memoryview) -> list[RecordData]:
    try:
        return [RecordData(r.timestamp, r.key, r.value, r.headers) for r in iter_records(records)]
    except DecodeError as error:
        raise _invalid(f"The records of the batch are malformed: {error}") from None


def _recompressed(header: BatchHeader, records: memoryview, config: LogConfig) -> memoryview:
    codec = _TARGET_CODECS[config.compression_type]
    compression_levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return memoryview(
        build_batch(
            _records(records),
            compression=codec,
            compression_level=compression_levels.get(codec),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
    )
