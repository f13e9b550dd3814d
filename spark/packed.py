"""Batches of records as values of one binary column, each an Arrow stream.

Spark takes Arrow apart into rows and, for Python, makes Arrow of the rows again: twenty columns a record, which was
half of what its JVM did for the pipeline. Where Arrow goes in and Arrow comes out, a batch passes as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from spark.schemas import RECORD_ARROW

PACKED: Final = "packed"
PACKED_SCHEMA: Final = StructType([StructField(PACKED, BinaryType(), False)])
_PACKED_ARROW: Final = pa.schema([pa.field(PACKED, pa.binary(), False)])
# A value is in one piece in the JVM, which has 768 MB. Two thousand usual records are 0.4 MB.
PACKED_BYTES_MAX: Final = 8 << 20


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row of `PACKED_SCHEMA` for each batch, or for each part of one that is larger than `PACKED_BYTES_MAX`.

    A single record may be larger than that, up to what Kafka takes (`max.message.bytes`, 1 MiB).
    """
    for batch in batches:
        for part in _parts(batch):
            yield pa.RecordBatch.from_arrays([_value(part)], schema=_PACKED_ARROW)


def unpack(packed: Iterable[pa.RecordBatch]) -> pa.Table:
    """The records (`spark.schemas.RECORD_ARROW`) of all rows."""
    parts = [pa.ipc.open_stream(value.as_buffer()).read_all() for batch in packed for value in batch.column(0)]
    return pa.concat_tables(parts) if parts else RECORD_ARROW.empty_table()


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows > 1 and batch.nbytes > PACKED_BYTES_MAX:
        half = batch.num_rows // 2
        yield from _parts(batch.slice(0, half))
        yield from _parts(batch.slice(half))
    elif batch.num_rows:
        yield batch


def _value(batch: pa.RecordBatch) -> pa.Array:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    value = out.getvalue()
    ends = pa.py_buffer(np.array([0, value.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, value])
