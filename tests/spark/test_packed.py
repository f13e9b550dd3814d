"""Batches as values of one column: what comes out is what went in."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark import packed
from spark.decode import to_batch
from spark.schemas import RECORD_ARROW
from tests.spark.records import mixed


def test_what_is_unpacked_is_what_was_packed() -> None:
    batches = [to_batch(mixed(300, seed=1)), to_batch(mixed(200, seed=2))]
    rows = list(packed.pack(batches))
    assert [row.num_rows for row in rows] == [1, 1]
    assert packed.unpack(rows) == pa.Table.from_batches(batches)


def test_nothing_packed_is_a_table_without_rows() -> None:
    assert list(packed.pack([pa.RecordBatch.from_pylist([], schema=RECORD_ARROW)])) == []
    assert packed.unpack([]) == RECORD_ARROW.empty_table()


def test_a_large_batch_is_packed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = to_batch(mixed(500, seed=3))
    monkeypatch.setattr(packed, "PACKED_BYTES_MAX", batch.nbytes // 4)
    rows = list(packed.pack([batch]))
    assert 4 <= len(rows) <= 8
    assert packed.unpack(rows).combine_chunks() == pa.Table.from_batches([batch])
    monkeypatch.setattr(packed, "PACKED_BYTES_MAX", 1)  # a record that is larger than all that is allowed
    assert len(list(packed.pack([batch]))) == batch.num_rows


def test_large_records_at_one_end_make_no_large_value(monkeypatch: pytest.MonkeyPatch) -> None:
    records = mixed(400, seed=4)
    large = [(partition, offset, at_ms, key, b"\xff" * 1_000) for partition, offset, at_ms, key, _ in records[:40]]
    batch = to_batch([*large, *records[40:]])  # what cannot be read is kept, up to 1 KiB
    limit = batch.nbytes // 8
    monkeypatch.setattr(packed, "PACKED_BYTES_MAX", limit)
    schema_bytes = len(next(iter(packed.pack([batch.slice(399)]))).column(0)[0].as_py())
    sizes = [len(row.column(0)[0].as_py()) for row in packed.pack([batch])]
    assert max(sizes) < limit + 2 * schema_bytes
