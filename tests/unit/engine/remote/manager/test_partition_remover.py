"""The partition remover: what it deletes, in what order, and what a crash at any point leaves for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from backend.engine.ports.disk import OsDisk
from backend.engine.remote.manager.copy_task import CopyTask
from backend.engine.remote.manager.partition_remover import COPY_GRACE_MS, POSITIONS_FILE, PartitionRemover, Positions
from backend.engine.remote.metadata.metadata_scan import MetadataScan
from backend.engine.remote.storage.object_store_manager import EventType, ObjectStoreRemoteStorageManager
from backend.engine.remote.storage.remote_storage_manager import RetriableRemoteStorageError
from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    RemoteLogMetadata,
    SegmentMetadata,
    SegmentUpdate,
    decode,
    encode,
    metadata_partition,
)
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import PartitionDeleteState, SegmentState
from tests.conformance.memory_topic import MemoryMetadataTopic, MemoryTopicLog
from tests.unit.engine.log.logs import TIP
from tests.unit.engine.remote.tiers import Broker, View, golden_tiered_log, tier_broker
from tests.unit.engine.virtual_time import run_virtual

MARKED, STARTED, FINISHED = PartitionDeleteState
# A later topic of the same name.
NAMESAKE = TopicIdPartition(TIP.topic, bytes(range(50, 66)), TIP.partition)


class Crash(BaseException):
    """The broker is gone."""


class CrashingStorage:
    """The real storage, on which a deletion may be the broker's last act."""

    def __init__(self, real: ObjectStoreRemoteStorageManager, crash: CrashAfter) -> None:
        self._real = real
        self._crash = crash
        self.copy_log_segment_data = real.copy_log_segment_data
        self.fetch_log_segment = real.fetch_log_segment
        self.fetch_index = real.fetch_index
        self.close = real.close

    def delete_log_segment_data(self, metadata: SegmentMetadata) -> None:
        self._crash.count()
        self._real.delete_log_segment_data(metadata)


class CrashAfter:
    """Raises once so many effects have happened."""

    def __init__(self, effects: int) -> None:
        self._left = effects

    def count(self) -> None:
        if self._left == 0:
            raise Crash
        self._left -= 1

    async def before_produce(self, value: bytes) -> None:
        self.count()


def target_of(broker: Broker, partition: TopicIdPartition = TIP) -> int:
    return metadata_partition(partition.topic_id, partition.partition, len(broker.topic.log.partitions))


def remover_of(broker: Broker, folder: Path, led: Iterable[int] | None = None) -> PartitionRemover:
    topic = MemoryMetadataTopic(broker.topic.log)
    topic.before_produce = broker.topic.before_produce
    leading = list(range(len(topic.log.partitions)) if led is None else led)
    return PartitionRemover(
        broker.tier, topic, MetadataScan(topic), lambda: leading, str(folder / str(broker.tier.broker_id))
    )


def publish(broker: Broker, *events: RemoteLogMetadata) -> None:
    for event in events:
        assert not isinstance(event, PartitionDelete) or event.topic_id_partition == TIP
        broker.topic.log.append(target_of(broker), encode(event))


def mark(broker: Broker) -> None:
    publish(broker, PartitionDelete(TIP, 9, 0, MARKED))


def recorded_states(broker: Broker) -> list[tuple[str, int]]:
    """(state, offset of the segment or -1) of every record, in order."""
    starts: dict[bytes, int] = {}
    states = []
    for value in broker.topic.log.partitions[target_of(broker)]:
        assert value is not None
        event = decode(value)
        if isinstance(event, SegmentMetadata):
            starts[event.segment_id] = event.start_offset
        if isinstance(event, SegmentMetadata | SegmentUpdate):
            states.append((event.state.name, starts[event.segment_id]))
        elif isinstance(event, PartitionDelete):
            states.append((event.state.name, -1))
    return states


def remote_files(folder: Path) -> list[str]:
    root = folder / "remote" / "kafka-tiered-storage"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def stored(folder: Path, broker: Broker) -> int:
    """The position on disk."""
    return Positions(OsDisk(), str(folder / "1" / POSITIONS_FILE)).of(target_of(broker))


async def copied(folder: Path, broker: Broker) -> None:
    """Segments 0-2 and 3-5 in the remote tier."""
    await CopyTask(View(golden_tiered_log(folder)), broker.tier).run()
    assert len(remote_files(folder)) == 10


