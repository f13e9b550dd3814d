"""Opening logs after clean stops, kills and damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backend.engine.log.log_config import LogConfig
from backend.engine.log.log_errors import CorruptLog
from backend.engine.log.unified_log import UnifiedLog
from backend.protocol.errors import KafkaError
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.unit.engine.log.logs import NOW_MS, append, batch, files, open_test_log, values

BATCH_BYTES = 72
TIERED = LogConfig(index_interval_bytes=1, remote_storage_enable=True)


def two_segments(folder: Path) -> UnifiedLog:
    """Offsets 0-2 sealed, 3-5 active, killed."""
    log = open_test_log(folder)
    append(log, 0, 1, 2)
    log.roll()
    append(log, 3, 4, 5)
    log.close_files()
    return log


def path(folder: Path, base: int = 3, suffix: str = ".log") -> Path:
    return folder / "orders-0" / f"{base:020d}{suffix}"


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 0xFF
    file.write_bytes(data)


@pytest.mark.parametrize("cut", [1, 40, BATCH_BYTES - 1])
@pytest.mark.parametrize("clean", [True, False])
def test_a_cut_tail_is_truncated_to_the_last_valid_batch(tmp_path: Path, cut: int, clean: bool) -> None:
    two_segments(tmp_path)
    data = path(tmp_path).read_bytes()
    path(tmp_path).write_bytes(data[:-cut])
    log = open_test_log(tmp_path, clean=clean, recovery_point=6)
    assert log.log_end_offset == 5
    assert path(tmp_path).stat().st_size == 2 * BATCH_BYTES
    append(log, 50)
    assert values(log)[-2:] == [(4, b"v4"), (5, b"v50")]
    log.check()


@pytest.mark.parametrize("junk", [b"\0", b"\0" * 500, b"\xff" * 100, b"junk" * 30])
def test_bytes_behind_the_last_batch_are_cut_off(tmp_path: Path, junk: bytes) -> None:
    two_segments(tmp_path)
    with path(tmp_path).open("ab") as file:
        file.write(junk)
    log = open_test_log(tmp_path, recovery_point=6)
    assert log.log_end_offset == 6
    assert path(tmp_path).stat().st_size == 3 * BATCH_BYTES


def test_a_flipped_byte_in_the_last_batch_costs_that_batch(tmp_path: Path) -> None:
    two_segments(tmp_path)
    flip(path(tmp_path), 2 * BATCH_BYTES + 65)
    assert open_test_log(tmp_path, recovery_point=6).log_end_offset == 5


def test_damage_past_the_recovery_point_truncates_and_drops_later_segments(tmp_path: Path) -> None:
    two_segments(tmp_path)
    flip(path(tmp_path, 0), BATCH_BYTES + 65)
    log = open_test_log(tmp_path, recovery_point=1)
    assert log.log_end_offset == 1
    assert [segment.base_offset for segment in log.segments] == [0]
    assert not path(tmp_path).exists()
    log.check()


@pytest.mark.parametrize("left", [0, BATCH_BYTES])
def test_a_segment_that_lost_its_end_whole_takes_the_later_segments_with_it(tmp_path: Path, left: int) -> None:
    two_segments(tmp_path)
    with path(tmp_path, 0).open("r+b") as file:
        file.truncate(left)
    log = open_test_log(tmp_path)
    assert [segment.base_offset for segment in log.segments] == [0]
    assert log.log_end_offset == left // BATCH_BYTES
    log.check()


def test_gaps_that_compaction_has_made_are_no_damage(tmp_path: Path) -> None:
    two_segments(tmp_path)
    with path(tmp_path, 0).open("r+b") as file:
        file.truncate(BATCH_BYTES)
    log = open_test_log(tmp_path, LogConfig(index_interval_bytes=1, cleanup_policy=("compact",)))
    assert [offset for offset, _ in values(log)] == [0, 3, 4, 5]


def test_a_tiered_log_starts_where_its_epochs_begin_when_the_checkpoint_is_older(tmp_path: Path) -> None:
    log = open_test_log(tmp_path, TIERED, remote=True)
    append(log, 0, 1, 2)
    log.update_high_watermark(3)
    log.maybe_increment_log_start_offset(2)
    log.close_files()
    log = open_test_log(tmp_path, TIERED, remote=True, log_start=0)
    assert (log.log_start_offset, log.leader_epochs.epoch_for_offset(log.log_start_offset)) == (2, 0)


def test_damage_below_the_recovery_point_is_never_cut_off(tmp_path: Path) -> None:
    two_segments(tmp_path)
    flip(path(tmp_path), BATCH_BYTES + 65)
    before = files(tmp_path)["00000000000000000003.log"]
    with pytest.raises(
        CorruptLog, match=r"00000000000000000003\.log at byte 72: the CRC .* to which the disk had everything"
    ):
        open_test_log(tmp_path, recovery_point=6)
    assert files(tmp_path)["00000000000000000003.log"] == before


def test_damage_that_reaches_below_the_log_start_is_cut_off_when_nothing_durable_is_lost(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0)
    log.append_as_leader(memoryview(batch(1, 2)), 0, now_ms=NOW_MS)
    log.roll()
    log.update_high_watermark(3)
    # Inside the batch of offsets 1 and 2: the recovery point follows, although nothing has been synced.
    log.maybe_increment_log_start_offset(2)
    recovery_point = log.recovery_point
    log.close_files()
    with path(tmp_path, 0).open("r+b") as file:
        file.truncate(BATCH_BYTES)
        file.seek(BATCH_BYTES)
        file.write(bytes(90))
    log = open_test_log(tmp_path, recovery_point=recovery_point, log_start=2)
    assert (recovery_point, log.log_start_offset, log.log_end_offset) == (2, 2, 2)
    append(log, 5)
    assert values(log) == [(2, b"v5")]


def test_a_sealed_segment_with_missing_or_cut_indexes_gets_them_back(tmp_path: Path) -> None:
    two_segments(tmp_path)
    before = files(tmp_path)
    path(tmp_path, 0, ".index").unlink()
    path(tmp_path, 0, ".timeindex").write_bytes(b"short")
    log = open_test_log(tmp_path, recovery_point=6)
    after = files(tmp_path)
    for suffix in (".index", ".timeindex"):
        assert after[f"{0:020d}{suffix}"] == before[f"{0:020d}{suffix}"]
    assert log.producer_state.snapshots == (3, 6)
    assert values(log) == [(i, f"v{i}".encode()) for i in range(6)]


def test_damaged_structure_found_while_reading_takes_the_partition_offline(tmp_path: Path) -> None:
    two_segments(tmp_path)
    # The length field of the second batch; a clean start looks only at the log's end.
    flip(path(tmp_path, 0), BATCH_BYTES + 8)
    log = open_test_log(tmp_path, clean=True, recovery_point=6)
    path(tmp_path, 0, ".index").write_bytes(b"")
    with pytest.raises(CorruptLog):
        log.reader.read(2, 100, up_to_offset=6, min_one_message=True)
    assert "00000000000000000000.log is corrupt at byte 72" in str(log.offline_reason)
    with pytest.raises(KafkaError):
        append(log, 6)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: 2 * BATCH_BYTES],
        lambda data: data[: BATCH_BYTES + 70] + b"\xff" + data[BATCH_BYTES + 71 :],
        lambda data: b"",
    ],
    ids=["cut", "byte", "emptied"],
)
def test_a_log_that_lost_durable_records_is_not_shortened_where_others_have_them(
    tmp_path: Path, damage: Callable[[bytes], bytes], clean: bool
) -> None:
    two_segments(tmp_path)
    path(tmp_path).write_bytes(damage(path(tmp_path).read_bytes()))
    before = files(tmp_path)["00000000000000000003.log"]
    with pytest.raises(CorruptLog, match="copied again by itself once another replica leads"):
        open_test_log(tmp_path, clean=clean, recovery_point=6, high_watermark=6, has_others=True)
    assert files(tmp_path)["00000000000000000003.log"] == before


def test_a_log_that_was_truncated_after_the_last_checkpoint_is_whole(tmp_path: Path) -> None:
    log = two_segments(tmp_path)
    log.truncate_to(4)
    log.close()
    # A kill leaves a recovery point of before, and a high watermark below which no follower truncates.
    assert open_test_log(tmp_path, recovery_point=6, high_watermark=4, has_others=True).log_end_offset == 4


def test_a_last_segment_that_is_gone_is_missed_where_others_have_it(tmp_path: Path) -> None:
    two_segments(tmp_path)
    path(tmp_path).unlink()
    with pytest.raises(CorruptLog, match="ends at offset 3, and the disk had everything to 6"):
        open_test_log(tmp_path, clean=True, recovery_point=6, has_others=True)
    # After a clean stop the high watermark tells the same.
    with pytest.raises(CorruptLog, match="ends at offset 3, and the disk had everything to 5"):
        open_test_log(tmp_path, clean=True, high_watermark=5, has_others=True)
    # A power failure takes what was not flushed: others may have as little.
    assert open_test_log(tmp_path, high_watermark=5, has_others=True).log_end_offset == 3


def test_a_file_that_is_no_segment_stops_nothing(tmp_path: Path) -> None:
    two_segments(tmp_path)
    (tmp_path / "orders-0" / "latest.log").write_bytes(b"")
    assert open_test_log(tmp_path, recovery_point=6).log_end_offset == 6


@pytest.mark.parametrize("content", [b"0\n1\nx y\n", bytes(range(200, 243)), b"0\n1\n-4 7\n", b"7\n"])
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_epochs_are_found_in_the_records_again(tmp_path: Path, content: bytes, clean: bool) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, 1, epoch=2)
    log.roll()
    append(log, 2, 3, epoch=5)
    log.close()
    file = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    whole = file.read_bytes()
    file.write_bytes(content)
    log = open_test_log(tmp_path, clean=clean, recovery_point=4)
    assert log.leader_epochs.entries == ((2, 0), (5, 2))
    assert file.read_bytes() == whole
    log.close_files()
    file.write_bytes(b"")
    assert open_test_log(tmp_path, clean=True, recovery_point=4).leader_epochs.entries == ((2, 0), (5, 2))


def test_leftovers_of_an_interrupted_run_are_removed(tmp_path: Path) -> None:
    two_segments(tmp_path)
    folder = tmp_path / "orders-0"
    for name in (f"{0:020d}.log.deleted", "leader-epoch-checkpoint.tmp", f"{7:020d}.index", f"{7:020d}.txnindex"):
        (folder / name).write_bytes(b"x")
    open_test_log(tmp_path).close_files()
    assert not [name for name in files(tmp_path) if name.endswith((".deleted", ".tmp")) or name.startswith(f"{7:020d}")]


def test_epochs_past_the_recovered_end_are_dropped(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, epoch=0)
    append(log, 1, epoch=1)
    log.close_files()
    file = path(tmp_path, 0)
    file.write_bytes(file.read_bytes()[:BATCH_BYTES])
    assert open_test_log(tmp_path).leader_epochs.entries == ((0, 0),)


def test_recovery_of_a_later_segment_keeps_the_start_of_its_epoch(tmp_path: Path) -> None:
    log = two_segments(tmp_path)
    log.leader_epochs.assign(1, 6)
    assert open_test_log(tmp_path, recovery_point=6).leader_epochs.entries == ((0, 0),)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("left", ["5 4\n", "7 6\n", None])
def test_epochs_that_begin_behind_the_log_start_are_completed_from_the_batches(
    tmp_path: Path, clean: bool, left: str | None
) -> None:
    """The file is of a time when the log start was further on, or lost: neither may leave records without an epoch."""
    log = open_test_log(tmp_path)
    append(log, 0, 1, epoch=2)
    append(log, 2, epoch=3)
    log.roll()
    append(log, 3, 4, 5, epoch=5)
    append(log, 6, epoch=7)
    log.close_files()
    file = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    if left is None:
        file.unlink()
    else:
        file.write_text(f"0\n1\n{left}")
    expected = ((2, 1), (3, 2), (5, 3), (7, 6))
    log = open_test_log(tmp_path, clean=clean, recovery_point=7 if clean else 3, log_start=1)
    assert log.leader_epochs.entries == expected
    log.check()
    log.close_files()
    tiered = open_test_log(tmp_path, TIERED, remote=True, clean=True, recovery_point=7, log_start=1)
    assert (tiered.log_start_offset, tiered.leader_epochs.entries) == (1, expected)


def test_a_log_that_ends_below_its_start_begins_afresh_there(tmp_path: Path) -> None:
    two_segments(tmp_path)
    log = open_test_log(tmp_path, log_start=9)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (9, 9, 9)
    assert log.leader_epochs.is_empty
    log.check()


def test_a_clean_stop_leaves_trimmed_indexes_a_snapshot_and_nothing_to_recover(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, 1, 2)
    log.close()
    paths = files(tmp_path)
    assert len(paths[f"{0:020d}.index"]) == 16
    assert len(paths[f"{0:020d}.timeindex"]) == 24
    assert f"{3:020d}.snapshot" in paths
    again = open_test_log(tmp_path, clean=True, recovery_point=3)
    again.close()
    assert files(tmp_path) == paths


def test_the_first_batch_after_a_start_gets_no_index_entry(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    append(log, 0, 1)
    log.close()
    again = open_test_log(tmp_path, clean=True)
    append(again, 2, 3)
    # The clean stop has written the last timestamp, so that offset 1 is in the time index.
    assert [offset for offset, _ in again.active_segment.offset_index.entries()] == [1, 3]


def test_batches_with_many_records_and_large_ones_are_scanned_across_read_chunks(tmp_path: Path) -> None:
    log = open_test_log(tmp_path)
    big = bytes(build_batch([RecordData(NOW_MS, None, bytes(700_000))]))
    for data in (batch(0, 500), big, big, batch(0, 3)):
        log.append_as_leader(memoryview(data), 0, now_ms=NOW_MS)
    log.close_files()
    again = open_test_log(tmp_path)
    assert again.log_end_offset == 505
    again.check()
