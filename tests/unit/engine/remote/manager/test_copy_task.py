"""The uploads and the published events of a copy run, and its leftovers when something fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from backend.engine.ports.object_store import open_object_store
from backend.engine.remote.manager.copied_offsets import NOTHING_COPIED, find_highest_remote, find_log_start
from backend.engine.remote.manager.copy_task import CopyTask
from backend.engine.remote.manager.segment_deletion import delete_partition
from backend.engine.remote.storage.object_store_manager import EventType, ObjectStoreRemoteStorageManager
from backend.engine.remote.storage.remote_storage_manager import (
    IndexType,
    LogSegmentData,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from backend.protocol.record_batches.control_records import end_txn_marker
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate
from backend.tiering.ids import uuid_text
from backend.tiering.segment_state import SegmentState
from tests.unit.engine.log.logs import NOW_MS, TIP, append, open_test_log, replicate
from tests.unit.engine.log.test_golden_files import GOLDEN
from tests.unit.engine.remote.tiers import TIERED, Broker, View, golden_tiered_log, tier_broker
from tests.unit.engine.virtual_time import run_virtual

STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = SegmentState


def states(broker: Broker) -> list[SegmentState]:
    return [event.state for event in broker.published() if isinstance(event, SegmentMetadata | SegmentUpdate)]


def test_the_golden_log_gives_kafkas_remote_folder(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(log), broker.tier).run()
            first, second = sorted(broker.metadata.segments(TIP), key=lambda s: s.start_offset)
            assert states(broker) == [STARTED, FINISHED, STARTED, FINISHED]
            assert (first.start_offset, first.end_offset, first.segment_leader_epochs) == (0, 2, ((0, 0),))
            assert (second.start_offset, second.end_offset) == (3, 5)
            assert second.segment_leader_epochs == ((1, 3), (2, 5))
            assert (second.max_timestamp_ms, second.segment_size_bytes) == (NOW_MS + 5, 216)
            assert (first.txn_index_empty, second.txn_index_empty) == (True, True)
            assert log.highest_remote_offset == 5
            folder = tmp_path / "remote" / "kafka-tiered-storage" / "orders-0-AQIDBAUGBwgJCgsMDQ4PEA"
            files = {path.name: path.read_bytes() for path in folder.iterdir()}

            def names(segment: SegmentMetadata) -> str:
                return f"{segment.start_offset:020d}-{uuid_text(segment.segment_id)}"

            def golden(name: str) -> bytes:
                value = GOLDEN[name]
                assert isinstance(value, str)
                return bytes.fromhex(value)

            assert files == {
                f"{names(first)}.log": golden("00000000000000000000.log"),
                f"{names(first)}.index": golden("00000000000000000000.index"),
                f"{names(first)}.timeindex": golden("00000000000000000000.timeindex"),
                f"{names(first)}.snapshot": golden("00000000000000000003.snapshot"),
                f"{names(first)}.leader_epoch_checkpoint": b"0\n1\n0 0\n",
                f"{names(second)}.log": golden("00000000000000000003.log"),
                f"{names(second)}.index": golden("00000000000000000003.index"),
                f"{names(second)}.timeindex": golden("00000000000000000003.timeindex"),
                f"{names(second)}.snapshot": golden("00000000000000000006.snapshot"),
                f"{names(second)}.leader_epoch_checkpoint": b"0\n3\n0 0\n1 3\n2 5\n",
            }

    run_virtual(play())


def test_only_sealed_segments_below_the_last_stable_offset_are_copied_and_each_once(tmp_path: Path) -> None:
    async def play() -> None:
        log = open_test_log(tmp_path, TIERED, remote=True)
        for base in (0, 5, 10, 15):
            append(log, *range(base, base + 5))
            log.roll()
        append(log, 20)
        log.update_high_watermark(14)
        async with tier_broker(tmp_path) as broker:
            task = CopyTask(View(log), broker.tier)
            await task.run()
            assert [start for _, start, _ in broker.history(EventType.COPY_SEGMENT)] == [0, 5]
            await task.run()
            assert len(broker.history(EventType.COPY_SEGMENT)) == 2
            log.update_high_watermark(15)
            await task.run()
            assert [start for _, start, _ in broker.history(EventType.COPY_SEGMENT)] == [0, 5, 10]
            gauges = broker.tier.meters.gauges(TIP)
            assert (gauges.remotecopylagsegments, gauges.remotecopylagbytes) == (1, log.segments[3].size_bytes)

    run_virtual(play())


def test_nothing_at_or_past_an_open_transaction_is_copied(tmp_path: Path) -> None:
    async def play() -> None:
        log = open_test_log(tmp_path, TIERED, remote=True)
        append(log, 0)
        log.roll()
        append(log, 1, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
        log.roll()
        append(log, 2)
        log.roll()
        append(log, 3)
        replicate(log)
        async with tier_broker(tmp_path) as broker:
            task = CopyTask(View(log), broker.tier)
            await task.run()
            assert log.last_stable_offset == 1
            assert [start for _, start, _ in broker.history(EventType.COPY_SEGMENT)] == [0]
            marker = end_txn_marker(
                commit=False, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS + 4
            )
            log.append_as_leader(memoryview(marker), 0, now_ms=NOW_MS, origin="coordinator")
            replicate(log)
            await task.run()
            assert [start for _, start, _ in broker.history(EventType.COPY_SEGMENT)] == [0, 1, 2]

    run_virtual(play())


def test_a_new_leader_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(log), broker.tier).run()
            reopened = CopyTask(View(log), broker.tier)
            await reopened.run()
            assert len(broker.history(EventType.COPY_SEGMENT)) == 2
            assert log.highest_remote_offset == 5

    run_virtual(play())


def test_a_segment_cut_by_log_start_is_published_with_the_epochs_that_are_left(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        log.maybe_increment_log_start_offset(7)
        log.roll()
        append(log, 8, epoch=3)
        replicate(log)
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(log), broker.tier).run()
            [segment] = broker.metadata.segments(TIP)
            assert (segment.start_offset, segment.end_offset) == (6, 7)
            assert segment.segment_leader_epochs == ((3, 7),)

    run_virtual(play())


class Failing:
    """A storage whose copies fail while `errors` lasts."""

    def __init__(self, real: ObjectStoreRemoteStorageManager, *errors: Exception, custom: bytes | None = None) -> None:
        self._real = real
        self._errors = list(errors)
        self._custom = custom
        self.fetch_log_segment = real.fetch_log_segment
        self.fetch_index = real.fetch_index
        self.delete_log_segment_data = real.delete_log_segment_data
        self.close = real.close

    def copy_log_segment_data(self, metadata: SegmentMetadata, data: LogSegmentData) -> bytes | None:
        if self._errors:
            raise self._errors.pop(0)
        self._real.copy_log_segment_data(metadata, data)
        return self._custom


def test_a_permanent_failure_is_cleaned_up_and_tried_again_under_another_id(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path) as broker:
            broker.tier.storage = Failing(broker.storage, RemoteStorageError("no"), RemoteStorageError("no"))
            task = CopyTask(View(log), broker.tier)
            for _ in range(2):
                with pytest.raises(RemoteStorageError):
                    await task.run()
            await task.run()
            assert states(broker) == [STARTED, DELETE_STARTED, DELETE_FINISHED] * 2 + [STARTED, FINISHED] * 2
            assert broker.tier.meters.all_topics.remotecopyerrors == 2
            assert broker.sink.outcomes("copy")[:4] == ["started", "failed", "started", "failed"]
            ids = {event.segment_id for event in broker.published() if isinstance(event, SegmentMetadata)}
            assert len(ids) == 4

    run_virtual(play())


def test_a_passing_failure_leaves_the_started_entry_and_no_error(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path) as broker:
            broker.tier.storage = Failing(broker.storage, RetriableRemoteStorageError("later"))
            task = CopyTask(View(log), broker.tier)
            with pytest.raises(RetriableRemoteStorageError):
                await task.run()
            await task.run()
            assert states(broker) == [STARTED] + [STARTED, FINISHED] * 2
            assert broker.tier.meters.all_topics.remotecopyerrors == 0

    run_virtual(play())


def test_a_segment_that_is_deleted_while_it_is_copied_leaves_no_object_and_is_copied_again(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        loop = asyncio.get_running_loop()
        async with tier_broker(tmp_path) as broker:
            real = broker.storage

            class Deleting(Failing):
                """Everything of the partition is deleted just before the first copy's objects land."""

                def copy_log_segment_data(self, metadata: SegmentMetadata, data: LogSegmentData) -> bytes | None:
                    broker.tier.storage = real
                    asyncio.run_coroutine_threadsafe(delete_partition(broker.tier, TIP), loop).result()
                    return super().copy_log_segment_data(metadata, data)

            broker.tier.storage = Deleting(real)
            task = CopyTask(View(log), broker.tier)
            with pytest.raises(RetriableRemoteStorageError, match="was deleted by another broker"):
                await task.run()
            assert open_object_store(str(tmp_path / "remote")).list("kafka-tiered-storage") == []
            assert log.highest_remote_offset == -1
            assert broker.sink.outcomes("copy") == ["started", "failed"]
            await task.run()
            taken_back = [STARTED, DELETE_STARTED, DELETE_FINISHED]
            assert states(broker) == [*taken_back, FINISHED, *taken_back] + [STARTED, FINISHED] * 2
            assert log.highest_remote_offset == 5

    asyncio.run(play())


