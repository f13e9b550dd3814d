"""Directories that fail, and logs that move from one to another."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from backend.engine.log.log_config import LogManagerConfig
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports.disk import OsDisk, OsFile
from backend.protocol.buffers import Buffer
from backend.protocol.errors import ErrorCode, KafkaError
from tests.unit.engine.log.logs import append, values
from tests.unit.engine.log.managers import CLUSTER, CONFIG, ORDERS, run, start, tip
from tests.unit.engine.virtual_time import ports_here


class FailingDisk(OsDisk):
    """Every write below a folder fails from a given moment on, as on a device that went away."""

    broken: str | None = None

    def _check(self, path: str) -> None:
        if self.broken is not None and path.startswith(self.broken):
            raise OSError(errno.EIO, "Input/output error", path)

    def open(self, path: str, *, create: bool = False) -> OsFile:
        self._check(path)
        return super().open(path, create=create)

    def write_atomic(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        self._check(path)
        super().write_atomic(path, data, sync=sync)


async def start_on(disk: OsDisk, folder: Path, ends: list[str] | None = None) -> LogManager:
    manager = LogManager(
        replace(ports_here(), disk=disk),
        LogManagerConfig(default_log=CONFIG),
        [f"{folder}/log0", f"{folder}/log1"],
        on_all_dirs_failed=([] if ends is None else ends).append,
    )
    manager.directories.open_dirs(CLUSTER, 1)
    await manager.load_all()
    return manager


def test_a_log_that_could_not_be_created_leaves_no_folder_that_stops_the_next_start(tmp_path: Path) -> None:
    async def play() -> None:
        disk = FailingDisk()
        manager = await start_on(disk, tmp_path)
        disk.broken = f"{tmp_path}/log0/orders-0"
        with pytest.raises(KafkaError, match="cannot be created"):
            manager.get_or_create(tip(), CONFIG)
        disk.broken = None
        manager.preferred_dirs[ORDERS] = f"{tmp_path}/log1"
        append(manager.get_or_create(tip(), CONFIG), 0)
        await manager.shutdown()
        again = await start_on(disk, tmp_path)
        assert [log.dir for log in again.all_logs] == [f"{tmp_path}/log1/orders-0"]
        again.abandon()

    run(play)


def test_a_directory_that_fails_takes_all_its_partitions_offline_and_no_other(tmp_path: Path) -> None:
    async def play() -> None:
        disk = FailingDisk()
        ends: list[str] = []
        manager = await start_on(disk, tmp_path, ends)
        lost: list[str] = []

        async def note_failures() -> None:
            while True:
                log = await manager.changed_logs.next()
                lost.append(f"{log}: {log.offline_reason}")

        noting = asyncio.create_task(note_failures())
        logs = [manager.get_or_create(tip(partition=number), CONFIG) for number in range(4)]
        for log in logs:
            append(log, 0)
        disk.broken = f"{tmp_path}/log1"
        broken = next(log for log in logs if log.dir.startswith(disk.broken))
        with pytest.raises(KafkaError):
            broken.roll()
        for _ in range(500):
            await asyncio.sleep(0.01)
            if len(manager.all_logs) == len(lost) == 2:
                break
        assert len(lost) == 2
        assert {log.dir.rpartition("/")[0] for log in manager.all_logs} == {f"{tmp_path}/log0"}
        assert list(manager.directories.failed_dirs) == [disk.broken]
        assert manager.directories.failed_directory_ids == [manager.directories.directory_ids[disk.broken]]
        assert not ends
        # The other one goes on, and takes what is new.
        assert manager.get_or_create(tip("new"), CONFIG).dir == f"{tmp_path}/log0/new-0"
        await manager.checkpoints.write_all()
        assert (tmp_path / "log0" / "recovery-point-offset-checkpoint").exists()
        manager.fail_dir(f"{tmp_path}/log0", "gone")
        assert len(ends) == 1
        assert "all log directories have failed" in ends[0]
        with pytest.raises(KafkaError) as caught:
            manager.get_or_create(tip("newer"), CONFIG)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        noting.cancel()
        manager.abandon()

    run(play)


def test_a_partition_that_breaks_alone_leaves_its_directory_as_it_is(tmp_path: Path) -> None:
    async def play() -> None:
        disk = FailingDisk()
        manager = await start_on(disk, tmp_path)
        log = manager.get_or_create(tip(), CONFIG)
        manager.get_or_create(tip(partition=1), CONFIG)
        manager.get_or_create(tip(partition=2), CONFIG)
        append(log, 0)
        disk.broken = log.dir
        with pytest.raises(KafkaError):
            log.roll()
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not manager.directories.failed_dirs
        assert len(manager.all_logs) == 2
        log_dir = next(
            log_directory for log_directory in manager.directories.dirs if log.dir.startswith(log_directory.path)
        )
        assert manager.offline_in(log_dir) == {ORDERS: log.dir}
        manager.abandon()

    run(play)


def test_a_checkpoint_that_cannot_be_written_is_a_directory_that_failed(tmp_path: Path) -> None:
    async def play() -> None:
        disk = FailingDisk()
        manager = await start_on(disk, tmp_path)
        append(manager.get_or_create(tip(), CONFIG), 0)
        append(manager.get_or_create(tip(partition=1), CONFIG), 0)
        disk.broken = f"{tmp_path}/log0"
        await manager.checkpoints.write_high_watermarks()
        assert list(manager.directories.failed_dirs) == [disk.broken]
        assert len(manager.all_logs) == 1
        manager.abandon()

    run(play)


def in_dir(manager: LogManager, log: UnifiedLog) -> int:
    return [log_dir.path for log_dir in manager.directories.dirs].index(log.dir.rpartition("/")[0])


def test_a_log_moves_to_another_directory_with_all_that_it_knows(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path, dirs=2)
        log = manager.get_or_create(tip(), CONFIG)
        append(log, *range(4))
        log.roll()
        append(log, 4, epoch=3, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
        log.update_high_watermark(4)
        log.maybe_increment_log_start_offset(1)
        log.cleaning.checkpoint = 3
        before = (log.describe(), values(log), log.leader_epochs.entries)
        source, target = (
            manager.directories.dirs[in_dir(manager, log)],
            manager.directories.dirs[1 - in_dir(manager, log)],
        )
        future = manager.start_move(log, target)
        assert log.cleaning.paused
        while future.copy_some(log):
            append(log, 5, epoch=4) if log.log_end_offset < 6 else None
        moved = manager.finish_move(log)
        assert manager.get(ORDERS) is moved
        assert moved.dir == f"{target.path}/orders-0"
        assert moved.log_end_offset == 6
        moved.check()
        assert moved.leader_epochs.entries == (*before[2], (4, 5))
        assert values(moved)[: len(before[1])] == before[1]
        assert (moved.log_start_offset, moved.high_watermark, moved.cleaning.checkpoint) == (1, 4, 3)
        assert moved.producer_state.first_unstable_offset == 4
        assert not manager.logs_in(source)
        append(moved, 6, epoch=4)
        moved.update_high_watermark(7)
        await manager.shutdown()
        again = await start(tmp_path, dirs=2)
        await again.housekeeping.work()
        unified_log = again.get(ORDERS)
        assert unified_log is not None
        assert (unified_log.dir, unified_log.log_end_offset, unified_log.log_start_offset) == (moved.dir, 7, 1)
        assert not list(Path(source.path).glob("orders*"))
        assert sorted(path.suffix for path in Path(moved.dir).iterdir() if "moved" in path.name) == []
        again.abandon()

    run(play)


def test_a_copy_follows_a_log_that_is_cut_and_written_anew(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path, dirs=2)
        log = manager.get_or_create(tip(), CONFIG)
        append(log, *range(6))
        future = manager.start_move(log, manager.directories.dirs[1 - in_dir(manager, log)])
        future.copy_some(log)
        log.truncate_to(2)
        append(log, 12, 13, 14, 15, epoch=1)
        assert future.copy_some(log)
        moved = manager.finish_move(log)
        assert [value for _, value in values(moved)] == [b"v0", b"v1", b"v12", b"v13", b"v14", b"v15"]
        manager.abandon()

    run(play)


class StopsAtRename(OsDisk):
    """The process ends before the n-th rename of a folder; files are renamed as they are."""

    left = -1

    def rename(self, source: str, target: str) -> None:
        if os.path.isdir(source):
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
        super().rename(source, target)


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_crash_at_any_step_of_a_move_leaves_one_whole_log(tmp_path: Path, renames: int) -> None:
    async def play() -> None:
        disk = StopsAtRename()
        manager = await start_on(disk, tmp_path)
        log = manager.get_or_create(tip(), CONFIG)
        append(log, *range(5))
        source, target = (
            manager.directories.dirs[in_dir(manager, log)],
            manager.directories.dirs[1 - in_dir(manager, log)],
        )
        manager.start_move(log, target)
        disk.left = renames
        if renames < 2:
            with pytest.raises(KeyboardInterrupt):
                manager.finish_move(log)
        else:
            manager.finish_move(log)
        disk.left = -1
        manager.abandon()
        again = await start_on(disk, tmp_path)
        await again.housekeeping.work()
        unified_log = again.get(ORDERS)
        assert unified_log is not None
        assert values(unified_log) == [(i, f"v{i}".encode()) for i in range(5)]
        assert unified_log.dir.rpartition("/")[0] == (source.path if renames == 0 else target.path)
        # Leftovers are removed; a move that had not come to its end is begun again.
        assert again.preferred_dirs == ({ORDERS: target.path} if renames == 0 else {})
        folders = [path for log_dir in again.directories.dirs for path in Path(log_dir.path).glob("orders*")]
        assert folders == [Path(unified_log.dir)]
        assert not list(Path(unified_log.dir).glob("*moved*"))
        again.abandon()

    run(play)


def test_moves_are_given_up_with_the_partition_and_go_to_known_directories_only(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path, dirs=2)
        log = manager.get_or_create(tip(), CONFIG)
        append(log, 0)
        with pytest.raises(KafkaError) as caught:
            manager.directories.dir_at("/nowhere")
        assert caught.value.code == ErrorCode.LOG_DIR_NOT_FOUND
        future = manager.start_move(log, manager.directories.dirs[1 - in_dir(manager, log)])
        assert os.path.isdir(future.log.dir)
        manager.async_delete(ORDERS)
        assert not manager.futures
        await manager.housekeeping.work()
        assert not os.path.exists(future.log.dir)
        manager.abandon()

    run(play)


def test_a_stop_on_a_disk_that_went_away_comes_to_its_end(tmp_path: Path) -> None:
    async def play() -> None:
        disk = FailingDisk()
        manager = await start_on(disk, tmp_path)
        for number in range(2):
            append(manager.get_or_create(tip(partition=number), CONFIG), 0)
        disk.broken = f"{tmp_path}/log1"
        await manager.shutdown()
        assert not (tmp_path / "log1" / ".kafka_cleanshutdown").exists()
        disk.broken = None
        again = await start_on(disk, tmp_path)
        assert [log.log_end_offset for log in again.all_logs] == [1, 1]
        again.abandon()

    run(play)
