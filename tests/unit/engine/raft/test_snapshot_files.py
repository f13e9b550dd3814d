"""Snapshot files: names, what makes one whole, what retention lets go."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.engine.ports.disk import OsDisk
from backend.engine.raft.snapshot_files import (
    BadSnapshot,
    PartialSnapshot,
    SnapshotFiles,
    SnapshotId,
    StoredSnapshot,
    keep_from,
    parse_file_name,
    read_content,
)
from backend.protocol.record_batches.control_records import snapshot_footer, snapshot_header
from tests.unit.protocol.kafka_fixtures import ROOT as KAFKA

NAME = "00000000000000000776-0000000002.checkpoint"
CAPTURED = (KAFKA / "kraft" / NAME).read_bytes()
EMPTY = bytes(snapshot_header(last_contained_log_timestamp_ms=7, timestamp_ms=8)) + bytes(
    snapshot_footer(timestamp_ms=8, base_offset=1)
)
FOOTER_BYTES = 75


def test_a_file_name_is_kafkas_both_ways() -> None:
    assert SnapshotId(776, 2).file_name == NAME
    assert parse_file_name(NAME) == SnapshotId(776, 2)
    for other in ("bootstrap.checkpoint", NAME + ".part", NAME + ".deleted", "776-2.checkpoint", "x"):
        assert parse_file_name(other) is None


def test_a_snapshot_of_apache_kafka_is_whole() -> None:
    content = read_content(CAPTURED)
    assert (content.record_count, content.last_contained_ms) == (93, 1795253067471)
    assert read_content(EMPTY).record_count == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 snapshot headers"),
        (CAPTURED[:-FOOTER_BYTES], "its end is missing"),
        (CAPTURED[:-1], "its end is missing"),
        (CAPTURED[83:], "does not begin with a snapshot header"),
        (CAPTURED + CAPTURED, "follows the footer"),
        (CAPTURED[:83] + CAPTURED, "2 snapshot headers"),
        (CAPTURED[:200] + b"\x55" + CAPTURED[201:], "wrong CRC"),
        (b"\x00" * 200, "length"),
    ],
)
def test_anything_else_is_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(BadSnapshot, match=why):
        read_content(data)


def test_every_cut_of_a_snapshot_is_refused() -> None:
    for size in range(0, len(CAPTURED), 61):
        with pytest.raises(BadSnapshot):
            read_content(CAPTURED[:size])


def test_a_snapshot_counts_once_it_is_frozen_and_nothing_else_is_left(tmp_path: Path) -> None:
    files = SnapshotFiles(OsDisk(), str(tmp_path))
    assert files.latest is None
    files.write(SnapshotId(5, 1), [EMPTY[:10], EMPTY[10:]], "aa")
    files.added(SnapshotId(5, 1))
    assert files.latest == SnapshotId(5, 1)
    assert [path.name for path in tmp_path.iterdir()] == [SnapshotId(5, 1).file_name]
    assert files.read_part(SnapshotId(5, 1), 10, 20) == EMPTY[10:30]
    assert files.stored() == [StoredSnapshot(SnapshotId(5, 1), len(EMPTY), 7, 8)]

    def breaks() -> list[bytes]:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        files.write(SnapshotId(6, 1), (chunk for chunk in [EMPTY, *breaks()]), "bb")
    assert len(list(tmp_path.iterdir())) == 1


def test_what_an_interrupted_run_left_is_cleared_and_never_taken_for_a_snapshot(tmp_path: Path) -> None:
    part = PartialSnapshot(OsDisk(), str(tmp_path), SnapshotId(9, 1), "cc")
    part.append(EMPTY)
    (tmp_path / (SnapshotId(1, 1).file_name + ".deleted")).write_bytes(EMPTY)
    (tmp_path / SnapshotId(4, 1).file_name).write_bytes(EMPTY)
    files = SnapshotFiles(OsDisk(), str(tmp_path))
    assert files.ids == (SnapshotId(4, 1),)
    assert [path.name for path in tmp_path.iterdir()] == [SnapshotId(4, 1).file_name]


def test_older_snapshots_are_renamed_before_they_go_and_a_corrupt_one_stays(tmp_path: Path) -> None:
    for offset in (3, 5, 8):
        (tmp_path / SnapshotId(offset, 1).file_name).write_bytes(EMPTY)
    files = SnapshotFiles(OsDisk(), str(tmp_path))
    [gone] = files.forget_before(SnapshotId(5, 1))
    assert gone.endswith(".checkpoint.deleted")
    files.set_corrupt_aside(SnapshotId(8, 1))
    assert files.ids == (SnapshotId(5, 1),)
    assert SnapshotFiles(OsDisk(), str(tmp_path)).ids == (SnapshotId(5, 1),)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".checkpoint", ".corrupt"]


def stored(*rows: tuple[int, int, int]) -> list[StoredSnapshot]:
    return [StoredSnapshot(SnapshotId(offset, 1), size, at_ms) for offset, size, at_ms in rows]


def kept(
    snapshots: list[StoredSnapshot],
    log_bytes: int,
    *,
    limit_bytes: int = -1,
    limit_ms: int = -1,
    needed_from: int | None = None,
) -> int | None:
    snapshot_id = keep_from(
        snapshots,
        log_bytes,
        retention_bytes=limit_bytes,
        retention_ms=limit_ms,
        now_ms=1000,
        needed_from=needed_from,
    )
    return snapshot_id.end_offset if snapshot_id else None


def test_the_oldest_snapshot_goes_by_size_or_age_and_the_newest_never() -> None:
    two = stored((10, 50, 100), (20, 50, 900))
    assert kept(two, 100) is None
    assert kept(two, 100, limit_bytes=200) is None
    assert kept(two, 101, limit_bytes=200) == 20
    assert kept(two, 0, limit_ms=900) is None
    assert kept(two, 0, limit_ms=899) == 20
    assert kept(two[1:], 10_000, limit_bytes=0, limit_ms=0) is None


def test_a_live_follower_is_waited_for_until_the_total_is_twice_the_limit() -> None:
    two = stored((10, 50, 100), (20, 50, 900))
    assert kept(two, 150, limit_bytes=200, needed_from=20) == 20
    assert kept(two, 150, limit_bytes=200, needed_from=19) is None
    assert kept(two, 300, limit_bytes=200, needed_from=19) is None
    assert kept(two, 301, limit_bytes=200, needed_from=19) == 20
    assert kept(two, 301, limit_ms=0, needed_from=19) is None