def test_what_expires_below_the_log_start_stays_the_highest_copied_offset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path) as broker:
            task = CopyTask(View(log), broker.tier)
            await task.run()
            # The epoch that is left has no copy.
            log.leader_epochs.begin(9, log.log_end_offset)
            assert log.maybe_increment_log_start_offset(log.log_end_offset)
            for segment in list(broker.metadata.segments(TIP)):
                await broker.metadata.update_segment(
                    SegmentUpdate(TIP, segment.segment_id, 7, NOW_MS, segment.custom_metadata, DELETE_STARTED)
                )
            await task.run()
            assert log.highest_remote_offset == 5
            assert "is copied up to offset" not in caplog.text

    run_virtual(play())


def test_what_an_earlier_leader_deletes_after_it_counted_as_copied_is_copied_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path) as broker:
            task = CopyTask(View(log), broker.tier)
            await task.run()
            [second] = [segment for segment in broker.metadata.segments(TIP) if segment.start_offset == 3]
            await broker.metadata.update_segment(
                SegmentUpdate(TIP, second.segment_id, 7, NOW_MS, second.custom_metadata, DELETE_STARTED)
            )
            await task.run()
            assert "is copied up to offset 2, not to 5" in caplog.text
            assert states(broker)[-3:] == [DELETE_STARTED, STARTED, FINISHED]
            metadata = broker.metadata.lookup(TIP, 1, 3)
            assert metadata is not None
            assert metadata.segment_id != second.segment_id
            assert log.highest_remote_offset == 5
            await task.run()
            assert states(broker)[-3:] == [DELETE_STARTED, STARTED, FINISHED], "once is enough"

    run_virtual(play())


