"""Reads of consumers from the remote tier, compared with the responses of a real Kafka."""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from backend.engine.log.log_errors import OffsetOutOfRange
from backend.engine.log.recovery.log_loader import LoadOptions, open_log
from backend.engine.log.segments.timestamp_search import TimestampedOffset
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports.disk import OsDisk
from backend.engine.ports.random import SystemRandom
from backend.engine.remote.manager.copy_task import CopyTask
from backend.engine.remote.manager.remote_read import read
from backend.engine.remote.manager.remote_timestamp_search import offset_for_timestamp
from backend.engine.remote.storage.object_store_manager import EventType
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageError, RemoteStorageNotReady
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.control_records import end_txn_marker
from backend.protocol.record_batches.record_batch import RecordData, build_batch, iter_batches
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate, decode
from backend.tiering.ids import TopicIdPartition, uuid_bytes, uuid_text
from tests.unit.engine.log.logs import FIXTURES, NOW_MS, TIP, append, batch, open_test_log, replicate
from tests.unit.engine.remote.faulty_store import with_faults
from tests.unit.engine.remote.tiers import TIERED, Broker, View, golden_tiered_log, tier_broker
from tests.unit.engine.virtual_time import run_virtual


def play(folder: Path, scene: Callable[[Broker, UnifiedLog], Awaitable[None]], log: UnifiedLog | None = None) -> None:
    """Copies the golden log (or another) and deletes what is copied from the local disk."""

    async def run() -> None:
        played = log or golden_tiered_log(folder)
        async with tier_broker(folder) as broker:
            await CopyTask(View(played), broker.tier).run()
            played.delete_old_segments(NOW_MS)
            broker.storage.history.clear()
            await scene(broker, played)

    run_virtual(run())


def offsets(records: bytes | memoryview) -> list[int]:
    return [header.base_offset for _, header in iter_batches(records)]


async def fetch(broker: Broker, log: UnifiedLog, offset: int, max_bytes: int, **how: bool) -> bytes:
    remote_read = await read(
        broker.tier, log, offset, max_bytes, min_one_message=how.get("min_one", True), read_committed=False
    )
    assert remote_read.aborted is None
    return bytes(remote_read.records)


def test_every_offset_is_read_from_its_segment_with_one_call_to_the_storage(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 6)
        for offset in range(6):
            broker.storage.history.clear()
            records = await fetch(broker, log, offset, 10_000)
            assert offsets(records) == list(range(offset, 3 if offset < 3 else 6))
            assert len(broker.history(EventType.FETCH_SEGMENT)) == 1
        assert len(broker.tier.indexes) == 2

    play(tmp_path, scene)


