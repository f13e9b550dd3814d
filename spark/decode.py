"""Kafka records to Arrow: what the source does with bytes. Needs no Spark and no Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from backend.protocol.remote_log_metadata import (
    PartitionDelete,
    RemoteLogMetadata,
    SegmentMetadata,
    SegmentUpdate,
    Unreadable,
    decode,
)
from backend.tiering.ids import uuid_text
from spark.schemas import KIND_PARTITION_DELETE, KIND_SEGMENT, KIND_UPDATE, RECORD_ARROW

# A quarantined value is kept for a person to look at, the topic still holds the whole. Kafka allows
# 1 MiB a record; a batch of 50 000 such must not fill the driver: 50 000 * 2 * 1 KiB are 100 MB.
RAW_VALUE_BYTES_MAX: Final = 1_024
_NOTHING: Final = (None,) * 15  # kind … txn_index_empty

# (partition, offset, timestamp in ms, key, value)
RawRecord = tuple[int, int, int, bytes | None, bytes | None]

# Topic ids repeat in every record: 65 536 of about 150 bytes are 10 MB at most.
_id_text = lru_cache(maxsize=1 << 16)(uuid_text)


def to_batch(records: Iterable[RawRecord]) -> pa.RecordBatch:
    """Decode ``records`` into one Arrow batch of `RECORD_ARROW`. Never raises for what a record holds."""
    rows = [_row(*record) for record in records]
    columns = zip(*rows, strict=True) if rows else ([] for _ in RECORD_ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORD_ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_ARROW)


def _row(partition: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> tuple[Any, ...]:
    try:
        event = decode(value)
    except Unreadable as error:
        problem = f"{error.reason}: {error}"
    else:
        columns = _columns(event)
        if isinstance(columns, tuple):
            return (partition, offset, timestamp_ms, *columns, None, None, None)
        problem = columns
    kept = None if value is None else value[:RAW_VALUE_BYTES_MAX]
    if value is not None and len(value) > RAW_VALUE_BYTES_MAX:
        problem += f" (the first {RAW_VALUE_BYTES_MAX} of {len(value)} bytes are kept)"
    raw_key = None if key is None else key[:RAW_VALUE_BYTES_MAX]
    return (partition, offset, timestamp_ms, *_NOTHING, problem, raw_key, kept)


def _columns(event: RemoteLogMetadata) -> tuple[Any, ...] | str:
    """The event's columns in schema order, or why it does not belong in this topic."""
    match event:
        case SegmentMetadata(tip, segment_id, start, end, broker, max_ms, event_ms, epochs, size, custom, state, txn):
            kind, segment = KIND_SEGMENT, uuid_text(segment_id)
            rest: tuple[Any, ...] = (start, end, max_ms, size, _epochs_json(epochs), custom, txn)
        case SegmentUpdate(tip, segment_id, broker, event_ms, custom, state):
            kind, segment = KIND_UPDATE, uuid_text(segment_id)
            rest = (None, None, None, None, None, custom, None)
        case PartitionDelete(tip, broker, event_ms, delete_state):
            kind, segment, state = KIND_PARTITION_DELETE, None, delete_state  # type: ignore[assignment]  # two enums
            rest = (None, None, None, None, None, None, None)
        case _:
            return "record-key: a snapshot record belongs in a file, Kafka never publishes it"
    if "\x00" in tip.topic:  # PostgreSQL cannot store it, and no topic name may hold it
        return "invalid-value: the topic name holds a zero character"
    return (kind, tip.topic, _id_text(tip.topic_id), tip.partition, segment, int(state), broker, event_ms, *rest)


def _epochs_json(epochs: tuple[tuple[int, int], ...]) -> str:
    if len(epochs) == 1:
        return f"[[{epochs[0][0]}, {epochs[0][1]}]]"
    return "[" + ", ".join(f"[{epoch}, {offset}]" for epoch, offset in epochs) + "]"
