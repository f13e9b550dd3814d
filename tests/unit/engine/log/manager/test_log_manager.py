"""The logs of a broker: start, creation, deletion, checkpoints, damage and stop."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from backend.engine.config import BrokerConfig
from backend.engine.log.file_names import dir_name
from backend.engine.log.log_config import LogConfig, LogManagerConfig
from backend.engine.log.log_errors import LogDirError
from backend.engine.log.manager.housekeeping import retention_interval_ms
from backend.engine.log.manager.log_directory import read_topic_id
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.log.manager.log_opening import CLEAN_LOGS_PER_JOB
from backend.engine.ports.disk import OsDisk, OsFile
from backend.protocol.buffers import Buffer
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition
from tests.unit.engine.log.logs import append, values
from tests.unit.engine.log.managers import CLUSTER, CONFIG, ID, ORDERS, run, start, tip
from tests.unit.engine.virtual_time import ports_here


def test_a_clean_stop_and_start_keeps_records_and_offsets(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        log = manager.get_or_create(tip(), CONFIG)
        append(log, 0, 1, 2)
        log.update_high_watermark(3)
        log.maybe_increment_log_start_offset(1)
        ids = manager.directories.directory_ids
        await manager.shutdown(broker_epoch=21)
        folder = tmp_path / "log0"
        assert (folder / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":21}'
        assert (folder / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
        assert (folder / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
        assert (folder / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 1\n"

        again = await start(tmp_path)
        assert not (folder / ".kafka_cleanshutdown").exists()
        assert again.directories.directory_ids == ids
        assert again.directories.previous_broker_epoch == 21
        log = again.get_or_create(tip(), CONFIG)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1, 3, 3)
        assert log.topic_id_partition == tip()
        again.abandon()

    run(play)


def test_after_a_kill_the_high_watermark_is_not_below_what_retention_left(tmp_path: Path) -> None:
    config = LogConfig(file_delete_delay_ms=0, index_interval_bytes=1, remote_storage_enable=True)
    settings = LogManagerConfig(default_log=config, remote_system_enabled=True)

    async def play() -> None:
        manager = await start(tmp_path, config=settings)
        log = manager.get_or_create(tip(), config)
        append(log, 0, 1, 2)
        log.roll()
        append(log, 3)
        log.update_high_watermark(4)
        log.update_highest_remote_offset(2)
        log.config = replace(config, local_retention_bytes=1)
        assert log.delete_old_segments(now_ms=0) == 1
        manager.abandon()

        again = await start(tmp_path, config=settings)
        unified_log = again.get(ORDERS)
        assert unified_log is not None
        assert (unified_log.local_log_start_offset, unified_log.high_watermark, unified_log.log_end_offset) == (3, 3, 4)
        again.abandon()

    run(play)


def test_the_checkpoint_of_high_watermarks_follows_whatever_moves_them(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path, dirs=2)

        async def stored() -> dict[str, int]:
            await manager.checkpoints.write_high_watermarks()
            lines = [
                line.split() for number in range(2)
                for line in (tmp_path / f"log{number}" / "replication-offset-checkpoint").read_text().splitlines()[2:]
            ]  # fmt: skip
            return {f"{topic}-{partition}": int(offset) for topic, partition, offset in lines}

        log, other = manager.get_or_create(tip(), CONFIG), manager.get_or_create(tip(partition=1), CONFIG)
        assert await stored() == {"orders-0": 0, "orders-1": 0}
        append(log, *range(4))
        append(other, *range(2))
        log.update_high_watermark(3)
        assert await stored() == {"orders-0": 3, "orders-1": 0}
        other.maybe_increment_high_watermark(2)
        log.truncate_to(1)
        assert await stored() == {"orders-0": 1, "orders-1": 2}
        other.truncate_fully_and_start_at(7)
        assert await stored() == {"orders-0": 1, "orders-1": 7}
        manager.async_delete(ORDERS)
        assert await stored() == {"orders-1": 7}
        other.mark_offline("as if its disk were broken")
        assert await stored() == {"orders-1": 7}, "its next start must know what it had"
        manager.async_delete(TopicPartition("orders", 1))
        assert await stored() == {}
        manager.abandon()

    run(play)


def test_high_watermarks_that_stay_are_not_written_again(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        log = manager.get_or_create(tip(), CONFIG)
        append(log, 0)
        await manager.checkpoints.write_high_watermarks()
        file = tmp_path / "log0" / "replication-offset-checkpoint"
        file.unlink()
        await manager.checkpoints.write_high_watermarks()
        assert not file.exists()
        log.update_high_watermark(1)
        await manager.checkpoints.write_high_watermarks()
        assert file.read_text() == "0\n1\norders 0 1\n"
        manager.abandon()

    run(play)


def test_after_a_kill_everything_written_is_recovered(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        log = manager.get_or_create(tip(), CONFIG)
        append(log, *range(5))
        log.update_high_watermark(4)
        await manager.checkpoints.write_high_watermarks()
        manager.abandon()
        again = await start(tmp_path)
        assert again.directories.previous_broker_epoch == -1
        unified_log = again.get(ORDERS)
        assert unified_log is not None
        assert (unified_log.high_watermark, unified_log.log_end_offset) == (4, 5)
        assert values(unified_log) == [(i, f"v{i}".encode()) for i in range(5)]
        again.abandon()

    run(play)


def test_directories_that_name_different_epochs_were_not_stopped_together(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path, dirs=2)
        await manager.shutdown(21)
        # One of them comes from a backup.
        (tmp_path / "log1" / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":17}')
        again = await start(tmp_path, dirs=2)
        assert again.directories.previous_broker_epoch == -1
        again.abandon()

    run(play)


def test_of_many_logs_that_were_closed_each_is_opened_as_it_was_and_a_broken_one_stops_no_other(tmp_path: Path) -> None:
    count = 2 * CLEAN_LOGS_PER_JOB + 3

    async def play() -> None:
        manager = await start(tmp_path)
        for number in range(count):
            append(manager.get_or_create(tip(partition=number), CONFIG), *range(number % 5))
        await manager.shutdown()
        broken = TopicPartition("orders", CLEAN_LOGS_PER_JOB // 2)
        path = tmp_path / "log0" / dir_name(broken) / f"{0:020d}.log"
        assert broken.partition % 5 > 1, "has records"
        data = bytearray(path.read_bytes())
        data[80] ^= 1
        path.write_bytes(data)

        again = await start(tmp_path, has_others=True)
        ends = {
            number: log.log_end_offset
            for number in range(count)
            if (log := again.get(TopicPartition("orders", number)))
        }
        assert ends == {number: number % 5 for number in range(count) if number != broken.partition}
        assert list(again.offline_partitions) == [broken]
        again.abandon()

    run(play)


def test_a_damaged_partition_is_offline_with_the_reason_and_the_others_load(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        for topic in ("orders", "clicks"):
            append(manager.get_or_create(tip(topic), CONFIG), *range(3))
        for log in manager.all_logs:
            log.update_high_watermark(log.log_end_offset)
            log.flush()
        await manager.checkpoints.write_all()
        manager.abandon()
        path = tmp_path / "log0" / "orders-0" / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)
        again = await start(tmp_path)
        assert again.get(ORDERS) is None
        assert "orders-0/00000000000000000000.log at byte 0" in str(again.offline_reason(ORDERS))
        assert list(again.offline_partitions) == [ORDERS]
        clicks = again.get(TopicPartition("clicks", 0))
        assert clicks is not None
        assert clicks.log_end_offset == 3
        with pytest.raises(KafkaError) as caught:
            again.get_or_create(tip(), CONFIG)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        # Deleting the replica ends the matter: it can be copied again.
        again.async_delete(ORDERS)
        await again.housekeeping.work()
        assert not path.parent.exists()
        assert again.get_or_create(tip(), CONFIG).log_end_offset == 0
        again.abandon()

    run(play)


def test_a_deleted_partition_is_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        log = manager.get_or_create(tip(), replace(CONFIG, file_delete_delay_ms=60_000))
        append(log, 0)
        manager.async_delete(ORDERS)
        names = [path.name for path in (tmp_path / "log0").iterdir() if path.is_dir()]
        assert len(names) == 1
        assert names[0].startswith("orders-0.")
        assert names[0].endswith("-delete")
        await manager.housekeeping.work()
        assert (tmp_path / "log0" / names[0]).exists()
        with pytest.raises(KafkaError):
            append(log, 1)
        fresh = manager.get_or_create(tip(topic_id=bytes(range(2, 18))), CONFIG)
        assert fresh.log_end_offset == 0
        await manager.checkpoints.write_all()
        manager.abandon()
        # The next run removes what is left.
        again = await start(tmp_path)
        await again.housekeeping.work()
        assert not (tmp_path / "log0" / names[0]).exists()
        assert [log.log_end_offset for log in again.all_logs] == [0]
        again.abandon()

    run(play)


class SyncRecorder(OsDisk):
    """The machine's disk; tells which files were synced, and on which thread."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[tuple[str, bool]] = []

    def open(self, path: str, *, create: bool = False) -> OsFile:
        recorder = self

        class Recorded(OsFile):
            def sync(self) -> None:
                recorder.note(path)
                super().sync()

        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return Recorded(os.open(path, flags, 0o644), path)

    def write_atomic(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        if sync:
            self.note(path)
        super().write_atomic(path, data, sync=sync)

    def sync_dir(self, path: str) -> None:
        self.note(path)
        super().sync_dir(path)

    def note(self, path: str) -> None:
        self.synced.append((path, threading.current_thread() is threading.main_thread()))

    def take(self) -> list[tuple[str, bool]]:
        taken, self.synced = self.synced, []
        return taken


def test_a_new_logs_topic_id_is_synced_by_a_worker_once_no_more_logs_are_created(tmp_path: Path) -> None:
    async def play() -> None:
        disk = SyncRecorder()
        ports = replace(ports_here(), disk=disk)
        manager = LogManager(ports, LogManagerConfig(default_log=CONFIG), [str(tmp_path / "log0")])
        manager.directories.open_dirs(CLUSTER, 1)
        await manager.load_all()
        disk.take()
        manager.get_or_create(tip(), CONFIG)
        # A kill finds it all the same: what a process wrote outlives it.
        assert read_topic_id(disk, str(tmp_path / "log0" / "orders-0")) == ID
        await manager.housekeeping.work()
        assert disk.take() == []
        await manager.housekeeping.work()
        folder = str(tmp_path / "log0" / "orders-0")
        assert disk.take() == [(f"{folder}/partition.metadata", False), (folder, False)]
        await manager.housekeeping.work()
        assert disk.take() == []
        manager.abandon()
        ports.workers.close()

    asyncio.run(play())  # with worker threads, of which it tells


def test_the_topic_id_reaches_the_device_before_the_records_of_a_flush_and_on_a_clean_stop(tmp_path: Path) -> None:
    async def play() -> None:
        disk = SyncRecorder()
        ports = replace(ports_here(), disk=disk)
        manager = LogManager(ports, LogManagerConfig(default_log=CONFIG), [str(tmp_path / "log0")])
        manager.directories.open_dirs(CLUSTER, 1)
        await manager.load_all()
        log = manager.get_or_create(tip(), CONFIG)
        append(log, 0)
        disk.take()
        log.flush()
        assert [Path(path).name for path, _ in disk.take()][:2] == ["partition.metadata", f"{0:020d}.log"]
        empty = manager.get_or_create(tip("empty"), CONFIG)
        await manager.shutdown()
        assert f"{empty.dir}/partition.metadata" in [path for path, _ in disk.take()]
        ports.workers.close()

    run(play)


def test_a_topic_id_that_was_lost_with_the_machines_power_is_none(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        manager.get_or_create(tip(), CONFIG)
        manager.abandon()
        (tmp_path / "log0" / "orders-0" / "partition.metadata").write_bytes(b"")
        again = await start(tmp_path)
        assert [log.topic_id_partition.topic_id for log in again.all_logs] == [bytes(16)]
        again.abandon()

    run(play)


def test_a_folder_of_another_topic_of_that_name_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        manager.get_or_create(tip(), CONFIG)
        with pytest.raises(KafkaError) as caught:
            manager.get_or_create(tip(topic_id=bytes(range(2, 18))), CONFIG)
        assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
        manager.abandon()

    run(play)


def test_new_logs_go_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path, dirs=2)
        for partition in range(4):
            manager.get_or_create(tip(partition=partition), CONFIG)
        assert [len(manager.logs_in(log_dir)) for log_dir in manager.directories.dirs] == [2, 2]
        await manager.shutdown()
        again = await start(tmp_path, dirs=2)
        assert len(again.all_logs) == 4
        again.abandon()

    run(play)


def test_deleted_segments_are_removed_and_sealed_ones_flushed(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        log = manager.get_or_create(tip(), replace(CONFIG, segment_index_bytes=24, retention_bytes=0))
        append(log, *range(5))
        assert log.recovery_point == 0
        await manager.housekeeping.work()
        assert log.recovery_point == 4
        log.update_high_watermark(5)
        await manager.housekeeping.apply_retention()
        assert log.log_start_offset == 5
        folder = tmp_path / "log0" / "orders-0"
        assert list(folder.glob("*.deleted"))
        await manager.housekeeping.work()
        assert not list(folder.glob("*.deleted"))
        assert [path.name for path in folder.glob("*.log")] == [f"{5:020d}.log"]
        manager.abandon()

    run(play)


def test_a_flush_interval_moves_the_recovery_point(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        by_count = manager.get_or_create(tip(), replace(CONFIG, flush_messages=3))
        append(by_count, 0, 1)
        assert by_count.recovery_point == 0
        append(by_count, 2)
        assert by_count.recovery_point == 3
        by_time = manager.get_or_create(tip("clicks"), replace(CONFIG, flush_ms=0))
        append(by_time, 0)
        await manager.housekeeping.work()
        assert by_time.recovery_point == 1
        manager.abandon()

    run(play)


def test_housekeeping_looks_at_no_log_twice_that_has_nothing_to_do(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        logs = [manager.get_or_create(tip(partition=n), CONFIG) for n in range(5)]
        for _ in range(3):
            await manager.housekeeping.work()
        assert not manager.housekeeping.with_work
        # Each event that brings work is noticed: a roll, files to remove, and a time to flush after.
        append(logs[0], 0)
        logs[0].roll()
        assert manager.housekeeping.with_work.keys() == {logs[0]}
        await manager.housekeeping.work()
        assert logs[0].recovery_point == 1
        logs[1].truncate_fully_and_start_at(7)
        logs[2].config = replace(CONFIG, flush_ms=0)
        assert manager.housekeeping.with_work.keys() == {*logs[:3]}
        await manager.housekeeping.work()
        await manager.housekeeping.work()
        assert manager.housekeeping.with_work.keys() == {logs[2]}
        manager.async_delete(tip(partition=2).topic_partition)
        await manager.housekeeping.work()
        assert not manager.housekeeping.with_work
        manager.abandon()

    run(play)


def test_a_log_that_has_changed_is_reported_once_and_a_deleted_one_never(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        logs = [manager.get_or_create(tip(partition=n), CONFIG) for n in range(3)]
        for log in logs:
            append(log, 0, 1, 2)
            log.update_high_watermark(3)
        for offset in (1, 2):
            logs[1].maybe_increment_log_start_offset(offset)
        logs[0].mark_offline("a test says so")
        manager.async_delete(tip(partition=2).topic_partition)
        logs[2].maybe_increment_local_log_start_offset(2)
        logs[2].mark_offline("nobody uses it")
        assert [await manager.changed_logs.next() for _ in range(2)] == [logs[1], logs[0]]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(manager.changed_logs.next(), 0.01)
        assert manager.offline_reason(tip().topic_partition) == "a test says so"
        manager.abandon()

    run(play)


def test_passes_of_retention_come_less_often_where_thousands_of_logs_are() -> None:
    assert retention_interval_ms(1_000, 200) == 1_000
    assert retention_interval_ms(1_000, 6_200) == 72_000
    assert retention_interval_ms(90_000, 6_200) == 90_000
    assert retention_interval_ms(1_000, 10**6) == 300_000, "Kafka's default"


def test_the_background_work_runs_and_ends_with_the_manager(tmp_path: Path) -> None:
    async def play() -> None:
        config = LogManagerConfig(
            default_log=CONFIG, initial_task_delay_ms=0, retention_check_interval_ms=1,
            high_watermark_checkpoint_interval_ms=1,
        )  # fmt: skip
        manager = await start(tmp_path, config=config)
        log = manager.get_or_create(tip(), replace(CONFIG, retention_bytes=0))
        append(log, 0)
        log.update_high_watermark(1)
        manager.start()
        for _ in range(500):
            await asyncio.sleep(0.01)
            checkpoint = tmp_path / "log0" / "replication-offset-checkpoint"
            if log.log_start_offset == 1 and checkpoint.exists() and "orders 0 1" in checkpoint.read_text():
                break
        else:
            raise AssertionError(log.describe())
        await manager.shutdown()

    run(play)


def test_directories_of_others_are_refused_with_one_sentence(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        path = str(tmp_path / "log0")
        second = LogManager(ports_here(), LogManagerConfig(), [path])
        with pytest.raises(LogDirError, match="in use by another process"):
            second.directories.open_dirs(CLUSTER, 1)
        await manager.shutdown()
        with pytest.raises(LogDirError, match=f"belongs to cluster {CLUSTER}, not other"):
            second.directories.open_dirs("other", 1)
        with pytest.raises(LogDirError, match="belongs to node 1, not 2"):
            second.directories.open_dirs(CLUSTER, 2)
        (tmp_path / "file").write_bytes(b"")
        third = LogManager(ports_here(), LogManagerConfig(), [str(tmp_path / "file")])
        with pytest.raises(LogDirError, match="cannot be written"):
            third.directories.open_dirs(CLUSTER, 1)
        # A refused start leaves the directory usable.
        second.directories.open_dirs(CLUSTER, 1)
        second.abandon()

    run(play)


def test_a_directory_that_the_system_refuses_is_left_out_unless_it_is_the_first(tmp_path: Path) -> None:
    async def play() -> None:
        (tmp_path / "log1").write_bytes(b"")
        manager = await start(tmp_path, dirs=2)
        assert manager.directories.left_out == [str(tmp_path / "log1")]
        assert [log_directory.path for log_directory in manager.directories.usable_dirs] == [str(tmp_path / "log0")]
        with pytest.raises(KafkaError, match="is offline") as refused:
            manager.directories.dir_at(str(tmp_path / "log1"))
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert manager.get_or_create(tip(), CONFIG).dir.startswith(str(tmp_path / "log0"))
        await manager.shutdown(7)
        again = LogManager(ports_here(), LogManagerConfig(), [str(tmp_path / "log1"), str(tmp_path / "log0")])
        with pytest.raises(LogDirError, match="log1 cannot be written"):
            again.directories.open_dirs(CLUSTER, 1)

    run(play)


def test_a_partition_in_two_directories_stops_the_start(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path, dirs=2)
        manager.get_or_create(tip(), CONFIG)
        manager.abandon()
        (tmp_path / "log1" / "orders-0").mkdir()
        with pytest.raises(LogDirError, match="orders-0 lies in"):
            await start(tmp_path, dirs=2)

    run(play)


def test_of_two_folders_the_one_stays_that_the_controller_knows_of(tmp_path: Path) -> None:
    """The first was in a broken directory when its replica was deleted; the replica has come back elsewhere since."""

    async def play() -> None:
        manager = await start(tmp_path, dirs=2)
        manager.get_or_create(tip(), CONFIG)
        manager.abandon()
        shutil.copytree(tmp_path / "log0" / "orders-0", tmp_path / "log1" / "orders-0")
        again = LogManager(ports_here(), LogManagerConfig(), [str(tmp_path / f"log{n}") for n in (0, 1)])
        again.directories.open_dirs(CLUSTER, 1)
        kept = again.directories.directory_ids[str(tmp_path / "log1")]
        await again.load_all(directory_of=lambda partition: kept if partition == ORDERS else None)
        log = again.get(ORDERS)
        assert log is not None
        assert log.dir == str(tmp_path / "log1" / "orders-0")
        assert not (tmp_path / "log0" / "orders-0").exists()
        await again.shutdown(7)

    run(play)


def test_settings_come_from_the_brokers_properties(tmp_path: Path) -> None:
    properties = {
        "log.retention.hours": "2", "log.segment.bytes": "2097152", "log.local.retention.bytes": "5",
        "remote.log.storage.system.enable": "true", "log.retention.check.interval.ms": "77",
    }  # fmt: skip
    config = LogManagerConfig.of(BrokerConfig.parse(properties))
    assert config.remote_system_enabled
    assert config.retention_check_interval_ms == 77
    assert config.default_log.retention_ms == 7_200_000
    assert config.default_log.segment_bytes == 2_097_152
    assert config.default_log.effective_local_retention_bytes == 5
    assert LogConfig.from_properties({"retention.ms": "9"}, config.default_log).effective_local_retention_ms == 9
    assert LogManagerConfig.of(BrokerConfig.parse({})).default_log == LogConfig()
