"""A leader that hears nothing from the controller while its topic is deleted, with much still to be copied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC
from backend.protocol.errors import KafkaError
from backend.tiering.ids import TopicPartition
from backend.tiering.segment_state import PartitionDeleteState
from tests.simulation.checkers.deleted import DeletedTopicsLeaveNothing
from tests.simulation.checkers.metadata_log import MetadataLog, read_metadata_log
from tests.simulation.machine import dispose
from tests.simulation.workload import Workload
from tests.simulation.world import BROKERS, CONTROLLER, World

METADATA: Final = TopicPartition(METADATA_TOPIC, 0)
# Some thirty closed segments, each of which takes the store a second.
BATCHES: Final = 90
COPY_MS: Final = (900.0, 1100.0)
WAIT_S: Final = 30.0


async def until(what: str, seen: Callable[[], bool]) -> None:
    """Within so much virtual time."""
    for _ in range(int(WAIT_S / 0.1)):
        if seen():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not seen: {what}")


async def create(world: World, name: str, leader: int | None = None) -> None:
    for _ in range(50):
        try:
            await world.workload.create_topic(name, partitions=1, tiered=True, leader=leader)
            return
        except KafkaError:
            await asyncio.sleep(0.2)
    raise AssertionError(f"{name} could not be created")


async def deleted_behind_its_back(world: World) -> MetadataLog:
    await world.start()
    workload = world.workload = Workload(world, [])
    await create(world, "first")
    await until("the metadata topic", lambda: world.registration(METADATA) is not None)
    registration = world.registration(METADATA)
    assert registration is not None
    cut_off, other = [node for node in BROKERS if node != registration.leader]
    await create(world, "t", cut_off)
    topic_id = world.history.topics["t"].topic_id
    world.objects.mood.call_ms = COPY_MS
    await workload.fill(world.history.topics["t"], 0, BATCHES)
    await until("a copy has begun", lambda: bool(read_metadata_log(world).segments))
    holes = {(cut_off, CONTROLLER), (CONTROLLER, cut_off)}
    world.fabric.weather.holes |= holes
    await until("it is fenced", lambda: world.image is not None and world.image.brokers[cut_off].fenced)
    await workload.client.delete_topic(other, "t")

    def removed() -> bool:
        deletions = read_metadata_log(world).deletions
        return PartitionDeleteState.DELETE_PARTITION_FINISHED in deletions.values()

    await until("its remote data is removed", removed)
    # Time for many of the copies that it has before it.
    await asyncio.sleep(10)
    replica = world.replica(cut_off, TopicPartition("t", 0))
    assert replica is not None
    assert replica.is_leader, "it has not heard yet"
    assert replica.log.only_local_segments[1:], "it had something left to copy"
    metadata_log = read_metadata_log(world)
    world.fabric.clear_holes(holes)
    await until("it has heard", lambda: world.replica(cut_off, TopicPartition("t", 0)) is None)
    assert world.image is not None
    assert topic_id not in world.image.topics
    await DeletedTopicsLeaveNothing(world).finish()
    return metadata_log


def test_a_leader_that_is_cut_off_from_the_controller_leaves_nothing_of_its_deleted_topic_behind() -> None:
    world = World(3)
    metadata_log = world.loop.play(deleted_behind_its_back(world))
    dispose(world)
    assert metadata_log.segments
