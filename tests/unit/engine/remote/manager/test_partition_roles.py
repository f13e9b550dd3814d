"""A leader that is deposed, or loses its topic, at each step of a copy; and tasks that come and go with settings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from backend.engine.ports.object_store import open_object_store
from backend.engine.remote.bounded_pool import BoundedPool
from backend.engine.remote.manager import remote_log_manager
from backend.engine.remote.manager.copy_task import CopyTask
from backend.engine.remote.manager.expiration_task import ExpirationTask
from backend.engine.remote.manager.remote_log_manager import RemoteLogManager
from backend.engine.remote.manager.task_loop import FollowerTask
from backend.engine.remote.storage.object_store_manager import ObjectStoreRemoteStorageManager
from backend.engine.remote.storage.remote_storage_manager import LogSegmentData
from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    SegmentMetadata,
    SegmentUpdate,
    decode,
    encode,
    metadata_partition,
)
from backend.tiering.segment_state import PartitionDeleteState, SegmentState
from tests.conformance.memory_topic import MemoryTopicLog
from tests.unit.engine.log.logs import TIP
from tests.unit.engine.remote.tiers import Broker, View, golden_tiered_log, tier_broker
from tests.unit.engine.virtual_time import run_virtual

STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = SegmentState
# The stages of a copy: waiting for its quota, between its two records, and before either of them is written.
STEPS: Final = ("quota", "STARTED", "objects", "FINISHED")
HELD_UP_S: Final = 10.0


class HeldUp:
    """Holds up the first copy of a broker at one step until it is released."""

    def __init__(self, broker: Broker, step: str) -> None:
        self.reached = asyncio.Event()
        self._released = asyncio.Event()
        self._let_thread_go = threading.Event()
        self._loop = asyncio.get_running_loop()
        if step == "quota":
            # 1 byte a second: nothing is copied before it is raised.
            broker.tier.copy_quota.record(10**9)
            self.reached.set()
        elif step == "objects":
            broker.tier.storage = SlowStorage(broker.storage, self._in_thread)
        else:
            broker.topic.before_produce = self._at(SegmentState[f"COPY_SEGMENT_{step}"])

    def _at(self, state: SegmentState) -> Callable[[bytes], Awaitable[None]]:
        async def wait(value: bytes) -> None:
            event = decode(value)
            if isinstance(event, SegmentMetadata | SegmentUpdate) and event.state is state:
                self.reached.set()
                await self._released.wait()

        return wait

    def _in_thread(self) -> None:
        self._loop.call_soon_threadsafe(self.reached.set)
        self._let_thread_go.wait(HELD_UP_S)

    def release(self) -> None:
        self._released.set()
        self._let_thread_go.set()


class SlowStorage:
    """The real storage, with a wait before a copy's objects."""

    def __init__(self, real: ObjectStoreRemoteStorageManager, wait: Callable[[], None]) -> None:
        self._real = real
        self._wait = wait
        self.fetch_log_segment = real.fetch_log_segment
        self.fetch_index = real.fetch_index
        self.delete_log_segment_data = real.delete_log_segment_data
        self.close = real.close

    def copy_log_segment_data(self, metadata: SegmentMetadata, data: LogSegmentData) -> bytes | None:
        self._wait()
        return self._real.copy_log_segment_data(metadata, data)


def run_to_end(play: Coroutine[Any, Any, None], step: str) -> None:
    """On virtual time, unless a thread hangs in the storage meanwhile."""
    if step == "objects":
        asyncio.run(play)
    else:
        run_virtual(play)


def settings_of(step: str) -> dict[str, str]:
    return {"remote.log.manager.copy.max.bytes.per.second": "1"} if step == "quota" else {}


async def until(question: Callable[[], bool]) -> None:
    for _ in range(1000):
        if question():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within 10 s")


def objects(folder: Path) -> list[str]:
    return sorted(key for key, _ in open_object_store(str(folder / "remote")).list("kafka-tiered-storage"))


