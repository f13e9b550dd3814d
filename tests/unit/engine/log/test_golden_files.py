"""The bytes that the classes of Apache Kafka 4.3 wrote for the same appends."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.engine.log.manager.log_directory import write_topic_id
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports.disk import OsDisk
from backend.protocol.record_batches.control_records import end_txn_marker
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.unit.engine.log.logs import NOW_MS, TIP, append, batch, files, open_test_log, replicate

EPOCHS = (0, 0, 0, 1, 1, 2, 2, 3)
SEGMENT_0 = (
    "00000000000000000000003c00000000024017795e0000000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff"
    "0000000114000000046b300476300000000000000000010000003c00000000023d906fac0000000000000000018bcfe568010000018bcfe568"
    "01ffffffffffffffffffffffffffff0000000114000000046b310476310000000000000000020000003c0000000002bb1954ba000000000000"
    "0000018bcfe568020000018bcfe56802ffffffffffffffffffffffffffff0000000114000000046b3204763200"
)
SEGMENT_3 = (
    "00000000000000030000003c0000000102c69e42480000000000000000018bcfe568030000018bcfe56803ffffffffffffffffffffffffffff"
    "0000000114000000046b330476330000000000000000040000003c000000010243347e6b0000000000000000018bcfe568040000018bcfe568"
    "04000000000000004d0000000000000000000114000000046b340476340000000000000000050000003c0000000202ccbf6567000000000000"
    "0000018bcfe568050000018bcfe56805000000000000004d0000000000010000000114000000046b3504763500"
)
GOLDEN = {
    "00000000000000000000.log": SEGMENT_0,
    "00000000000000000000.index": "00000001000000480000000200000090",
    "00000000000000000000.timeindex": "0000018bcfe56801000000010000018bcfe5680200000002",
    "00000000000000000003.log": SEGMENT_3,
    "00000000000000000003.index": "00000001000000480000000200000090",
    "00000000000000000003.timeindex": "0000018bcfe56804000000010000018bcfe5680500000002",
    "00000000000000000003.snapshot": "000148674bc700000000",
    "00000000000000000006.snapshot": (
        "0001536e05b200000001000000000000004d0000000000010000000000000005000000000000018bcfe56805ffffffffffffffffffffffff"
    ),
    "leader-epoch-checkpoint": b"0\n4\n0 0\n1 3\n2 5\n3 7\n".hex(),
}


def golden_log(folder: Path) -> UnifiedLog:
    log = open_test_log(folder)
    for index, epoch in enumerate(EPOCHS):
        if index in (3, 6):
            log.roll()
        if index in (4, 5):
            append(log, index, epoch=epoch, producer_id=77, producer_epoch=0, base_sequence=index - 4)
        else:
            append(log, index, epoch=epoch)
    return log


def test_appends_and_rolls_give_the_golden_files(tmp_path: Path) -> None:
    golden_log(tmp_path)
    paths = files(tmp_path)
    for name, hexadecimal in GOLDEN.items():
        assert paths[name].hex() == hexadecimal, name


def test_a_follower_that_fetches_the_same_batches_writes_the_same_files(tmp_path: Path) -> None:
    leader = golden_log(tmp_path / "leader")
    follower = open_test_log(tmp_path / "follower")
    for segment in leader.segments:
        if segment.base_offset:
            follower.roll()
        follower.append_as_follower(memoryview(segment.files.pread(segment.size_bytes, 0)), 3)
    paths = files(tmp_path / "follower")
    for name, hexadecimal in GOLDEN.items():
        assert paths[name].hex() == hexadecimal, name


def test_partition_metadata_has_43_bytes_and_no_newline_at_the_end(tmp_path: Path) -> None:
    write_topic_id(OsDisk(), str(tmp_path), TIP.topic_id)
    assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA"


def test_an_aborted_transaction_gives_the_golden_marker_index_and_snapshot(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0)
    data = build_batch(
        [RecordData(NOW_MS + i, f"k{i}".encode(), f"v{i}".encode()) for i in (1, 2)],
        producer_id=55, producer_epoch=3, base_sequence=0, transactional=True,
    )  # fmt: skip
    log.append_as_leader(memoryview(data), 0, now_ms=NOW_MS)
    log.update_high_watermark(3)
    assert log.last_stable_offset == 1
    marker = end_txn_marker(
        commit=False, producer_id=55, producer_epoch=3, coordinator_epoch=9, timestamp_ms=NOW_MS + 3
    )
    log.append_as_leader(memoryview(marker), 0, now_ms=NOW_MS, origin="coordinator")
    assert log.last_stable_offset == 1
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4
    log.roll()
    paths = files(tmp_path)
    assert paths["00000000000000000000.log"][155:].hex() == (
        "00000000000000030000004200000000021b2f19ca0030000000000000018bcfe568030000018bcfe5680300000000000000370003ffff"
        "ffff000000012000000008000000000c00000000000900"
    )
    assert paths["00000000000000000000.txnindex"].hex() == (
        "00000000000000000037000000000000000100000000000000030000000000000004"
    )
    assert paths["00000000000000000004.snapshot"].hex() == (
        "0001f5dd884b0000000100000000000000370003000000010000000000000002000000010000018bcfe5680300000009ffffffffffffffff"
    )
    assert [txn.first_offset for txn in log.reader.aborted_transactions(0, 4)] == [1]


def test_the_golden_segments_hold_three_batches_when_the_time_index_has_36_bytes(tmp_path: Path) -> None:
    from dataclasses import replace

    from tests.unit.engine.log.logs import DENSE

    log = open_test_log(tmp_path, replace(DENSE, segment_index_bytes=36))
    append(log, *range(10))
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    replicate(log)
    log.check()


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_golden_log_opens_again_with_rebuilt_files_equal(tmp_path: Path, name: str) -> None:
    golden_log(tmp_path).close_files()
    before = files(tmp_path)
    log = open_test_log(tmp_path)
    log.check()
    assert log.log_end_offset == 8
    assert log.leader_epochs.entries == ((0, 0), (1, 3), (2, 5), (3, 7))
    assert files(tmp_path)[name] == before[name]


def test_one_wrong_byte_is_noticed(tmp_path: Path) -> None:
    log = golden_log(tmp_path)
    log.append_as_leader(memoryview(batch(8)), 3, now_ms=NOW_MS)
    assert files(tmp_path)["00000000000000000006.log"] != files(tmp_path)["00000000000000000003.log"]