DELETION = [
    ("DELETE_PARTITION_MARKED", -1),
    ("DELETE_PARTITION_STARTED", -1),
    ("DELETE_SEGMENT_STARTED", 0),
    ("DELETE_SEGMENT_STARTED", 3),
    ("DELETE_SEGMENT_FINISHED", 0),
    ("DELETE_SEGMENT_FINISHED", 3),
    ("DELETE_PARTITION_FINISHED", -1),
]


def test_a_marked_partition_goes_with_all_its_segments_and_says_so(tmp_path: Path) -> None:
    async def play() -> None:
        async with tier_broker(tmp_path) as broker:
            await copied(tmp_path, broker)
            remover = remover_of(broker, tmp_path)
            assert await remover.run_once()
            assert len(remote_files(tmp_path)) == 10  # not marked: not ours to touch
            mark(broker)
            assert await remover.run_once()
            assert remote_files(tmp_path) == []
            assert recorded_states(broker)[4:] == DELETION
            meters = broker.tier.meters
            assert (meters.partitions_removed, meters.partitions_to_remove) == (1, 0)
            before = len(recorded_states(broker))
            assert await remover.run_once()
            assert await remover_of(broker, tmp_path).run_once()
            assert len(recorded_states(broker)) == before

    run_virtual(play())


def test_only_the_leader_of_its_metadata_partition_removes_it(tmp_path: Path) -> None:
    async def play() -> None:
        async with tier_broker(tmp_path) as broker:
            await copied(tmp_path, broker)
            mark(broker)
            others = {0, 1, 2} - {target_of(broker)}
            assert await remover_of(broker, tmp_path, others).run_once()
            assert len(remote_files(tmp_path)) == 10

    run_virtual(play())


# Appends: STARTED, twice 2 for segments, FINISHED; 2 deletions of objects: 8 effects.
@pytest.mark.parametrize("effects", range(8))
def test_after_a_crash_at_any_point_the_next_life_ends_what_was_begun(tmp_path: Path, effects: int) -> None:
    async def play() -> None:
        async with tier_broker(tmp_path) as broker:
            await copied(tmp_path, broker)
            mark(broker)
            crash = CrashAfter(effects)
            broker.tier.storage = CrashingStorage(broker.storage, crash)
            broker.topic.before_produce = crash.before_produce
            with pytest.raises(Crash):
                await remover_of(broker, tmp_path).run_once()
            assert ("DELETE_PARTITION_FINISHED", -1) not in recorded_states(broker)
            assert stored(tmp_path, broker) <= 4  # where the mark stands
            broker.tier.storage, broker.topic.before_produce = broker.storage, None
            assert await remover_of(broker, tmp_path).run_once()
            assert remote_files(tmp_path) == []
            assert recorded_states(broker)[-1] == ("DELETE_PARTITION_FINISHED", -1)
            # An event under way is published again once at most.
            assert len(recorded_states(broker)) <= 4 + len(DELETION) + 2
            assert stored(tmp_path, broker) >= 5

    run_virtual(play())


def test_another_broker_without_a_stored_position_takes_over(tmp_path: Path) -> None:
    async def play() -> None:
        shared = MemoryTopicLog()
        async with tier_broker(tmp_path, topic=shared) as broker:
            await copied(tmp_path, broker)
            mark(broker)
            broker.topic.before_produce = CrashAfter(2).before_produce
            with pytest.raises(Crash):
                await remover_of(broker, tmp_path).run_once()
        async with tier_broker(tmp_path, broker_id=2, topic=shared) as other:
            assert await remover_of(other, tmp_path).run_once()
            assert remote_files(tmp_path) == []
            assert recorded_states(other)[-1] == ("DELETE_PARTITION_FINISHED", -1)

    run_virtual(play())


def test_a_new_topic_of_the_same_name_is_left_alone(tmp_path: Path) -> None:
    async def play() -> None:
        async with tier_broker(tmp_path, partitions=(TIP, NAMESAKE)) as broker:
            await copied(tmp_path, broker)
            log = golden_tiered_log(tmp_path / "namesake")
            log.topic_id_partition = NAMESAKE
            await CopyTask(View(log), broker.tier).run()
            assert len(remote_files(tmp_path)) == 20
            mark(broker)
            assert await remover_of(broker, tmp_path).run_once()
            assert len(remote_files(tmp_path)) == 10
            assert len(list(broker.metadata.segments(NAMESAKE))) == 2
            metadata = broker.metadata.lookup(NAMESAKE, 0, 0)
            assert metadata is not None
            assert broker.storage.fetch_log_segment(metadata, 0)

    run_virtual(play())


