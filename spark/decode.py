"""Kafka records to Arrow: what the source does with bytes. Needs no Spark and no Kafka.

Usual events are decoded in bulk (`backend.tiering.bulk_events`), the others one by one; both give the same columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    RemoteLogMetadata,
    SegmentMetadata,
    SegmentUpdate,
    Unreadable,
    UnreadableReason,
    decode,
)
from backend.store.storable import storable
from backend.tiering.bulk_events import CanonicalEvents, id_texts, split
from backend.tiering.ids import uuid_text
from spark.schemas import KIND_PARTITION_DELETE, KIND_SEGMENT, KIND_UPDATE, RECORD_ARROW

# A quarantined value is kept for a person to look at, the topic still holds the whole. Kafka allows
# 1 MiB a record; a batch of 50 000 such must not fill the driver: 50 000 * 2 * 1 KiB are 100 MB.
RAW_VALUE_BYTES_MAX: Final = 1_024
# Kafka's longest name of a topic.
TOPIC_CHARS_MAX: Final = 249
_NOTHING: Final = (None,) * 15  # kind … txn_index_empty
_DECODED: Final = pa.schema(list(RECORD_ARROW)[3:])  # all after the record's place

# (partition, offset, timestamp in ms, key, value)
RawRecord = tuple[int, int, int, bytes | None, bytes | None]

# Topic ids repeat in every record: 65 536 of about 150 bytes are 10 MB at most.
_id_text = lru_cache(maxsize=1 << 16)(uuid_text)


def to_batch(records: Iterable[RawRecord]) -> pa.RecordBatch:
    """Decode ``records`` into one Arrow batch of `RECORD_ARROW`, in their order. Never raises for what one holds."""
    rows = list(records)
    if not rows:
        return pa.RecordBatch.from_pylist([], schema=RECORD_ARROW)
    partitions, offsets, times, _, values = zip(*rows, strict=True)
    groups, rest = split(values)
    parts = [_one_by_one([rows[at] for at in rest])] if rest or not groups else []
    parts += [_canonical(group) for group in groups]
    decoded = pa.Table.from_batches(parts)
    places = np.concatenate([np.asarray(rest, np.int64), *(group.positions for group in groups)])
    columns = decoded.take(pa.array(np.argsort(places))).combine_chunks().columns
    arrays = [pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64()), pa.array(times, pa.int64())]
    arrays += [column.chunk(0) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORD_ARROW)


def passed_over(partition: int, start: int, end: int) -> pa.RecordBatch:
    """The row of offsets `[start, end)` from which no record can be had, at the last of them."""
    where = f"offset {start}" if end - start == 1 else f"offsets {start} to {end - 1}"
    problem = f"{UnreadableReason.MALFORMED}: {where} hold a batch whose records cannot be read"
    row = (partition, end - 1, 0, *_NOTHING, problem, None, None)
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip(row, RECORD_ARROW, strict=True)], schema=RECORD_ARROW
    )


def _one_by_one(records: list[RawRecord]) -> pa.RecordBatch:
    columns = zip(*(_row(key, value) for *_, key, value in records), strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _DECODED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_DECODED)


def _canonical(events: CanonicalEvents) -> pa.RecordBatch:
    rows, count = events.rows, len(events.rows)
    columns: dict[str, pa.Array] = {
        "kind": _all(KIND_SEGMENT if events.is_segment else KIND_UPDATE, pa.int16(), count),
        "topic": _texts(np.ascontiguousarray(rows["name"]).tobytes(), count),
        "topic_id": _texts(id_texts(rows["topic_id"]), count),
        "partition": _numbers(rows["partition"], np.int32),
        "segment_id": _texts(id_texts(rows["id"]), count),
        "state": _numbers(rows["state"], np.int16),
        "broker_id": _numbers(rows["broker"], np.int32),
        "event_timestamp_ms": _numbers(rows["event_ms"], np.int64),
    }
    if events.is_segment:
        epoch, offset = (_numbers(rows[name], np.int64).cast(pa.string()) for name in ("epoch", "epoch_start"))
        columns |= {
            "start_offset": _numbers(rows["start"], np.int64),
            "end_offset": _numbers(rows["end"], np.int64),
            "max_timestamp_ms": _numbers(rows["max_ms"], np.int64),
            "segment_size_bytes": _numbers(rows["size"], np.int32),
            "leader_epochs": pc.binary_join_element_wise("[[", epoch, ", ", offset, "]]", ""),
            "txn_index_empty": _all(events.txn_index_empty, pa.bool_(), count),
        }
    nothing = pa.nulls(count)
    arrays = [columns[field.name] if field.name in columns else nothing.cast(field.type) for field in _DECODED]
    return pa.RecordBatch.from_arrays(arrays, schema=_DECODED)


def _all(value: int | bool, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _numbers(column: npt.NDArray[Any], kind: type[np.signedinteger[Any]]) -> pa.Array:
    return pa.array(column.astype(kind))


def _texts(joined: bytes, count: int) -> pa.Array:
    """``count`` texts of the same length, which stand one after the other in ``joined``."""
    ends = np.arange(count + 1, dtype=np.int32) * (len(joined) // count)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(joined))


def _row(key: bytes | None, value: bytes | None) -> tuple[Any, ...]:
    """The content of a record: all columns after its place."""
    try:
        event = decode(value)
    except Unreadable as error:
        problem = storable(f"{error.reason}: {error}")
    else:
        columns = _columns(event)
        if isinstance(columns, tuple):
            return (*columns, None, None, None)
        problem = columns
    kept = None if value is None else value[:RAW_VALUE_BYTES_MAX]
    if value is not None and len(value) > RAW_VALUE_BYTES_MAX:
        problem += f" (the first {RAW_VALUE_BYTES_MAX} of {len(value)} bytes are kept)"
    raw_key = None if key is None else key[:RAW_VALUE_BYTES_MAX]
    return (*_NOTHING, problem, raw_key, kept)


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
    if len(tip.topic) > TOPIC_CHARS_MAX:  # PostgreSQL's indexes take no text of any length
        return f"invalid-value: the topic name has {len(tip.topic)} characters, {TOPIC_CHARS_MAX} are allowed"
    return (kind, tip.topic, _id_text(tip.topic_id), tip.partition, segment, int(state), broker, event_ms, *rest)


def _epochs_json(epochs: tuple[tuple[int, int], ...]) -> str:
    if len(epochs) == 1:
        return f"[[{epochs[0][0]}, {epochs[0][1]}]]"
    return "[" + ", ".join(f"[{epoch}, {offset}]" for epoch, offset in epochs) + "]"
