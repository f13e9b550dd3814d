"""Moves to another log directory keep to the broker's throttle, which may change while they go on."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from backend.engine.log.unified_log import UnifiedLog
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.tiering.ids import TopicPartition
from tests.unit.engine.coordinator.group.group_nodes import GroupNodes, run_nodes
from tests.unit.engine.replica.nodes import Nodes, play

ORDERS = TopicPartition("orders", 0)
BROKER = 4
HALF_MB = bytes(500_000)


class TwoDirectories(GroupNodes):
    """Each broker has two log directories."""

    dirs = 2


async def moved(nodes: TwoDirectories, after_ms: float) -> bool:
    """Whether the move is over by then."""
    await nodes.pass_ms(after_ms)
    return ORDERS not in nodes[1].logs.futures


def test_a_directory_that_is_full_refuses_a_move_and_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    async def play(nodes: TwoDirectories) -> None:
        nodes.create("orders", [1])
        replicas, logs = nodes[1].replicas, nodes[1].logs
        partition = replicas.partition("orders", 0)
        [target] = [
            log_directory.path
            for log_directory in logs.directories.dirs
            if not partition.log.dir.startswith(log_directory.path + "/")
        ]
        monkeypatch.setattr(nodes[1].ports.disk, "make_dirs", full)
        with pytest.raises(KafkaError, match=r"cannot be begun: .*No space left.* ask again") as refused:
            replicas.log_dir_moves.move(partition, target)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not logs.directories.failed_dirs
        assert ORDERS not in logs.futures
        assert not list(Path(target).glob("*-future"))
        monkeypatch.undo()
        replicas.log_dir_moves.move(partition, target)
        assert await moved(nodes, 500)

    run_nodes(TwoDirectories, tmp_path, play)


def test_a_log_start_that_is_raised_as_a_move_ends_reaches_the_follower_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TwoBrokers(Nodes):
        dirs = 2

    async def run() -> None:
        async with TwoBrokers(tmp_path, count=2, replica_fetch_wait_max_ms="60000") as nodes:
            nodes.create("orders", [1, 2])
            await nodes.produce(1, "orders", b"value")
            await nodes.until("the follower has the high watermark", lambda: nodes[2].offsets("orders")[2] == 1)
            leader, logs = nodes[1].partition("orders"), nodes[1].logs
            finish = logs.finish_move

            def finish_after_delete_records(log: UnifiedLog) -> UnifiedLog:
                leader.delete_records_before(1)
                return finish(log)

            monkeypatch.setattr(logs, "finish_move", finish_after_delete_records)
            [target] = [at.path for at in logs.directories.dirs if not leader.log.dir.startswith(at.path + "/")]
            nodes[1].replicas.log_dir_moves.move(leader, target)
            await nodes.until("the follower has the log start", lambda: nodes[2].offsets("orders")[0] == 1)
            assert leader.log.dir.startswith(target + "/")

    play(run)


def test_a_move_keeps_to_the_throttle_until_it_is_lifted(tmp_path: Path) -> None:
    async def play(nodes: TwoDirectories) -> None:
        nodes.create("orders", [1])
        replicas = nodes[1].replicas
        for _ in range(8):
            batch = build_batch([RecordData(1_700_000_000_000, None, HALF_MB)])
            await replicas.append(ORDERS, memoryview(bytearray(batch)))
        nodes.config(BROKER, "1", replica_alter_log_dirs_io_max_bytes_per_second="1000000")
        partition = replicas.partition("orders", 0)
        [target] = [
            log_directory.path
            for log_directory in nodes[1].logs.directories.dirs
            if not partition.log.dir.startswith(log_directory.path + "/")
        ]
        replicas.log_dir_moves.move(partition, target)
        # Four megabytes at one a second, a megabyte at a time.
        assert not await moved(nodes, 2_000)
        assert 1_000_000 <= nodes[1].logs.futures[ORDERS].log.size_bytes <= 3_000_000
        nodes.config(BROKER, "1", replica_alter_log_dirs_io_max_bytes_per_second="1000000000")
        assert await moved(nodes, 500)
        assert replicas.partition("orders", 0).log.dir.startswith(target + "/")

    run_nodes(TwoDirectories, tmp_path, play)