async def until_removed(remover: PartitionRemover) -> None:
    """Passes until nothing is left; a partition that could not be removed rests a moment."""
    for _ in range(200):
        if await remover.run_once():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("partitions are left")


# Names and numbers that no topic has; nothing of them can be in the tier, and the storage is not asked about them.
FORGED = [
    TopicIdPartition("../../../../../../tmp/evil", bytes(range(60, 76)), 0),
    TopicIdPartition("..", bytes(range(61, 77)), 0),
    TopicIdPartition("", bytes(range(62, 78)), 0),
    TopicIdPartition("a/b", bytes(range(63, 79)), 0),
    TopicIdPartition("x" * 250, bytes(range(64, 80)), 0),
    TopicIdPartition("orders", bytes(range(65, 81)), -1),
]


@pytest.mark.parametrize("forged", FORGED, ids=lambda tip: f"{tip.topic[:9]}-{tip.partition}")
def test_a_forged_partition_is_passed_over_and_those_behind_it_are_removed(
    tmp_path: Path, forged: TopicIdPartition
) -> None:
    async def play() -> None:
        async with tier_broker(tmp_path) as broker:
            target = target_of(broker)
            segment = SegmentMetadata(
                forged, bytes(16), 0, 9, 1, 0, 0, ((0, 0),), 1, None, SegmentState.COPY_SEGMENT_STARTED
            )
            done = SegmentUpdate(forged, bytes(16), 1, 0, None, SegmentState.COPY_SEGMENT_FINISHED)
            for event in (segment, done, PartitionDelete(forged, 9, 0, MARKED)):
                broker.topic.log.append(target, encode(event))
            await copied(tmp_path, broker)
            mark(broker)
            remover = remover_of(broker, tmp_path)
            assert await remover.run_once()
            assert await remover.run_once()
            assert remote_files(tmp_path) == []
            assert broker.tier.unreadable_records.counts == {"__remote_log_metadata": 1}
            assert {event.type for event in broker.storage.history if event.topic_id_partition == forged} == set()

    run_virtual(play())


class BrokenStorage(CrashingStorage):
    """A storage that fails, in a way that no contract knows, for one partition."""

    def __init__(self, real: ObjectStoreRemoteStorageManager) -> None:
        super().__init__(real, CrashAfter(-1))
        self.deletions = 0

    def delete_log_segment_data(self, metadata: SegmentMetadata) -> None:
        if metadata.topic_id_partition == TIP:
            self.deletions += 1
            raise TypeError("Expected string path")
        super().delete_log_segment_data(metadata)


def test_a_partition_that_cannot_be_removed_rests_and_holds_up_no_other(tmp_path: Path) -> None:
    async def play() -> None:
        settings = {"remote.log.manager.task.retry.backoff.ms": "3600000"}
        async with tier_broker(tmp_path, partitions=(TIP, NAMESAKE), settings=settings) as broker:
            await copied(tmp_path, broker)
            log = golden_tiered_log(tmp_path / "namesake")
            log.topic_id_partition = NAMESAKE
            await CopyTask(View(log), broker.tier).run()
            mark(broker)
            broker.topic.log.append(target_of(broker, NAMESAKE), encode(PartitionDelete(NAMESAKE, 9, 0, MARKED)))
            storage = broker.tier.storage = BrokenStorage(broker.storage)
            remover = remover_of(broker, tmp_path)
            for _ in range(3):
                assert not await remover.run_once()
            assert len(remote_files(tmp_path)) == 10  # of TIP: its namesake's are gone
            assert storage.deletions == 1  # and not again for an hour

    run_virtual(play())


