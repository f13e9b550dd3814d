"""Offset, time and transaction index, checkpoints and names, alone."""

from __future__ import annotations

import pytest

from backend.engine.log.checkpoint_files import (
    MalformedCheckpoint,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_epochs,
    encode_offsets,
)
from backend.engine.log.file_names import base_offset_of, dir_name_for_delete, file_name, parse_dir_name
from backend.engine.log.log_errors import LogDirError
from backend.engine.log.segments.offset_index import OffsetIndex
from backend.engine.log.segments.time_index import TimeIndex
from backend.engine.log.segments.transaction_index import AbortedTxn, decode_txn_index, search_aborted
from backend.tiering.ids import TopicPartition


def test_the_offset_index_finds_the_entry_at_or_below() -> None:
    index = OffsetIndex(100)
    assert index.lookup(150) == (100, 0)
    for offset, position in ((110, 50), (120, 90)):
        index.append(offset, position)
    assert [index.lookup(o) for o in (100, 109, 110, 119, 120, 999)] == [
        (100, 0), (100, 0), (110, 50), (110, 50), (120, 90), (120, 90),
    ]  # fmt: skip
    assert [index.upper_bound(p) for p in (0, 50, 51, 90, 91)] == [110, 110, 120, 120, None]
    assert OffsetIndex.decode(100, index.encode()).entries() == [(110, 50), (120, 90)]
    index.truncate_to(120)
    assert index.entries() == [(110, 50)]


def test_a_preallocated_index_file_ends_at_its_last_entry() -> None:
    index = OffsetIndex(0)
    index.append(3, 72)
    assert OffsetIndex.decode(0, index.encode() + bytes(80)).entries() == [(3, 72)]
    times = TimeIndex(0)
    times.maybe_append(5, 3)
    assert TimeIndex.decode(0, times.encode() + bytes(120)).entries() == [(5, 3)]


@pytest.mark.parametrize("data", [bytes(7), b"\0\0\0\5\0\0\0\5\0\0\0\4\0\0\0\6", b"\xff" * 8])
def test_an_offset_index_that_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="offset index"):
        OffsetIndex.decode(0, data)


@pytest.mark.parametrize("data", [bytes(11), b"\0" * 7 + b"\5" + bytes(4) + b"\0" * 7 + b"\5" + bytes(4)])
def test_a_time_index_that_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="time index"):
        TimeIndex.decode(0, data)


def test_the_time_index_takes_growing_timestamps_only() -> None:
    index = TimeIndex(10)
    for timestamp, offset in ((5, 10), (5, 11), (4, 12), (9, 13)):
        index.maybe_append(timestamp, offset)
    assert index.entries() == [(5, 10), (9, 13)]
    assert [index.lookup(t) for t in (4, 5, 8, 9, 10)] == [(-1, 10), (5, 10), (5, 10), (9, 13), (9, 13)]
    index.truncate_to(13)
    assert index.last == (5, 10)


def test_aborted_transactions_are_searched_until_complete() -> None:
    first, second, third = AbortedTxn(1, 0, 5, 3), AbortedTxn(2, 3, 8, 9), AbortedTxn(3, 12, 20, 21)
    entries = [first, second, third]
    assert search_aborted(entries, 0, 3) == ([first], True)
    assert search_aborted(entries, 6, 9) == ([second], True)
    assert search_aborted(entries, 9, 13) == ([third], True)
    assert search_aborted(entries, 21, 30) == ([], False)
    assert decode_txn_index(b"".join(entry.encode() for entry in entries)) == entries
    with pytest.raises(ValueError, match="transaction index"):
        decode_txn_index(bytes(33))


def test_checkpoints_read_back_and_refuse_what_is_malformed() -> None:
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b.c-d", 12): 0}
    assert decode_offsets(encode_offsets(offsets)) == offsets
    assert encode_epochs([(0, 0), (3, 7)]) == b"0\n2\n0 0\n3 7\n"
    assert decode_epochs(b"") == []
    for data in (b"1\n0\n", b"0\n2\na 0 1\n", b"0\nx\n", b"0\n1\na 0\n", b"0\n1\na b 1\n", b"\xff\xfe"):
        with pytest.raises(MalformedCheckpoint):
            decode_offsets(data)
    with pytest.raises(MalformedCheckpoint):
        decode_partition_metadata(b"version: 1\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA")
    with pytest.raises(LogDirError, match="format version 9"):
        decode_meta_properties(b"version=9\ncluster.id=a\n", "x/meta.properties")


def test_names_of_files_and_folders() -> None:
    assert file_name(42, ".log") == "00000000000000000042.log"
    assert base_offset_of("00000000000000000042.timeindex") == 42
    assert base_offset_of("leader-epoch-checkpoint") is None
    assert parse_dir_name("a-b.c_d-12") == TopicPartition("a-b.c_d", 12)
    unique = bytes(range(16))
    doomed = dir_name_for_delete(TopicPartition("orders", 0), unique)
    assert doomed == "orders-0.000102030405060708090a0b0c0d0e0f-delete"
    assert len(dir_name_for_delete(TopicPartition("t" * 249, 123), unique)) == 255
    for name in (doomed, "orders-0.x-future", "orders-0-stray", "orders", "-1", "remote-log-index-cache"):
        assert parse_dir_name(name) is None
