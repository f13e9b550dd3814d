"""The metadata log on disk: Kafka's files, epochs, what a crash may take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.engine.config import BrokerConfig
from backend.engine.log.log_errors import CorruptLog
from backend.engine.ports import Ports
from backend.engine.raft.leader_fetch import decide, has_records
from backend.engine.raft.metadata_batches import MetadataBatch, decode_batches
from backend.engine.raft.metadata_log import READ_BYTES, MetadataLog, MetadataLogFailed
from backend.engine.raft.metadata_log_opening import open_metadata_log
from backend.engine.raft.quorum_state import (
    BadQuorumState,
    QuorumState,
    VoterStanding,
    decode_quorum_state,
    encode_quorum_state,
)
from backend.engine.raft.raft_node import RaftNode
from backend.engine.raft.raft_state import LogEnd
from backend.engine.raft.snapshot_files import SnapshotId
from backend.engine.raft.voter_memory import read_quorum_state
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError
from tests.unit.engine.virtual_time import ports_here, run_virtual
from tests.unit.protocol.kafka_fixtures import ROOT as KAFKA

FEATURE = m.FeatureLevelRecord(name="metadata.version", feature_level=30)


def run(test: Callable[[Ports], Coroutine[Any, Any, None]]) -> None:
    async def with_ports() -> None:
        ports = ports_here()
        try:
            await asyncio.wait_for(test(ports), 30)
        finally:
            ports.workers.close()

    run_virtual(with_ports())


def config_of(folder: Path, **properties: str) -> BrokerConfig:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return BrokerConfig.parse({"node.id": "1", "log.dirs": str(folder), **given})


async def opened(ports: Ports, folder: Path, **properties: str) -> MetadataLog:
    folder.mkdir(exist_ok=True)
    return await open_metadata_log(ports, config_of(folder, **properties))


def stored(log: MetadataLog) -> list[MetadataBatch]:
    """Everything that the log holds, committed or not."""
    batches: list[MetadataBatch] = []
    offset = log.start_offset
    while offset < log.end_offset:
        batches += decode_batches(log.read(offset, READ_BYTES, log.end_offset))
        offset = batches[-1].last_offset + 1
    return batches


async def begin(log: MetadataLog, epoch: int = 1) -> None:
    """An epoch of an only voter."""
    log.append_leader_change(1, epoch, (1,), (1,), 1000)
    log.update_high_watermark(await log.flush())


def test_each_epoch_begins_with_a_leader_change(tmp_path: Path) -> None:
    async def play(ports: Ports) -> None:
        for epoch in (1, 2, 3):
            log = await opened(ports, tmp_path)
            await begin(log, epoch)
            assert log.end == LogEnd(epoch, 3 * epoch - 2)
            log.append([FEATURE, FEATURE], epoch, 1001)
            await log.flush()
            log.close()
        log = await opened(ports, tmp_path)
        batches = stored(log)
        assert [(batch.base_offset, batch.last_offset, batch.epoch) for batch in batches] == [
            (0, 0, 1), (1, 2, 1), (3, 3, 2), (4, 5, 2), (6, 6, 3), (7, 8, 3),
        ]  # fmt: skip
        assert [len(batch.records) for batch in batches] == [0, 2, 0, 2, 0, 2]
        assert batches[1].records == (FEATURE, FEATURE)
        assert log.end_offset_for_epoch(2) == (2, 6)
        log.close()

    run(play)


def test_what_a_node_has_promised_is_read_back_from_kafkas_file(tmp_path: Path) -> None:
    async def play(ports: Ports) -> None:
        log = await opened(ports, tmp_path)
        assert read_quorum_state(ports.disk, log.dir) == (None, None)
        promised = QuorumState(leader_id=-1, leader_epoch=3, voted_id=2, voters=(1, 2, 3))
        await log.write_state(promised)
        assert read_quorum_state(ports.disk, log.dir) == (promised, None)
        quorum_state = replace(promised, directory_id=b"d" * 16, standing=VoterStanding.CATCHING_UP)
        await log.write_state(quorum_state)
        assert read_quorum_state(ports.disk, log.dir) == (quorum_state, None)
        log.close()

    run(play)
    state = json.loads((tmp_path / "__cluster_metadata-0" / "quorum-state").read_bytes())
    assert (state["votedId"], state["leaderEpoch"], len(state["currentVoters"])) == (2, 3, 3)


def test_records_of_a_lost_leader_are_cut_off_but_never_committed_ones(tmp_path: Path) -> None:
    async def play(ports: Ports) -> None:
        log = await opened(ports, tmp_path)
        await begin(log)
        log.append([FEATURE] * 3, 1, 1000)
        log.append([FEATURE] * 3, 1, 1000)
        assert await log.flush() == 7
        log.update_high_watermark(4)
        await log.truncate_to(4)
        assert log.end == LogEnd(1, 4)
        with pytest.raises(MetadataLogFailed, match="below the committed offset"):
            await log.truncate_to(3)
        log.close()

    run(play)


def test_a_fetched_snapshot_stands_for_the_whole_log(tmp_path: Path) -> None:
    async def play(ports: Ports) -> None:
        log = await opened(ports, tmp_path)
        await begin(log)
        await log.write_snapshot(SnapshotId(700, 4), [b"x"])
        await log.start_at_snapshot(SnapshotId(700, 4))
        assert (log.start_offset, log.high_watermark, log.end) == (700, 700, LogEnd(4, 700))
        log.close()
        again = await opened(ports, tmp_path)
        assert (again.start_offset, again.high_watermark, again.end) == (700, 700, LogEnd(4, 700))
        again.close()

    run(play)


def test_a_leader_names_no_snapshot_to_whoever_has_what_came_before_its_log(tmp_path: Path) -> None:
    """It started at a fetched snapshot, of an epoch in which it has nothing older; its own old ones are still there."""

    async def play(ports: Ports) -> None:
        log = await opened(ports, tmp_path)
        await begin(log)
        log.append([FEATURE] * 3, 1, 1000)
        log.update_high_watermark(await log.flush())
        await log.write_snapshot(SnapshotId(4, 1), [b"x"])
        assert log.earliest_snapshot == SnapshotId(4, 1)
        await log.write_snapshot(SnapshotId(43, 2), [b"x"])
        await log.start_at_snapshot(SnapshotId(43, 2))
        log.append_leader_change(1, 3, (1, 2, 3), (1, 2), 1000)
        await log.flush()
        check(ports, log)
        log.close()
        # A start finds the same.
        again = await opened(ports, tmp_path)
        check(ports, again)
        again.close()

    def check(ports: Ports, log: MetadataLog) -> None:
        assert log.snapshots.ids == (SnapshotId(4, 1), SnapshotId(43, 2))
        assert log.earliest_snapshot == SnapshotId(43, 2)
        view = replace(
            RaftNode(ports, config_of(tmp_path), log, cluster_id="c").view(), leader_id=1, epoch=3, is_leader=True
        )

        def answer(offset: int, epoch: int) -> m.FetchResponse.Responses.Partitions:
            partition = m.FetchRequest.Topics.Partitions(
                fetch_offset=offset, last_fetched_epoch=epoch, current_leader_epoch=3
            )
            return decide(partition, view, log.end_offset_for_epoch)

        assert has_records(answer(43, 2)), "it has been told to cut its log there"
        for offset, epoch in ((43, 1), (42, 2), (44, 1)):
            assert answer(offset, epoch).snapshot_id.end_offset == 43

    run(play)


def test_a_crash_while_a_snapshot_is_installed_leaves_no_gap_behind_it(tmp_path: Path) -> None:
    """Whichever of the old segments are gone by then: the next start goes on behind the snapshot."""

    async def play(ports: Ports, gone_after: int) -> None:
        folder = tmp_path / str(gone_after)
        log = await opened(ports, folder, **{"metadata.log.segment.bytes": "300"})
        await begin(log)
        for _ in range(12):
            log.append([FEATURE], 1, 1000)
        assert len(list(Path(log.dir).glob("*.log"))) > 3
        # Of another history, which ends in the middle of this one.
        snapshot_id = SnapshotId(5, 2)
        await log.write_snapshot(snapshot_id, [b"x"])
        rename, renamed = ports.disk.rename, 0

        def rename_some(source: str, target: str) -> None:
            nonlocal renamed
            renamed += 1
            if renamed > gone_after:
                raise OSError("the power is gone")
            rename(source, target)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ports.disk, "rename", rename_some)
            with pytest.raises(OSError, match="the power is gone"):
                await log.start_at_snapshot(snapshot_id)
        log.abandon()
        again = await opened(ports, folder)
        assert (again.start_offset, again.end_offset) == (5, 5)
        again.close()

    for gone_after in range(9):
        run(lambda ports, count=gone_after: play(ports, count))  # type: ignore[misc]  # bound now


def test_nothing_is_visible_before_it_is_committed(tmp_path: Path) -> None:
    async def play(ports: Ports) -> None:
        log = await opened(ports, tmp_path)
        await begin(log)
        assert log.high_watermark == log.end_offset == 1
        log.append([FEATURE], 1, 1000)
        await log.flush()
        assert (log.high_watermark, log.end_offset) == (1, 2)
        assert log.read(1, 1000) == b""
        assert len(list(decode_batches(log.read(1, 1000, log.end_offset)))) == 1, "voters get what is not committed yet"
        waiting = asyncio.ensure_future(log.wait_until(lambda: log.high_watermark > 1, 10_000))
        await asyncio.sleep(0)
        assert not waiting.done()
        log.update_high_watermark(2)
        assert await waiting
        assert [batch.records for batch in decode_batches(log.read(1, 1000))] == [(FEATURE,)]
        assert not await log.wait_until(lambda: log.high_watermark > 2, 1)
        log.close()

    run(play)


def test_a_tail_that_was_cut_off_is_dropped_and_the_rest_stays(tmp_path: Path) -> None:
    file = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"

    async def write(ports: Ports) -> None:
        log = await opened(ports, tmp_path)
        await begin(log)
        for _ in range(3):
            log.append([FEATURE], 1, 1000)
        await log.flush()
        log.abandon()

    async def read(ports: Ports) -> None:
        log = await opened(ports, tmp_path)
        assert log.end_offset == 3
        assert sum(len(batch.records) for batch in stored(log)) == 2
        log.close()

    run(write)
    with file.open("r+b") as log_file:
        log_file.truncate(file.stat().st_size - 5)
    run(read)


def test_damage_before_the_tail_is_never_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"

    async def write(ports: Ports) -> None:
        log = await opened(ports, tmp_path)
        await begin(log)
        for _ in range(3):
            log.append([FEATURE], 1, 1000)
        await log.flush()
        log.close()

    async def read(ports: Ports) -> None:
        with pytest.raises(CorruptLog):
            await opened(ports, tmp_path)

    run(write)
    data = bytearray(file.read_bytes())
    data[170] ^= 0xFF
    file.write_bytes(data)
    run(read)


@pytest.mark.parametrize("left", [None, "0\n1\n1 0\n"], ids=["lost", "old"])
def test_the_records_say_which_epochs_they_are_of_when_the_epoch_file_does_not(
    tmp_path: Path, left: str | None
) -> None:
    """A power failure may take the file: a node that took its log for less would vote for one that lacks records."""

    async def play(ports: Ports) -> None:
        for epoch in (1, 2, 4):
            log = await opened(ports, tmp_path, metadata_log_segment_bytes="200")
            await begin(log, epoch)
            for _ in range(3):
                log.append([FEATURE], epoch, 1001)
            await log.flush()
            log.close()
        file = tmp_path / "__cluster_metadata-0" / "leader-epoch-checkpoint"
        file.unlink()
        if left is not None:
            file.write_text(left)
        log = await opened(ports, tmp_path, metadata_log_segment_bytes="200")
        assert log.end == LogEnd(4, 12)
        assert [log.end_offset_for_epoch(epoch) for epoch in (1, 2, 3, 4)] == [(1, 4), (2, 8), (2, 8), (4, 12)]
        log.close()

    run(play)


def test_many_segments_are_replayed_in_order(tmp_path: Path) -> None:
    async def play(ports: Ports) -> None:
        log = await opened(ports, tmp_path, metadata_log_segment_bytes="300")
        await begin(log)
        for level in range(1, 30):
            log.append([m.FeatureLevelRecord(name="f", feature_level=level)], 1, 1000)
            if level % 7 == 0:
                await log.flush()
        await log.flush()
        log.close()
        assert len(list((tmp_path / "__cluster_metadata-0").glob("*.log"))) > 5
        log = await opened(ports, tmp_path, metadata_log_segment_bytes="300")
        levels = [getattr(record, "feature_level", 0) for b in stored(log) for record in b.records]
        assert levels == list(range(1, 30))
        log.close()

    run(play)


def test_a_checkpoint_of_apache_kafka_decodes_as_batches() -> None:
    data = (KAFKA / "kraft" / "00000000000000000776-0000000002.checkpoint").read_bytes()
    batches = list(decode_batches(data))
    assert [len(batch.records) for batch in batches] == [0, 93, 0]
    damaged = bytearray(data)
    damaged[200] ^= 1
    with pytest.raises(DecodeError):
        list(decode_batches(damaged))


def test_the_quorum_state_file_is_kafkas() -> None:
    written = (KAFKA / "kraft" / "quorum-state").read_bytes()
    state = decode_quorum_state(written)
    assert state == QuorumState(leader_id=1, leader_epoch=4, voted_id=-1, voters=(1,))
    assert encode_quorum_state(state) == written
    newer = b'{"leaderId":2,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    assert decode_quorum_state(newer) == QuorumState(leader_id=2, leader_epoch=7)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"\xff", b'{"data_version":9,"leaderId":1}', b'{"data_version":0}']
)
def test_other_quorum_state_files_are_refused(data: bytes) -> None:
    with pytest.raises(BadQuorumState):
        decode_quorum_state(data)


def test_more_records_than_a_batch_holds_go_in_several(tmp_path: Path) -> None:
    async def play(ports: Ports) -> None:
        log = await opened(ports, tmp_path)
        await begin(log)
        assert log.append([FEATURE] * 20_001, 1, 1000) == 20_001
        await log.flush()
        assert [len(batch.records) for batch in stored(log)] == [0, 10_000, 10_000, 1]
        log.close()

    run(play)
