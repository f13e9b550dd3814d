"""Folders of replicas that are kept: strays and damaged ones; nothing removes them by itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from backend.engine.log.file_names import parse_dir_name, parse_stray_dir_name
from backend.engine.log.manager.stray_replicas import REASON_UNKNOWN, remove_set_aside, set_aside_in
from backend.engine.ports.disk import OsDisk
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition
from tests.unit.engine.log.logs import append, replicate
from tests.unit.engine.log.managers import CONFIG, ORDERS, run, start, tip


def test_a_log_is_renamed_kept_over_a_restart_listed_and_removed_by_name_only(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        append(manager.get_or_create(tip(), CONFIG), *range(3))
        log_dir = f"{tmp_path}/log0"
        records = (tmp_path / "log0" / "orders-0" / f"{0:020d}.log").read_bytes()
        kept = manager.set_aside(ORDERS, "nobody knows it")
        assert kept is not None
        assert manager.get(ORDERS) is None
        # A new, empty log of the partition begins beside it.
        assert manager.get_or_create(tip(), CONFIG).log_end_offset == 0
        await manager.housekeeping.work()
        await manager.shutdown()

        again = await start(tmp_path)
        [folder] = set_aside_in(OsDisk(), log_dir)
        assert (folder.name, folder.reason) == (kept.rpartition("/")[2], "nobody knows it")
        assert (Path(kept) / f"{0:020d}.log").read_bytes() == records
        assert folder.size_bytes > len(records)
        assert abs(folder.since_ms - again._ports.clock.time_ms()) < 60_000
        assert parse_dir_name(folder.name) is None
        assert parse_stray_dir_name(folder.name) == ORDERS
        for name in ("orders-0", "../orders-0", "", folder.name + "x", "none-0.x-stray"):
            assert not remove_set_aside(OsDisk(), log_dir, name)
        assert remove_set_aside(OsDisk(), log_dir, folder.name)
        assert set_aside_in(OsDisk(), log_dir) == []
        again.abandon()

    run(play)


def test_a_stray_of_kafkas_own_is_listed_with_the_time_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / ("clicks-3." + "0" * 32 + "-stray")
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"12345")
    [stray] = set_aside_in(OsDisk(), str(tmp_path))
    assert (stray.size_bytes, stray.reason) == (5, REASON_UNKNOWN)
    assert stray.since_ms > 0
    (folder / "set-aside.json").write_text('{"setAsideMs": "x"}')
    [stray] = set_aside_in(OsDisk(), str(tmp_path))
    assert stray.reason == REASON_UNKNOWN


@pytest.mark.parametrize("has_others", [True, False])
def test_a_folder_that_was_taken_away_is_missed_where_others_have_its_records(tmp_path: Path, has_others: bool) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        log = manager.get_or_create(tip(), CONFIG)
        append(log, *range(3))
        replicate(log)
        manager.get_or_create(tip("empty"), CONFIG)
        await manager.shutdown()
        shutil.rmtree(tmp_path / "log0" / "orders-0")
        shutil.rmtree(tmp_path / "log0" / "empty-0")

        again = await start(tmp_path, has_others=has_others)
        assert again.get_or_create(tip("empty"), CONFIG).log_end_offset == 0
        if not has_others:
            assert again.get_or_create(tip(), CONFIG).log_end_offset == 0
        else:
            with pytest.raises(KafkaError, match="is missing, which had records up to offset 3") as caught:
                again.get_or_create(tip(), CONFIG)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            # Once another leads there is nothing to keep, and the replica is copied again from the start.
            assert again.set_aside(ORDERS, "it is missing") == ""
            assert again.get_or_create(tip(), CONFIG).log_end_offset == 0
        again.abandon()

    run(play)


def test_a_topic_id_that_makes_no_sense_is_written_again(tmp_path: Path) -> None:
    async def play() -> None:
        manager = await start(tmp_path)
        append(manager.get_or_create(tip(), CONFIG), 0, 1)
        await manager.shutdown()
        file = tmp_path / "log0" / "orders-0" / "partition.metadata"
        whole = file.read_bytes()
        file.write_bytes(b"\xff\x00none")
        again = await start(tmp_path)
        assert again.offline_reason(TopicPartition("orders", 0)) is None
        assert again.get_or_create(tip(), CONFIG).log_end_offset == 2
        assert file.read_bytes() == whole
        again.abandon()

    run(play)