def test_too_much_custom_metadata_removes_the_segment_and_stops_the_task(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path) as broker:
            broker.tier.storage = Failing(broker.storage, custom=bytes(129))
            task = CopyTask(View(log), broker.tier)
            with pytest.raises(RemoteStorageError, match="129 bytes"):
                await task.run()
            await task.run()
            assert states(broker) == [STARTED, DELETE_STARTED, DELETE_FINISHED]
            assert open_object_store(str(tmp_path / "remote")).list("kafka-tiered-storage") == []

    run_virtual(play())


def test_custom_metadata_travels_with_finished_and_with_deletion(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path) as broker:
            broker.tier.storage = Failing(broker.storage, custom=bytes(128))
            await CopyTask(View(log), broker.tier).run()
            assert {segment.custom_metadata for segment in broker.metadata.segments(TIP)} == {bytes(128)}

    run_virtual(play())


@pytest.mark.parametrize("damage", ["lost", "forgotten", "empty", "cut"])
def test_a_lost_producer_snapshot_is_made_again_and_the_copy_goes_on(tmp_path: Path, damage: str) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        producers = log.producer_state
        before, path = producers.snapshots, Path(producers.path(3))
        whole = path.read_bytes()
        match damage:
            case "lost":
                path.unlink()
            case "forgotten":
                producers.remove_snapshot(3)
            case "empty":
                path.write_bytes(b"")
            case _:
                path.write_bytes(whole[:-1])
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(log), broker.tier).run()
            assert states(broker)[:2] == [STARTED, FINISHED]
            first = broker.published()[0]
            assert isinstance(first, SegmentMetadata)
            assert broker.storage.fetch_index(first, IndexType.PRODUCER_SNAPSHOT) == whole
        assert path.read_bytes() == whole
        assert set(before) <= set(producers.snapshots)

    run_virtual(play())


def test_a_producer_snapshot_that_cannot_be_made_again_is_tried_again(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        Path(log.producer_state.path(3)).unlink()
        Path(log.producer_state.path(3) + ".tmp").mkdir()
        async with tier_broker(tmp_path) as broker:
            with pytest.raises(RetriableRemoteStorageError, match="producer snapshot at 3"):
                await CopyTask(View(log), broker.tier).run()
            assert broker.published() == []

    run_virtual(play())


@pytest.mark.parametrize(
    ("epochs", "log_end", "highest", "expected"),
    [
        (((0, 0), (1, 500)), 1000, {0: 200}, (200, 0)),
        (((0, 0), (1, 150), (2, 300)), 1000, {0: 200}, (149, 0)),
        (((0, 0), (1, 3), (2, 5), (3, 7)), 9, {0: 2, 1: 4}, (4, 1)),
        (((0, 0),), 9, {}, NOTHING_COPIED),
        ((), 0, {0: 5}, NOTHING_COPIED),
    ],
)
def test_the_highest_remote_offset_is_the_leaders_own_history(
    tmp_path: Path,
    epochs: tuple[tuple[int, int], ...],
    log_end: int,
    highest: dict[int, int],
    expected: tuple[int, int],
) -> None:
    log = open_test_log(tmp_path, TIERED, remote=True)
    for epoch, start in epochs:
        log.leader_epochs.assign(epoch, start)
    offset_and_epoch = find_highest_remote(
        epochs, highest.get, lambda epoch: log.leader_epochs.end_offset_for(epoch, log_end)
    )
    assert offset_and_epoch == expected


def test_the_log_starts_with_the_first_segment_of_the_first_epoch_that_has_any() -> None:
    segment = SegmentMetadata(TIP, bytes(16), 500, 539, 1, 0, 0, ((1, 500),), 1, None, STARTED)
    listed = {1: [segment], 2: []}
    assert find_log_start(((0, 0), (1, 500), (2, 540)), lambda epoch: listed.get(epoch, []), 600) == 500
    assert find_log_start(((0, 0), (2, 540)), lambda epoch: listed.get(epoch, []), 600) == 600