def test_what_a_deposed_leader_wrote_behind_the_fork_is_not_read_from_the_tier(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        # Segment 3-5 has offsets 3 and 4 of epoch 1; an unclean leader had one of them.
        log.truncate_to(4)
        append(log, 4, epoch=7)
        replicate(log)
        assert log.leader_epochs.entries == ((0, 0), (1, 3), (7, 4))
        assert offsets(await fetch(broker, log, 3, 10_000)) == [3]
        assert offsets(await fetch(broker, log, 1, 10_000)) == [1, 2]

    play(tmp_path, scene)


def test_a_new_limit_of_the_index_cache_holds_at_once(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        for offset in (0, 3):
            await fetch(broker, log, offset, 10_000)
        await broker.manager.apply_settings()
        assert len(broker.tier.indexes) == 2
        smaller = broker.tier.config().overlay({"remote.log.index.file.cache.total.size.bytes": "1"})
        broker.tier.config = lambda: smaller
        await broker.manager.apply_settings()
        assert len(broker.tier.indexes) == 1
        assert {path.name.split("_")[0] for path in (tmp_path / "1" / "remote-log-index-cache").iterdir()} == {"3"}

    play(tmp_path, scene)


def test_a_small_budget_cuts_the_last_batch_and_one_message_comes_whole(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        records = await fetch(broker, log, 3, 100)
        assert (len(records), offsets(records)) == (100, [3])
        records = await fetch(broker, log, 4, 10)
        assert (len(records), offsets(records)) == (72, [4])
        assert await fetch(broker, log, 4, 10, min_one=False) == b""
        assert await fetch(broker, log, 4, 0, min_one=False) == b""

    play(tmp_path, scene)


def test_a_batch_larger_than_everything_asked_for_is_fetched_whole(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        records = await fetch(broker, log, 1, 200)
        assert (offsets(records), len(records)) == ([1], log_bytes)

    log = open_test_log(tmp_path, TIERED, remote=True)
    append(log, 0)
    big = build_batch([RecordData(NOW_MS, None, bytes(50_000))])
    log_bytes = len(big)
    log.append_as_leader(memoryview(big), 0, now_ms=NOW_MS)
    append(log, 2)
    log.roll()
    append(log, 3)
    replicate(log)
    play(tmp_path, scene, log)


def large_batches(folder: Path) -> UnifiedLog:
    """Offsets 0-1, 2-3, … 10-11 in batches of 50 kB, closed, then one more record."""
    log = open_test_log(folder, TIERED, remote=True)
    for _ in range(6):
        pair = build_batch([RecordData(NOW_MS, None, bytes(25_000)) for _ in range(2)])
        log.append_as_leader(memoryview(pair), 0, now_ms=NOW_MS)
    log.roll()
    append(log, 12)
    replicate(log)
    return log


def test_large_batches_take_one_call_to_the_storage_and_come_whole(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        for offset in range(12):
            broker.storage.history.clear()
            records = await fetch(broker, log, offset, 1_000)
            assert [
                (batch_header.base_offset, batch_header.size_bytes) for _, batch_header in iter_batches(records)
            ] == [(offset // 2 * 2, len(records))]
            assert len(broker.history(EventType.FETCH_SEGMENT)) == 1

    play(tmp_path, scene, large_batches(tmp_path))


def test_an_index_that_leads_into_the_middle_of_large_batches_hides_no_record(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        store = with_faults(broker.storage)
        size = log_bytes // 6
        # Of each batch but the first the last offset, as it should be, and the position of the batch after it.
        late = b"".join(pack(">ii", 2 * n + 1, min(n + 1, 5) * size) for n in range(1, 6))
        store.damage = lambda key, data: late if key.endswith(".index") else data
        with pytest.raises(RemoteStorageError, match=r"its index promises offset 5, there is offset 6"):
            await fetch(broker, log, 6, 1_000)
        # No batch at all where the entries lead.
        inside = b"".join(pack(">ii", 2 * n + 1, n * size + 7) for n in range(1, 6))
        store.damage = lambda key, data: inside if key.endswith(".index") else data
        with pytest.raises(RemoteStorageError):
            await fetch(broker, log, 6, 1_000)
        store.heal()
        assert offsets(await fetch(broker, log, 6, 1_000)) == [6]

    log = large_batches(tmp_path)
    log_bytes = log.segments.floor(0).size_bytes  # type: ignore[union-attr]  # it is there
    play(tmp_path, scene, log)


def test_offsets_that_no_segment_holds_are_out_of_range(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        for offset in (6, 7, 100):
            with pytest.raises(OffsetOutOfRange):
                await fetch(broker, log, offset, 100)

    play(tmp_path, scene)


def test_a_gap_at_the_end_of_a_segment_leads_to_the_next_one(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        first = next(segment for segment in broker.metadata.segments(TIP) if segment.start_offset == 0)
        path = tmp_path / "remote" / "kafka-tiered-storage"
        [log_file] = path.rglob("00000000000000000000-*.log")
        # As compaction would have left it: the last batch is gone, the range of the segment is not.
        log_file.write_bytes(log_file.read_bytes()[:144])
        [index_file] = path.rglob("00000000000000000000-*.index")
        index_file.write_bytes(index_file.read_bytes()[:8])
        shorter = first._replace(segment_size_bytes=144)

        class Shortened:
            def __getattr__(self, name: str) -> Any:
                return getattr(broker.metadata, name)

            def lookup(self, partition: TopicIdPartition, epoch: int, offset: int) -> SegmentMetadata | None:
                metadata = broker.metadata.lookup(partition, epoch, offset)
                return shorter if metadata == first else metadata

        broker.tier.metadata = Shortened()
        assert offsets(await fetch(broker, log, 2, 1000)) == [3, 4, 5]

    play(tmp_path, scene)


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex"])
def test_a_missing_object_fails_that_read_and_the_next_works_again(tmp_path: Path, suffix: str) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        folder = tmp_path / "remote" / "kafka-tiered-storage"
        [lost] = folder.rglob(f"00000000000000000003-*.{suffix}")
        kept = lost.rename(lost.with_suffix(".away"))
        with pytest.raises(RemoteStorageError, match="missing"):
            await fetch(broker, log, 4, 1000)
        assert offsets(await fetch(broker, log, 0, 1000)) == [0, 1, 2]
        with pytest.raises(KafkaError) as caught:
            await broker.manager.read(log, 4, 1000, min_one_message=True, read_committed=False)
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert broker.tier.meters.all_topics.remotefetcherrors == 1
        [detail] = [detail for kind, detail in broker.sink.events if kind == "remote_read"]
        assert (detail["offset"], detail["failures"]) == (4, 1)
        assert "missing" in detail["error"]
        for _ in range(3):
            with pytest.raises(KafkaError):
                await broker.manager.read(log, 4, 1000, min_one_message=True, read_committed=False)
        assert [event[0] for event in broker.sink.events].count("remote_read") == 1, "consumers come back at once"
        kept.rename(lost)
        assert offsets(await fetch(broker, log, 4, 1000)) == [4, 5]

    play(tmp_path, scene)


def test_bytes_that_are_no_batch_fail_the_read(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        [log_file] = (tmp_path / "remote" / "kafka-tiered-storage").rglob("00000000000000000000-*.log")
        log_file.write_bytes(bytes(216))
        with pytest.raises(RemoteStorageError, match="has no batch at byte"):
            await fetch(broker, log, 1, 1000)

    play(tmp_path, scene)


def test_an_index_that_leads_past_the_offset_is_an_error_and_fetched_anew_once_it_is_right(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        store = with_faults(broker.storage)

        def swap(key: str, data: bytes) -> bytes:
            # Offsets ascend and positions ascend, as the checks of the file want it, but they do not belong together.
            return pack(">iiii", 1, 144, 2, 144) if key.endswith(".index") else data

        store.damage = swap
        for _ in range(2):
            with pytest.raises(RemoteStorageError, match=r"orders.* its index promises offset 4, there is offset 5"):
                await fetch(broker, log, 4, 1000)
            with pytest.raises(RemoteStorageError, match="promises offset 4"):
                await offset_for_timestamp(broker.tier, log, NOW_MS + 5)
        store.heal()
        assert offsets(await fetch(broker, log, 4, 1000)) == [4, 5]
        assert await offset_for_timestamp(broker.tier, log, NOW_MS + 5) == TimestampedOffset(NOW_MS + 5, 5, 2)

    play(tmp_path, scene)


def test_an_index_that_leads_past_the_end_of_the_log_does_not_hide_its_records(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        store = with_faults(broker.storage)
        store.damage = lambda key, data: pack(">ii", 1, 10_000) if key.endswith(".index") else data
        with pytest.raises(RemoteStorageError, match="promises offset 1, there is nothing"):
            await fetch(broker, log, 2, 1000)

    play(tmp_path, scene)


@pytest.mark.parametrize("left", [0, 30, 61, 71, 80, 143])
def test_a_log_that_ends_early_is_an_error_not_a_batch_that_never_comes(tmp_path: Path, left: int) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        [log_file] = (tmp_path / "remote" / "kafka-tiered-storage").rglob("00000000000000000000-*.log")
        whole = log_file.read_bytes()
        log_file.write_bytes(whole[:left])
        still_whole = [header.base_offset for _, header in iter_batches(whole[:left])]
        for offset in range(3):
            if offset in still_whole:
                assert offsets(await fetch(broker, log, offset, 1000)) == still_whole[offset:]
            else:
                with pytest.raises(RemoteStorageError, match="orders-0"):
                    await fetch(broker, log, offset, 1000)
        log_file.write_bytes(whole)
        assert offsets(await fetch(broker, log, 0, 1000)) == [0, 1, 2]

    play(tmp_path, scene)


@pytest.mark.parametrize("piece", [1, 61, 71, 100])
def test_a_store_that_answers_in_pieces_costs_an_error_or_a_shorter_answer_never_a_wrong_one(
    tmp_path: Path, piece: int
) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        store = with_faults(broker.storage)
        store.damage = lambda key, data: data[:piece] if key.endswith(".log") else data
        for offset in range(6):
            try:
                result = offsets(await fetch(broker, log, offset, 1000))
            except RemoteStorageError:
                assert piece < 61
            else:
                assert result[0] == offset

    play(tmp_path, scene)


@pytest.mark.parametrize(("suffix", "kept"), [(".log", 30), (".index", 7), (".timeindex", 11)])
def test_a_damaged_answer_is_counted_and_told_of_with_its_segment_and_passes_with_the_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str, kept: int
) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        store = with_faults(broker.storage)
        store.damage = lambda key, data: data[:kept] if key.endswith(suffix) else data
        with pytest.raises(KafkaError) as refused:
            await broker.manager.read(log, 1, 1000, min_one_message=True, read_committed=False)
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert broker.tier.meters.topics["orders"].remotefetcherrors == 1
        segment = broker.metadata.lookup(TIP, 0, 1)
        assert segment is not None
        assert uuid_text(segment.segment_id) in caplog.text
        store.heal()
        remote_read = await broker.manager.read(log, 1, 1000, min_one_message=True, read_committed=False)
        assert offsets(remote_read.records) == [1, 2]
        assert broker.tier.meters.topics["orders"].remotefetcherrors == 1

    play(tmp_path, scene)


def test_the_manager_counts_reads_and_passes_out_of_range_on(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        remote_read = await broker.manager.read(log, 0, 1000, min_one_message=True, read_committed=True)
        assert (len(remote_read.records), remote_read.aborted) == (216, ())
        with pytest.raises(OffsetOutOfRange):
            await broker.manager.read(log, 7, 1000, min_one_message=True, read_committed=False)
        meters = broker.tier.meters.topics["orders"]
        assert (meters.remotefetchrequests, meters.remotefetchbytes, meters.remotefetcherrors) == (2, 216, 0)

    play(tmp_path, scene)


# Aborted transactions


def committed_log(folder: Path, epochs: tuple[int, int, int] = (0, 0, 0)) -> UnifiedLog:
    """Producer 55 writes 1 and 3 in a transaction, aborted at 5; the marker is two segments after its first record.
    `epochs` are those under which 0 to 1, 2 to 3, and the rest are written.
    """
    log = open_test_log(folder, TIERED, remote=True)
    append(log, 0, epoch=epochs[0])
    for sequence, index in enumerate((1, 3)):
        data = batch(index, producer_id=55, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.append_as_leader(memoryview(data), epochs[sequence], now_ms=NOW_MS)
        log.roll()
        append(log, index + 1, epoch=epochs[sequence + 1])
    marker = end_txn_marker(commit=False, producer_id=55, producer_epoch=0, coordinator_epoch=1, timestamp_ms=NOW_MS)
    log.append_as_leader(memoryview(marker), epochs[2], now_ms=NOW_MS, origin="coordinator")
    log.roll()
    append(log, 6, epoch=epochs[2])
    replicate(log)
    return log


@pytest.mark.parametrize("epochs", [(0, 0, 0), (0, 1, 3), (0, 0, 2)], ids=str)
def test_an_abort_whose_marker_lies_in_a_later_segment_or_epoch_is_found(
    tmp_path: Path, epochs: tuple[int, int, int]
) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        assert log.local_log_start_offset == 6
        for offset in (1, 2, 3):
            remote_read = await broker.manager.read(log, offset, 1000, min_one_message=True, read_committed=True)
            assert remote_read.aborted is not None
            assert [(txn.producer_id, txn.first_offset) for txn in remote_read.aborted] == [(55, 1)]
        remote_read = await broker.manager.read(log, 0, 76, min_one_message=True, read_committed=True)
        assert offsets(remote_read.records) == [0]

    play(tmp_path, scene, committed_log(tmp_path, epochs))


def test_an_abort_whose_marker_is_still_local_is_found(tmp_path: Path) -> None:
    log = committed_log(tmp_path)

    async def run() -> None:
        async with tier_broker(tmp_path) as broker:
            log.config = replace(TIERED, local_retention_bytes=-2)
            await CopyTask(View(log), broker.tier).run()
            hidden = [segment for segment in broker.metadata.segments(TIP) if not segment.txn_index_empty]
            assert [segment.start_offset for segment in hidden] == [4]
            await broker.metadata.update_segment(
                SegmentUpdate(TIP, hidden[0].segment_id, 1, 0, None, hidden[0].state.DELETE_SEGMENT_STARTED)
            )
            remote_read = await broker.manager.read(log, 1, 1000, min_one_message=True, read_committed=True)
            assert remote_read.aborted is not None
            assert [(txn.producer_id, txn.first_offset) for txn in remote_read.aborted] == [(55, 1)]

    run_virtual(run())


# A real Kafka's remote folder, metadata records and log


def fixture_events(topic: str) -> list[SegmentMetadata | SegmentUpdate]:
    rows = [json.loads(line) for line in (FIXTURES / "metadata-records.jsonl").read_text().splitlines()]
    events = [decode(bytes.fromhex(row["value"])) for row in sorted(rows, key=lambda row: row["offset"])]
    chosen = [event for event in events if isinstance(event, SegmentMetadata | SegmentUpdate)]
    return [event for event in chosen if event.topic_id_partition == fixture_partition(topic)]


def fixture_partition(topic: str) -> TopicIdPartition:
    ids = {"clicks": "tJxDSksNS32XLjttHlbz0g", "orders": "MwPmeDmPS_Om7dV7MbfDQg"}
    return TopicIdPartition(topic, uuid_bytes(ids[topic]), 0)


def play_fixture(folder: Path, topic: str, scene: Callable[[Broker, UnifiedLog], Awaitable[None]]) -> None:
    """A broker of ours in front of what Kafka left behind."""

    async def run() -> None:
        partition = fixture_partition(topic)
        shutil.copytree(FIXTURES / "remote", folder / "remote")
        shutil.copytree(FIXTURES / "logdirs" / "broker-1" / f"{topic}-0", folder / f"{topic}-0")
        options = LoadOptions(clean_shutdown=True, remote_system_enabled=True)
        log = open_log(OsDisk(), SystemRandom(1), str(folder / f"{topic}-0"), partition, TIERED, options, now_ms=NOW_MS)
        async with tier_broker(folder, partitions=(partition,)) as broker:
            for event in fixture_events(topic):
                if isinstance(event, SegmentMetadata):
                    await broker.metadata.add_segment(event)
                else:
                    await broker.metadata.update_segment(event)
            await scene(broker, log)

    run_virtual(run())


READ_COMMITTED: Mapping[str, Any] = json.loads((FIXTURES / "read-committed.json").read_text())


def test_read_committed_answers_are_kafkas_for_every_offset(tmp_path: Path) -> None:
    # The folder was copied before the segment of 33 to 37 went out.
    remote = [row for row in READ_COMMITTED["fetches"] if row["served_from"] == "remote" and row["offset"] < 33]
    assert len(remote) == 33

    async def scene(broker: Broker, log: UnifiedLog) -> None:
        for row in remote:
            remote_read = await broker.manager.read(
                log, row["offset"], READ_COMMITTED["max_bytes"], min_one_message=True, read_committed=True
            )
            batches = [
                [header.base_offset, header.last_offset, header.producer_id, header.attributes]
                for _, header in iter_batches(remote_read.records)
            ]
            assert batches == row["batches"], row["offset"]
            assert remote_read.aborted is not None
            aborted = [
                {"producer_id": txn.producer_id, "first_offset": txn.first_offset} for txn in remote_read.aborted
            ]
            assert aborted == row["aborted"], row["offset"]

    play_fixture(tmp_path, "clicks", scene)


# Look-ups by time


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, (0, 0)),
        (NOW_MS, (0, 0)),
        (NOW_MS + 1, (1, 0)),
        (NOW_MS + 3, (3, 1)),
        (NOW_MS + 5, (5, 2)),
        (NOW_MS + 7, (7, 3)),
    ],
)
def test_a_timestamp_is_found_in_whichever_tier_has_it(
    tmp_path: Path, timestamp: int, expected: tuple[int, int]
) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        offset = await broker.manager.offset_for_timestamp(log, timestamp)
        assert offset == TimestampedOffset(NOW_MS + expected[0], *expected)

    play(tmp_path, scene)


def test_a_timestamp_past_all_records_is_not_found_and_log_start_bounds_the_rest(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        assert await broker.manager.offset_for_timestamp(log, NOW_MS + 8) is None
        log.maybe_increment_log_start_offset(4)
        assert await broker.manager.offset_for_timestamp(log, 0) == TimestampedOffset(NOW_MS + 4, 4, 1)

    play(tmp_path, scene)


# The state that a follower rebuilds


def test_a_follower_gets_the_state_behind_the_segment(tmp_path: Path) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        state = await broker.manager.aux_state(TIP, 2, 5)
        assert (state.next_offset, state.leader_epochs) == (6, ((0, 0), (1, 3), (2, 5)))
        assert len(state.producer_snapshot) == 56
        state = await broker.manager.aux_state(TIP, 0, 2)
        assert (state.next_offset, state.leader_epochs, len(state.producer_snapshot)) == (3, ((0, 0),), 10)
        with pytest.raises(RemoteStorageError, match="must copy it first"):
            await broker.manager.aux_state(TIP, 3, 7)
        other = TopicIdPartition("orders", TIP.topic_id, 1)
        with pytest.raises(RemoteStorageNotReady):
            await broker.manager.aux_state(other, 0, 0)
        meters = broker.tier.meters.all_topics
        assert (meters.buildremotelogauxstaterequests, meters.buildremotelogauxstateerrors) == (4, 1)

    play(tmp_path, scene)


@pytest.mark.parametrize("suffix", ["leader_epoch_checkpoint", "snapshot"])
def test_a_missing_index_fails_the_build(tmp_path: Path, suffix: str) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        [lost] = (tmp_path / "remote" / "kafka-tiered-storage").rglob(f"00000000000000000003-*.{suffix}")
        lost.unlink()
        with pytest.raises(RemoteStorageError, match="missing"):
            await broker.manager.aux_state(TIP, 2, 5)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "whose metadata has"),
        (b"0\n0\n", "whose metadata has"),
        (b"0\n1\n0 0\n", "whose metadata has"),
        (b"0\n3\n0 0\n1 3\n2 4\n", "whose metadata has"),
        (b"0\n4\n0 0\n1 3\n2 5\n3 7\n", "whose metadata has"),
        (b"0\n3\n1 3\n0 0\n2 5\n", "do not ascend"),
        (b"0\n3\n0 -1\n1 3\n2 5\n", "do not ascend"),
        (b"0\n3\n0 0\n1 3\n", "announces another number"),
    ],
    ids=[
        "no byte",
        "no epoch",
        "another segment's",
        "another start",
        "a later segment's",
        "order",
        "below 0",
        "cut off",
    ],
)
def test_leader_epochs_that_cannot_be_the_segments_fail_the_build(tmp_path: Path, content: bytes, why: str) -> None:
    async def scene(broker: Broker, log: UnifiedLog) -> None:
        folder = tmp_path / "remote" / "kafka-tiered-storage"
        [index] = folder.rglob("00000000000000000003-*.leader_epoch_checkpoint")
        whole = index.read_bytes()
        index.write_bytes(content)
        with pytest.raises(RemoteStorageError, match=f"Leader epochs of segment .* cannot be read: .*{why}"):
            await broker.manager.aux_state(TIP, 2, 5)
        index.write_bytes(whole)
        assert (await broker.manager.aux_state(TIP, 2, 5)).leader_epochs == ((0, 0), (1, 3), (2, 5))

    play(tmp_path, scene)
