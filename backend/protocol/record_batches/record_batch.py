"""Record batches of magic 2 (KIP-98, `DefaultRecordBatch`): the unit of the log, of Produce and of Fetch.

The header is 61 bytes, big endian. The CRC covers everything behind it, so that a leader sets base offset and leader
epoch in place without reading the records. Functions take a buffer and the position of a batch in it and copy nothing
but what they return.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from backend.protocol.buffers import Buffer
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.compression import DECOMPRESSED_BYTES_MAX, compress, decompress
from backend.protocol.record_batches.record_codec import Header, Record, RecordData, decode_records, encode_record

__all__ = [
    "HEADER_BYTES",
    "LOG_OVERHEAD_BYTES",
    "MAGIC",
    "BatchHeader",
    "Header",
    "Record",
    "RecordData",
    "build_batch",
    "crc_valid",
    "empty_batch",
    "iter_batches",
    "iter_records",
    "parse_header",
    "patch_max_timestamp",
    "patch_offset_and_epoch",
    "rebuild_batch",
]

MAGIC: Final = 2
HEADER_BYTES: Final = 61
# Base offset and length: what the length field does not count.
LOG_OVERHEAD_BYTES: Final = 12
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_COMPRESSION_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40
NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
_SEQUENCES: Final = 1 << 31  # sequences go from 0 to 2^31 - 1 and start again

_HEADER: Final = Struct(">qiibIhiqqqhii")
_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")


class BatchHeader(NamedTuple):
    """The header of a batch. `size_bytes` is the whole batch, header included."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without one; sequences wrap from 2^31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    @property
    def compression(self) -> int:
        """Bits 0-2 of the attributes; may be a codec that does not exist."""
        return self.attributes & _COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time from which compaction may drop the batch's tombstones (KIP-534)."""
        return bool(self.attributes & _DELETE_HORIZON)

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER


def parse_header(buffer: Any, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, of whatever magic: look at `magic` before anything behind it.

    Raises DecodeError when fewer than 61 bytes are left or the batch claims to be smaller than its header. The batch
    may be cut off by the end of the buffer: compare `size_bytes`.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise DecodeError(f"a batch header has {HEADER_BYTES} bytes and {max(0, len(buffer) - position)} are left")
    fields = _HEADER.unpack_from(buffer, position)
    length = fields[1]
    if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        raise DecodeError(f"the batch at byte {position} claims a length of {length}, less than its header")
    return tuple.__new__(BatchHeader, (fields[0], length + LOG_OVERHEAD_BYTES, *fields[2:]))


def iter_batches(buffer: Any, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; stops before a tail that is cut off.

    Raises DecodeError at a batch of another magic or with an impossible length. Checks no CRC.
    """
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = parse_header(buffer, position)
        if header.magic != MAGIC:
            raise DecodeError(f"the batch at byte {position} has magic {header.magic}; only magic {MAGIC} is supported")
        if header.size_bytes > end - position:
            return
        yield position, header
        position += header.size_bytes


def crc_valid(buffer: Any, position: int, header: BatchHeader) -> bool:
    """Whether the batch is whole and its CRC-32C is right."""
    end = position + header.size_bytes
    return end <= len(buffer) and crc32c(memoryview(buffer)[position + _CRC_FROM : end]) == header.crc


def patch_offset_and_epoch(buffer: Any, position: int, base_offset: int, leader_epoch: int) -> None:
    """Gives the batch its place in the log, in place; the CRC does not cover these fields."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + LOG_OVERHEAD_BYTES, leader_epoch)


def patch_max_timestamp(buffer: Any, position: int, timestamp_ms: int, *, log_append_time: bool) -> None:
    """Sets the largest timestamp and its kind, in place, and the CRC (`DefaultRecordBatch.setMaxTimestamp`)."""
    header = parse_header(buffer, position)
    attributes = header.attributes & ~_LOG_APPEND_TIME | (_LOG_APPEND_TIME if log_append_time else 0)
    _ATTRIBUTES.pack_into(buffer, position + _CRC_FROM, attributes)
    _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    crc = crc32c(memoryview(buffer)[position + _CRC_FROM : position + header.size_bytes])
    _CRC.pack_into(buffer, position + _CRC_AT, crc)


def iter_records(buffer: Any, position: int = 0, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of the batch at `position`, of which decompression may make at most `max_bytes`.

    Raises DecodeError for a batch that is cut off, of another magic, or whose records are not what the header says.
    Checks no CRC. Control batches give their records too.
    """
    header = parse_header(buffer, position)
    end = position + header.size_bytes
    if header.magic != MAGIC:
        raise DecodeError(f"the batch at byte {position} has magic {header.magic}; only magic {MAGIC} is supported")
    if end > len(buffer):
        raise DecodeError(
            f"the batch at byte {position} has {header.size_bytes} bytes and {len(buffer) - position} are left"
        )
    body = memoryview(buffer)[position + HEADER_BYTES : end]
    data = bytes(decompress(header.compression, body, max_bytes))
    append_time = header.max_timestamp if header.is_log_append_time else None
    return decode_records(data, header.record_count, header.base_offset, header.base_timestamp, append_time)


def build_batch(
    records: Sequence[RecordData],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: bool = False,
    compression_level: int | None = None,
) -> bytearray:
    """A whole batch with its CRC; offsets are consecutive. ValueError without records."""
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp_ms
    body = b"".join(
        [encode_record(record, record.timestamp_ms - base_timestamp, index) for index, record in enumerate(records)]
    )
    data = compress(compression, body, compression_level)
    attributes = compression | log_append_time * _LOG_APPEND_TIME | transactional * _TRANSACTIONAL | control * _CONTROL
    batch = bytearray(HEADER_BYTES + len(data))
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        base_timestamp,
        max(record.timestamp_ms for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch[HEADER_BYTES:] = data
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_FROM:]))
    return batch


def rebuild_batch(header: BatchHeader, records: Sequence[Record], delete_horizon_ms: int | None) -> bytearray:
    """A batch with fewer of its records, as compaction leaves it (`MemoryRecords.buildRetainedRecordsInto`).

    Offsets of the batch and of its records, producer, epoch, codec and kind of timestamp stay. A delete horizon takes
    the place of the base timestamp (KIP-534). ValueError without records: see :func:`empty_batch`.
    """
    if not records:
        raise ValueError("a batch without records is made by empty_batch")
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    maximum = max(record.timestamp for record in records)
    body = b"".join(
        [
            encode_record(
                RecordData(record.timestamp, record.key, record.value, record.headers),
                record.timestamp - base_timestamp,
                record.offset - header.base_offset,
            )
            for record in records
        ]
    )
    attributes = header.attributes & ~_DELETE_HORIZON | (0 if delete_horizon_ms is None else _DELETE_HORIZON)
    return _packed(header, attributes, base_timestamp, maximum, len(records), compress(header.compression, body))


def empty_batch(header: BatchHeader) -> bytearray:
    """A batch without any record: it keeps only offsets and the producer's sequence (`writeEmptyHeader` of Kafka)."""
    attributes = header.attributes & (_LOG_APPEND_TIME | _TRANSACTIONAL | _CONTROL)
    return _packed(header, attributes, -1, header.max_timestamp, 0, b"")


def _packed(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, count: int, data: Buffer
) -> bytearray:
    batch = bytearray(HEADER_BYTES + len(data))
    fixed = (header.base_offset, len(batch) - LOG_OVERHEAD_BYTES, header.leader_epoch, MAGIC, 0, attributes)
    times = (header.last_offset_delta, base_timestamp, max_timestamp)
    _HEADER.pack_into(batch, 0, *fixed, *times, header.producer_id, header.producer_epoch, header.base_sequence, count)
    batch[HEADER_BYTES:] = data
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_FROM:]))
    return batch