def test_a_storage_that_is_away_keeps_the_partition_waiting(tmp_path: Path) -> None:
    async def play() -> None:
        async with tier_broker(tmp_path) as broker:
            await copied(tmp_path, broker)
            mark(broker)
            broker.tier.storage = AwayStorage(broker.storage)
            remover = remover_of(broker, tmp_path)
            assert not await remover.run_once()
            meters = broker.tier.meters
            assert (meters.partitions_removed, meters.partitions_to_remove) == (0, 1)
            assert meters.retries == {"Removal": 1}
            broker.tier.storage = broker.storage
            await until_removed(remover)
            assert remote_files(tmp_path) == []
            assert (meters.partitions_removed, meters.partitions_to_remove) == (1, 0)

    run_virtual(play())


class AwayStorage(CrashingStorage):
    """A storage that deletes nothing for now."""

    def __init__(self, real: ObjectStoreRemoteStorageManager) -> None:
        super().__init__(real, CrashAfter(-1))

    def delete_log_segment_data(self, metadata: SegmentMetadata) -> None:
        raise RetriableRemoteStorageError(f"segment at {metadata.start_offset} cannot be reached")


def test_a_partition_into_which_something_may_be_copied_waits_and_dangling_copies_do_not_count(tmp_path: Path) -> None:
    async def play() -> None:
        async with tier_broker(tmp_path) as broker:
            await copied(tmp_path, broker)
            [first, _] = sorted(broker.metadata.segments(TIP), key=lambda metadata: metadata.start_offset)
            now_ms = broker.tier.ports.clock.time_ms()

            def copy(number: int, age_ms: int) -> SegmentMetadata:
                return first._replace(
                    segment_id=bytes([number]) * 16,
                    state=SegmentState.COPY_SEGMENT_STARTED,
                    event_timestamp_ms=now_ms - age_ms,
                )

            publish(broker, copy(1, COPY_GRACE_MS + 1), copy(2, 0))
            mark(broker)
            remover = remover_of(broker, tmp_path)
            assert not await remover.run_once()
            assert len(remote_files(tmp_path)) == 10
            finished = SegmentUpdate(TIP, bytes([2]) * 16, 1, now_ms, None, SegmentState.COPY_SEGMENT_FINISHED)
            publish(broker, finished)
            assert await remover.run_once()
            deleted = [start for _, start, _ in broker.history(EventType.DELETE_SEGMENT)]
            assert sorted(deleted) == [0, 0, 0, 3]
            assert remote_files(tmp_path) == []

    run_virtual(play())


def test_a_segment_that_is_told_of_during_the_removal_goes_before_the_partition_is_finished(tmp_path: Path) -> None:
    async def play() -> None:
        async with tier_broker(tmp_path) as broker:
            await copied(tmp_path, broker)
            [first, _] = sorted(broker.metadata.segments(TIP), key=lambda metadata: metadata.start_offset)
            late = first._replace(
                segment_id=bytes([7]) * 16,
                start_offset=6,
                end_offset=7,
                state=SegmentState.COPY_SEGMENT_STARTED,
                event_timestamp_ms=0,
            )
            mark(broker)
            remover = remover_of(broker, tmp_path)
            topic = remover._topic
            assert isinstance(topic, MemoryMetadataTopic)

            async def tell_more(value: bytes) -> None:
                event = decode(value)
                if isinstance(event, SegmentUpdate) and ("COPY_SEGMENT_STARTED", 6) not in recorded_states(broker):
                    publish(broker, late)

            topic.before_produce = tell_more
            assert not await remover.run_once()
            assert ("DELETE_PARTITION_FINISHED", -1) not in recorded_states(broker)
            assert await remover.run_once()
            assert recorded_states(broker)[-3:] == [
                ("DELETE_SEGMENT_STARTED", 6),
                ("DELETE_SEGMENT_FINISHED", 6),
                ("DELETE_PARTITION_FINISHED", -1),
            ]

    run_virtual(play())


def test_a_position_that_cannot_be_read_costs_only_a_reading_from_the_start(tmp_path: Path) -> None:
    async def play() -> None:
        async with tier_broker(tmp_path) as broker:
            await copied(tmp_path, broker)
            (tmp_path / "1" / POSITIONS_FILE).write_bytes(b"\xff not numbers\n")
            mark(broker)
            assert await remover_of(broker, tmp_path).run_once()
            assert remote_files(tmp_path) == []
            lines = (tmp_path / "1" / POSITIONS_FILE).read_text().splitlines()
            assert f"{target_of(broker)} 5" in lines

    run_virtual(play())
