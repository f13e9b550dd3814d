"""Batches of metadata records as they stand in `__cluster_metadata-0` (`RecordsBatchReader` of Kafka)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from backend.protocol import cluster_metadata
from backend.protocol.errors import DecodeError
from backend.protocol.messages import Message
from backend.protocol.record_batches.record_batch import build_batch, crc_valid, iter_batches, iter_records
from backend.protocol.record_batches.record_codec import RecordData


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """A batch of metadata records as it stands in the log; control batches have no records."""

    base_offset: int
    last_offset: int
    epoch: int
    records: tuple[object, ...]
    timestamp_ms: int = 0
    size_bytes: int = 0


def decode_record(value: bytes | None) -> object:
    """One record, as `cluster_metadata.decode`."""
    return cluster_metadata.decode(value)[0]


def decode_batches(
    data: bytes | bytearray | memoryview, decode: Callable[[bytes | None], object] = decode_record
) -> Iterator[MetadataBatch]:
    """Whole batches with their records; DecodeError for a bad CRC or a record that cannot be read.

    Records of a kind that Kafka 4.3 does not have come as `cluster_metadata.UnknownRecord`.
    """
    for position, header in iter_batches(data):
        if not crc_valid(data, position, header):
            raise DecodeError(f"the metadata batch at offset {header.base_offset} has a wrong CRC")
        records: tuple[object, ...] = ()
        if not header.is_control:
            records = tuple(decode(record.value) for record in iter_records(data, position))
        yield MetadataBatch(
            header.base_offset,
            header.last_offset,
            header.leader_epoch,
            records,
            header.max_timestamp,
            header.size_bytes,
        )


def encode_batch(records: Sequence[Message], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """One batch, which is atomic in the log; every record in the newest version, as metadata version 4.3-IV0 has it."""
    data = [RecordData(now_ms, None, cluster_metadata.encode(record, record.MAX_VERSION)) for record in records]
    return build_batch(data, base_offset=base_offset, leader_epoch=epoch)