@pytest.mark.parametrize("step", STEPS)
def test_a_leader_deposed_at_any_step_of_a_copy_loses_nothing_and_the_next_one_goes_on(
    tmp_path: Path, step: str
) -> None:
    async def play() -> None:
        shared = MemoryTopicLog()
        log = golden_tiered_log(tmp_path)
        view = View(log)
        async with tier_broker(tmp_path, topic=shared, settings=settings_of(step)) as old:
            held = HeldUp(old, step)
            old.manager.on_leadership_change([view], [])
            await held.reached.wait()
            old.manager.on_leadership_change([], [view])
            held.release()
            async with tier_broker(tmp_path, broker_id=2, topic=shared) as new:
                # It leads with the same records; what the old leader left or still does is no obstacle.
                await CopyTask(View(log), new.tier).run()
                await until(lambda: log.highest_remote_offset == 5)
                for offset, epoch in enumerate((0, 0, 0, 1, 1, 2)):
                    metadata = new.metadata.lookup(TIP, epoch, offset)
                    assert metadata is not None
                    assert new.storage.fetch_log_segment(metadata, 0)
            # Gauges of copies belong to the leader, whenever its last copy ends.
            await until(lambda: TIP not in old.tier.meters.partitions)
            await asyncio.sleep(0.05)
            assert TIP not in old.tier.meters.partitions

    asyncio.run(play())


@pytest.mark.parametrize("step", STEPS)
def test_a_copy_under_way_when_its_topic_is_deleted_is_taken_back(tmp_path: Path, step: str) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path, settings=settings_of(step)) as broker:
            held = HeldUp(broker, step)
            broker.manager.on_leadership_change([View(log)], [])
            await held.reached.wait()
            stopping = asyncio.ensure_future(
                broker.manager.stop_partitions([TIP], delete_remote=False, topic_deleted=True)
            )
            await asyncio.sleep(0)
            held.release()
            await stopping
            if step == "FINISHED":
                # It was whole when the topic went: the partition remover finds it.
                assert [state for _, state in last_states(broker)] == [FINISHED]
                return
            assert objects(tmp_path) == []
            assert all(state is DELETE_FINISHED for _, state in last_states(broker))

    run_to_end(play(), step)


@pytest.mark.parametrize("step", STEPS)
def test_a_leader_that_has_not_heard_of_its_topics_deletion_copies_nothing_more_once_it_reads_the_mark(
    tmp_path: Path, step: str
) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path, settings=settings_of(step)) as broker:
            held = HeldUp(broker, step)
            broker.manager.on_leadership_change([View(log)], [])
            await held.reached.wait()
            target = metadata_partition(TIP.topic_id, TIP.partition, len(broker.topic.log.partitions))
            mark = PartitionDelete(TIP, 9, 0, PartitionDeleteState.DELETE_PARTITION_MARKED)
            offset = broker.topic.log.append(target, encode(mark))
            await until(lambda: broker.metadata.hosted[TIP].applied_offset >= offset)
            # No later event of the partition starts anything again.
            broker.manager.on_leadership_change([View(log)], [])
            held.release()
            loops = list(broker.manager._hosted[TIP].values())
            for loop in loops:
                await loop.stopped()
            assert list(broker.manager._hosted[TIP].values()) == loops
            states = last_states(broker)
            if step == "FINISHED":
                # The copy was whole when the stop arrived: the partition remover finds it, or waits for it.
                assert [state for _, state in states] == [FINISHED]
                return
            assert [state for _, state in states] == ([] if step == "quota" else [DELETE_FINISHED])
            assert objects(tmp_path) == []

    run_to_end(play(), step)


def test_a_broker_stops_while_a_copy_of_a_deleted_topic_waits_for_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_log_manager, "CLOSE_WAIT_MS", 50)

    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path) as broker:
            held = HeldUp(broker, "FINISHED")
            broker.manager.on_leadership_change([View(log)], [])
            await held.reached.wait()
            stopping = asyncio.ensure_future(
                broker.manager.stop_partitions([TIP], delete_remote=False, topic_deleted=True)
            )
            await asyncio.sleep(0)
            # The leader of the metadata partition is away: the record never gets its answer.
            await broker.manager.close()
            await asyncio.wait_for(stopping, HELD_UP_S)

    run_virtual(play())


def last_states(broker: Broker) -> list[tuple[bytes, SegmentState]]:
    """Of each segment on the metadata topic."""
    segment_states: dict[bytes, SegmentState] = {}
    for event in broker.published():
        if isinstance(event, SegmentMetadata | SegmentUpdate):
            segment_states[event.segment_id] = event.state
    return list(segment_states.items())


def test_a_replica_that_moves_away_finishes_its_copy_and_deletes_nothing(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path) as broker:
            held = HeldUp(broker, "objects")
            broker.manager.on_leadership_change([View(log)], [])
            await held.reached.wait()
            stopping = asyncio.ensure_future(broker.manager.stop_partitions([TIP], delete_remote=False))
            await asyncio.sleep(0)
            held.release()
            await stopping
            assert [state for _, state in last_states(broker)] == [FINISHED]

    asyncio.run(play())


