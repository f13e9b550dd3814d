"""Checks of batches that a broker made, or that a leader has checked, before they are appended: shape and CRC. Records
are not looked at, as in Kafka.
"""

from __future__ import annotations

from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import BatchHeader, crc_valid, iter_batches

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
            raise KafkaError(ErrorCode.INVALID_RECORD, f"Out of order offsets: {header.base_offset} follows {previous}")
        previous = header.base_offset + header.last_offset_delta
    return records, batches
