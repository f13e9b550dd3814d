"""Appending, reading, offsets, truncation and rolling of a partition log."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from backend.engine.log.local_log import RANGE_BYTES_MIN
from backend.engine.log.log_config import LogConfig
from backend.engine.log.log_errors import NoSpace, OffsetOutOfRange, UnexpectedAppendOffset
from backend.engine.log.unified_log import LogListener, UnifiedLog
from backend.engine.ports.file_range import FileUnreadable, OsFileRange
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.unit.engine.log.logs import DENSE, NOW_MS, append, batch, files, open_test_log, replicate, values
from tests.unit.engine.log.test_full_disk import files_of_at_most

BATCH_BYTES = 72


def read(log: UnifiedLog, offset: int, max_bytes: int, *, up_to: int | None = None, whole: bool = True) -> bytes:
    end = log.log_end_offset if up_to is None else up_to
    return log.reader.read(offset, max_bytes, up_to_offset=end, min_one_message=whole).records


def bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# --- reading


def test_a_read_returns_raw_bytes_up_to_the_limit_with_a_cut_last_batch(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, *range(5))
    assert len(read(log, 0, 100)) == 100
    assert len(read(log, 0, 10_000)) == 5 * BATCH_BYTES
    assert read(log, 2, 10_000) == log.active_segment.files.pread(10_000, 2 * BATCH_BYTES)


def test_the_first_batch_comes_whole_only_when_asked_for(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, *range(3))
    assert len(read(log, 1, 10)) == BATCH_BYTES
    assert log.reader.read(1, 10, up_to_offset=3, min_one_message=False).records == b""
    assert log.reader.read(1, 0, up_to_offset=3, min_one_message=False).records == b""
    assert len(read(log, 1, 0)) == BATCH_BYTES


def test_a_read_ends_below_the_offset_given(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, *range(5))
    assert len(read(log, 0, 10_000, up_to=3)) == 3 * BATCH_BYTES
    assert read(log, 3, 10_000, up_to=3) == b""
    assert len(read(log, 0, 1, up_to=1)) == BATCH_BYTES


def test_an_offset_inside_a_batch_gives_the_whole_batch(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    log.append_as_leader(memoryview(batch(0, 10)), 0, now_ms=NOW_MS)
    whole = read(log, 0, 10_000)
    assert read(log, 7, 10_000) == whole
    # The position of a batch that is not replicated entirely is its start.
    assert read(log, 0, 10_000, up_to=7) == b""


def test_many_bytes_that_are_to_be_sent_stay_in_their_file(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, *range(2 * RANGE_BYTES_MIN // BATCH_BYTES))
    end = log.log_end_offset
    for size, kind in (
        (RANGE_BYTES_MIN - 1, bytes),
        (RANGE_BYTES_MIN, OsFileRange),
        (2 * RANGE_BYTES_MIN, OsFileRange),
    ):
        sent = log.reader.read_file_range(0, size, up_to_offset=end, min_one_message=False).records
        assert type(sent) is kind
        read_here = log.reader.read(0, size, up_to_offset=end, min_one_message=False).records
        assert type(read_here) is bytes
        assert bytes(sent) == read_here


def test_a_first_batch_above_the_limit_stays_in_its_file_too_or_is_left_out(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    large = batch(0, RANGE_BYTES_MIN // 8)  # 16 bytes a record
    assert len(large) > 2 * RANGE_BYTES_MIN - 1000
    log.append_as_leader(memoryview(large), 0, now_ms=NOW_MS)
    for limit in (0, 100, RANGE_BYTES_MIN):
        sent = log.reader.read_file_range(0, limit, up_to_offset=log.log_end_offset, min_one_message=True).records
        assert type(sent) is OsFileRange
        assert bytes(sent) == log.active_segment.files.pread(len(large), 0)
        assert (
            log.reader.read_file_range(0, limit, up_to_offset=log.log_end_offset, min_one_message=False).records == b""
        )


def test_a_disk_that_does_not_give_what_is_being_sent_takes_the_log_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_test_log(tmp_path)
    append(log, *range(2 * RANGE_BYTES_MIN // BATCH_BYTES))
    sent = log.reader.read_file_range(0, RANGE_BYTES_MIN, up_to_offset=log.log_end_offset, min_one_message=True).records
    assert isinstance(sent, OsFileRange)

    def fail(*_: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "sendfile", fail)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(FileUnreadable):
        sent.send_to(ours.fileno())
    with pytest.raises(KafkaError, match=r"offline: could not read .*Input/output error"):
        read(log, 0, 100)


def test_a_read_never_crosses_a_segment_and_the_next_goes_on_there(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, 1)
    log.roll()
    append(log, 2)
    assert len(read(log, 0, 10_000)) == 2 * BATCH_BYTES
    assert len(read(log, 2, 10_000)) == BATCH_BYTES
    info = log.reader.read(1, 10_000, up_to_offset=3, min_one_message=True)
    assert (info.segment_base_offset, info.position) == (0, BATCH_BYTES)


def test_offsets_outside_the_log_are_out_of_range(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, *range(3))
    replicate(log)
    assert read(log, 3, 100) == b""
    log.maybe_increment_log_start_offset(2)
    for offset in (-1, 1, 4):
        with pytest.raises(OffsetOutOfRange):
            read(log, offset, 100)
    assert len(read(log, 2, 100)) == BATCH_BYTES


def test_a_gap_left_by_compaction_is_skipped(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    data = batch(0, base_offset=0) + batch(9, base_offset=9)
    log.append_as_follower(memoryview(data), 0)
    assert log.log_end_offset == 10
    assert len(read(log, 4, 10_000)) == BATCH_BYTES
    assert values(log, 1) == [(9, b"v9")]


def test_many_small_batches_are_found_with_a_sparse_index(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, LogConfig(index_interval_bytes=4096))
    append(log, *range(300))
    log.close()
    again = open_test_log(tmp_path, LogConfig(index_interval_bytes=4096), clean=True)
    assert 0 < len(again.active_segment.offset_index) < 10
    for offset in (0, 1, 57, 58, 199, 299):
        assert values(again, offset)[0] == (offset, f"v{offset}".encode())


# --- appending


def test_offsets_and_epochs_are_given_by_the_leader(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    infos = append(log, 0, 1, epoch=4)
    assert [(info.first_offset, info.last_offset) for info in infos] == [(0, 0), (1, 1)]
    assert log.append_as_leader(memoryview(batch(2, 5)), 6, now_ms=NOW_MS).last_offset == 6
    assert log.leader_epochs.entries == ((4, 0), (6, 2))
    assert log.end_offset_for_epoch(4) == (4, 2)
    assert log.end_offset_for_epoch(5) == (4, 2)
    assert log.end_offset_for_epoch(6) == (6, 7)
    assert log.end_offset_for_epoch(7) == (-1, -1)


def test_a_followers_append_below_the_log_end_is_refused(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, 1)
    with pytest.raises(UnexpectedAppendOffset, match="1 is below the log end 2"):
        log.append_as_follower(memoryview(batch(1, base_offset=1, leader_epoch=0)), 0)
    assert log.append_as_follower(memoryview(batch(2, base_offset=2)[:-3]), 0).last_offset == -1
    assert log.log_end_offset == 2


def test_an_empty_log_takes_over_the_batch_that_its_start_lies_inside(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    log.truncate_fully_and_start_at(5)
    with pytest.raises(UnexpectedAppendOffset):
        log.append_as_follower(memoryview(batch(0, 5, base_offset=0, leader_epoch=0)), 0)
    info = log.append_as_follower(memoryview(batch(0, 10, base_offset=0, leader_epoch=0)), 0)
    assert (info.first_offset, info.last_offset) == (0, 9)
    assert (log.log_start_offset, log.log_end_offset) == (0, 10)
    log.maybe_increment_high_watermark(10)
    log.maybe_increment_log_start_offset(5)
    assert log.log_start_offset == 5


def test_the_metadata_quorum_appends_several_batches_at_once(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    data = batch(0, 2) + batch(2, 3)
    info = log.append_as_leader(memoryview(data), 1, now_ms=NOW_MS, origin="raft")
    assert (info.first_offset, info.last_offset) == (0, 4)
    assert values(log) == [(i, f"v{i}".encode()) for i in range(5)]


def test_a_failing_disk_takes_the_partition_offline(tmp_path: Path) -> None:
    reasons: list[str] = []
    log = open_test_log(tmp_path, listener=LogListener(on_offline=lambda _, reason: reasons.append(reason)))
    append(log, 0)
    log.close_files()
    (tmp_path / "orders-0" / "00000000000000000000.log").unlink()
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            append(log, 1)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(reasons) == 1
    assert "orders-0" in reasons[0]


# --- rolling


def test_a_segment_rolls_when_it_would_exceed_its_size(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, replace(DENSE, segment_bytes=2 * BATCH_BYTES))
    append(log, *range(5))
    assert bases(log) == [0, 2, 4]


def test_a_segment_rolls_by_the_age_of_its_records(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, replace(DENSE, segment_ms=100))
    for at_ms in (0, 100, 101, 150, 202):
        data = build_batch([RecordData(NOW_MS + at_ms, None, b"")])
        log.append_as_leader(memoryview(data), 0, now_ms=NOW_MS)
    assert bases(log) == [0, 2, 4]


def test_a_segment_without_timestamps_rolls_by_the_clock(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, replace(DENSE, segment_ms=100))
    for now_ms in (0, 100, 101):
        data = build_batch([RecordData(-1, None, b"")])
        log.append_as_leader(memoryview(data), 0, now_ms=NOW_MS + now_ms)
    assert bases(log) == [0, 2]


def test_a_full_offset_index_rolls(tmp_path: Path) -> None:
    config = replace(DENSE, segment_index_bytes=48)
    log = open_test_log(tmp_path, config)
    for _ in range(9):
        # Equal timestamps: the time index gets one entry only, the offset index fills at six.
        log.append_as_leader(memoryview(batch(0)), 0, now_ms=NOW_MS)
    assert bases(log) == [0, 7]


def test_an_offset_that_does_not_fit_32_bits_rolls_at_its_first_offset(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0)
    far = 2**31
    log.append_as_follower(memoryview(batch(1, base_offset=far)), 0)
    assert bases(log) == [0, far]
    assert values(log, far) == [(far, b"v1")]


def test_rolling_an_empty_segment_keeps_it(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    log.roll()
    append(log, 0)
    log.roll()
    log.roll()
    assert bases(log) == [0, 1]
    append(log, 1)
    assert values(log) == [(0, b"v0"), (1, b"v1")]


def test_only_a_few_sealed_segments_stay_open(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, replace(DENSE, segment_index_bytes=24))
    append(log, *range(40))
    assert len(log.segments) == 20
    assert values(log) == [(i, f"v{i}".encode()) for i in range(40)]
    assert sum(segment.files._file is not None for segment in log.segments) <= 5


# --- offsets


def test_the_high_watermark_stays_inside_the_log(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, *range(5))
    assert log.update_high_watermark(99)
    assert log.high_watermark == 5
    assert not log.maybe_increment_high_watermark(3)
    assert log.update_high_watermark(3)
    assert log.maybe_increment_high_watermark(4)
    with pytest.raises(ValueError, match="past its log end"):
        log.maybe_increment_high_watermark(6)


def test_log_start_rises_to_the_high_watermark_at_most(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, 1, epoch=0)
    append(log, 2, 3, epoch=1)
    log.update_high_watermark(3)
    with pytest.raises(OffsetOutOfRange):
        log.maybe_increment_log_start_offset(4)
    assert log.maybe_increment_log_start_offset(3)
    assert not log.maybe_increment_log_start_offset(2)
    assert (log.log_start_offset, log.local_log_start_offset) == (3, 3)
    assert log.leader_epochs.entries == ((1, 3),)
    log.check()


# --- timestamps


def test_offsets_are_found_by_time(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, 1)
    log.append_as_leader(memoryview(batch(2, 4)), 3, now_ms=NOW_MS)
    log.roll()
    append(log, 6)
    replicate(log)
    for index in range(7):
        offset = log.reader.offset_by_timestamp(NOW_MS + index)
        assert offset is not None
        assert (offset.offset, offset.timestamp) == (index, NOW_MS + index)
    offset = log.reader.offset_by_timestamp(0)
    assert offset is not None
    assert (offset.offset, offset.leader_epoch) == (0, 0)
    assert log.reader.offset_by_timestamp(NOW_MS + 7) is None
    log.maybe_increment_log_start_offset(4)
    offset = log.reader.offset_by_timestamp(0)
    assert offset is not None
    assert (offset.offset, offset.leader_epoch) == (4, 3)


def test_the_largest_timestamp_names_its_first_record(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    assert log.reader.max_timestamp_offset() is None
    late = build_batch([RecordData(NOW_MS, None, b""), RecordData(NOW_MS + 50, None, b""), RecordData(5, None, b"")])
    append(log, 0)
    log.append_as_leader(memoryview(late), 2, now_ms=NOW_MS)
    log.roll()
    append(log, 1)
    max_timestamp_offset = log.reader.max_timestamp_offset()
    assert max_timestamp_offset is not None
    assert (max_timestamp_offset.offset, max_timestamp_offset.timestamp, max_timestamp_offset.leader_epoch) == (
        2,
        NOW_MS + 50,
        2,
    )


# --- truncation


def test_truncation_drops_segments_epochs_and_lowers_the_high_watermark(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, 1, epoch=0)
    log.roll()
    append(log, 2, 3, epoch=1)
    log.roll()
    append(log, 4, epoch=2)
    replicate(log)
    assert log.truncate_to(3)
    assert (log.log_end_offset, log.high_watermark) == (3, 3)
    assert log.leader_epochs.entries == ((0, 0), (1, 2))
    assert bases(log) == [0, 2]
    log.check()
    append(log, 30, epoch=5)
    assert values(log) == [(0, b"v0"), (1, b"v1"), (2, b"v2"), (3, b"v30")]
    assert log.take_deleted_paths() == [str(tmp_path / "orders-0" / "00000000000000000004.log.deleted")]
    assert log.take_deleted_paths() == []


def test_truncation_at_the_log_end_only_forgets_an_epoch_without_records(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0)
    log.leader_epochs.assign(3, 1)
    assert not log.truncate_to(1)
    assert log.leader_epochs.entries == ((0, 0),)


def test_truncation_inside_a_batch_removes_the_batch(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0)
    log.append_as_leader(memoryview(batch(1, 5)), 0, now_ms=NOW_MS)
    log.truncate_to(3)
    assert log.log_end_offset == 1
    log.check()


def test_truncation_below_the_first_segment_starts_afresh_there(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    log.truncate_fully_and_start_at(10)
    append(log, 0)
    assert log.truncate_to(4)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (4, 4, [4])
    log.check()


def test_truncation_below_the_local_start_keeps_what_is_remote_and_its_epochs(tmp_path: Path) -> None:
    config = replace(DENSE, remote_storage_enable=True)
    log = open_test_log(tmp_path, config, remote=True)
    log.truncate_fully_and_start_at(8, 0)
    log.leader_epochs.assign_all([(0, 0), (1, 2), (2, 4)])
    log.update_highest_remote_offset(5)
    assert log.truncate_to(3)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 3, 3)
    assert log.leader_epochs.entries == ((0, 0), (1, 2))
    assert log.highest_remote_offset == 2
    log.close()
    again = open_test_log(tmp_path, config, remote=True, clean=True)
    assert (again.log_start_offset, again.log_end_offset, again.leader_epochs.entries) == (0, 3, ((0, 0), (1, 2)))


def test_a_log_that_starts_behind_remote_data_keeps_its_log_start(tmp_path: Path) -> None:
    config = replace(DENSE, remote_storage_enable=True)
    log = open_test_log(tmp_path, config, remote=True)
    append(log, 0)
    log.truncate_fully_and_start_at(6, 2)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset, log.high_watermark) == (2, 6, 6, 6)
    assert log.leader_epochs.is_empty
    with pytest.raises(OffsetOutOfRange):
        read(log, 3, 100)
    log.leader_epochs.assign_all([(0, 0), (1, 3), (2, 5)])
    log.append_as_follower(memoryview(batch(6, base_offset=6, leader_epoch=2)), 2)
    assert log.leader_epochs.entries == ((0, 0), (1, 3), (2, 5))
    log.check()
    log.close()
    again = open_test_log(tmp_path, config, remote=True, clean=True, log_start=2)
    assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (2, 6, 7)


# --- tiering


def test_the_highest_remote_offset_never_falls_and_tells_what_is_only_local(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, replace(DENSE, segment_index_bytes=24))
    append(log, *range(7))
    assert bases(log) == [0, 2, 4, 6]
    log.update_highest_remote_offset(3)
    log.update_highest_remote_offset(1)
    assert log.highest_remote_offset == 3
    assert [s.base_offset for s in log.only_local_segments] == [4, 6]
    assert log.producer_state.snapshot_bytes(2) is not None


def test_records_that_were_cut_off_no_longer_count_as_copied(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, replace(DENSE, segment_index_bytes=24, remote_storage_enable=True), remote=True)
    append(log, *range(7))
    log.update_highest_remote_offset(5)
    log.truncate_to(5)
    assert log.highest_remote_offset == 4
    append(log, 5, 6, 7, 8, epoch=1)
    log.update_high_watermark(9)
    log.config = replace(log.config, local_retention_bytes=1)
    log.delete_old_segments(NOW_MS)
    assert log.local_log_start_offset == 4, "the new record 5 is in no other place: its segment must stay"
    log.truncate_fully_and_start_at(3)
    assert log.highest_remote_offset == 2


def test_space_is_looked_for_without_changing_anything(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, 1)
    before = files(tmp_path)
    log.health.require_space(5000)
    with files_of_at_most(4000), pytest.raises(NoSpace, match="free some space"):
        log.health.require_space(5000)
    assert files(tmp_path) == before
    append(log, 2)
    assert log.log_end_offset == 3