def test_copying_stops_and_starts_with_its_setting_while_expiration_goes_on(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        log.config = replace(log.config, remote_log_copy_disable=True)
        async with tier_broker(tmp_path) as broker:
            gauges = broker.tier.meters.gauges(TIP)
            gauges.remotecopylagbytes = gauges.remotecopylagsegments = 7
            broker.manager.on_leadership_change([View(log)], [])
            assert (gauges.remotecopylagbytes, gauges.remotecopylagsegments) == (0, 0)
            await until(lambda: TIP in broker.tier.meters.shares)  # a run of expiration
            assert broker.published() == []
            log.config = replace(log.config, remote_log_copy_disable=False)
            broker.manager.on_leadership_change([View(log)], [])
            await until(lambda: log.highest_remote_offset == 5)
            log.config = replace(log.config, remote_log_copy_disable=True)
            log.roll()
            broker.manager.on_leadership_change([View(log)], [])
            await asyncio.sleep(0.1)
            assert log.highest_remote_offset == 5
            assert gauges.remotecopylagsegments == 0

    run_virtual(play())


def test_tiering_off_and_on_in_one_breath_leaves_the_partition_hosted(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        async with tier_broker(tmp_path) as broker:
            broker.manager.on_leadership_change([View(log)], [])
            await until(lambda: log.highest_remote_offset == 5)
            # Two images in a row, with no turn of the loop between them.
            log.forget_highest_remote_offset()
            ending = broker.manager.stop_partitions([TIP], delete_remote=True)
            broker.manager.on_leadership_change([View(log)], [])
            await ending
            assert broker.manager.hosts(TIP)
            assert broker.manager.is_ready(TIP)
            await until(lambda: log.highest_remote_offset == 5)

    run_virtual(play())


def test_tiering_on_again_under_another_leader_keeps_what_the_old_one_had_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(golden_tiered_log(tmp_path)), broker.tier).run()
            before = last_states(broker)
            publishing = asyncio.Event()

            async def away(update: SegmentUpdate) -> None:
                publishing.set()
                await asyncio.Event().wait()

            monkeypatch.setattr(broker.metadata, "update_segment", away)
            ending = asyncio.ensure_future(broker.manager.stop_partitions([TIP], delete_remote=True))
            await publishing.wait()
            broker.manager.tiered_again(lambda partition: partition != TIP)
            assert not (await asyncio.wait([ending], timeout=0.05))[0]
            broker.manager.tiered_again(lambda partition: partition == TIP)
            await ending
            assert last_states(broker) == before
            assert len(objects(tmp_path)) == 10

    run_virtual(play())


def test_a_deleted_topics_leader_leaves_its_segments_to_the_partition_remover_where_there_is_one(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with tier_broker(tmp_path) as broker:
            await CopyTask(View(golden_tiered_log(tmp_path)), broker.tier).run()
            await broker.manager.stop_partitions([TIP], delete_remote=True, topic_deleted=True)
            assert len(objects(tmp_path)) == 10
            broker.metadata.on_partition_leadership_changes([TIP], ())
            inline = RemoteLogManager(broker.tier, None)
            await inline.stop_partitions([TIP], delete_remote=True, topic_deleted=True)
            assert objects(tmp_path) == []
            assert [state for _, state in last_states(broker)] == [DELETE_FINISHED, DELETE_FINISHED]

    run_virtual(play())


def test_nothing_runs_before_the_metadata_is_known(tmp_path: Path) -> None:
    async def play() -> None:
        log = golden_tiered_log(tmp_path)
        shared = MemoryTopicLog()
        async with tier_broker(tmp_path, topic=shared, partitions=()) as broker:
            for kind in (CopyTask, ExpirationTask, FollowerTask):
                await kind(View(log), broker.tier).run()
            assert (log.highest_remote_offset, objects(tmp_path)) == (-1, [])
            assert TIP not in broker.tier.meters.shares

    run_virtual(play())


def test_a_pool_that_grows_takes_on_what_waits(tmp_path: Path) -> None:
    async def play() -> None:
        size = 1
        pool, gate, begun = BoundedPool(lambda: size), asyncio.Event(), list[int]()

        async def work(number: int) -> None:
            begun.append(number)
            await gate.wait()

        running = [asyncio.ensure_future(pool.run(partial(work, number))) for number in range(3)]
        await asyncio.sleep(0.01)
        assert begun == [0]
        size = 2
        pool.resized()
        await asyncio.sleep(0.01)
        assert begun == [0, 1]
        gate.set()
        await asyncio.gather(*running)

    run_virtual(play())
