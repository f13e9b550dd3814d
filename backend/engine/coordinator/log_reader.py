"""Reads the whole log of a coordinator's partition, letting others have a turn in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from backend.engine.common.unreadable_records import UnreadableRecords
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import tasks
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.record_batch import BatchHeader, Record, iter_batches, iter_records

# offsets.load.buffer.size and transaction.state.log.load.buffer.size of Kafka: bytes read at once.
LOAD_BYTES: Final = 5 << 20


class LoadedBatch(NamedTuple):
    """A batch with its records; a compacted batch may have fewer than its header says, or none."""

    header: BatchHeader
    records: list[Record]


async def batches_of(log: UnifiedLog, unreadable_records: UnreadableRecords) -> AsyncIterator[LoadedBatch]:
    """Every batch from the log's start to its end but those whose records are none. Raises KafkaError, and DecodeError
    where the log does not say where the next batch begins.
    """
    topic, partition = log.topic_partition
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        info = log.reader.read(offset, LOAD_BYTES, up_to_offset=log.log_end_offset, min_one_message=True)
        next_offset = offset
        for position, header in iter_batches(info.records):
            next_offset = header.next_offset
            try:
                records = [record for record in iter_records(info.records, position) if record.offset >= offset]
            except DecodeError as error:
                unreadable_records.note(
                    topic, partition, header.base_offset, str(error), last_offset=header.last_offset
                )
                continue
            yield LoadedBatch(header, records)
        if next_offset == offset:
            return
        offset = next_offset
        await tasks.sleep_ms(0)
