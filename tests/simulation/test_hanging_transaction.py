"""An unclean election that cuts off a transaction's marker, not its records: the transaction hangs, as in Kafka."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import pytest

from backend.protocol.errors import KafkaError
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.tiering.ids import TopicPartition
from tests.simulation.checkers import EverythingRecovers, Violation
from tests.simulation.machine import dispose
from tests.simulation.test_cut_off_leader import until
from tests.simulation.workload import Workload
from tests.simulation.world import World

U: Final = TopicPartition("u", 0)
STATE: Final = TopicPartition("__transaction_state", 0)
NAME: Final = "transactional"
FIRST, SECOND, LAST = 1, 2, 3


def isr(world: World, at: TopicPartition) -> set[int]:
    registration = world.registration(at)
    return set() if registration is None else set(registration.isr)


async def producer_id(world: World) -> tuple[int, int]:
    """Of a new transactional producer, once there is a coordinator."""
    client = world.workload.client
    for _ in range(50):
        try:
            return await client.producer_id(await client.coordinator(FIRST, NAME), NAME)
        except KafkaError:
            await asyncio.sleep(0.1)
    raise AssertionError("there is no coordinator")


def is_fenced(world: World, node: int) -> bool:
    return world.image is not None and world.image.brokers[node].fenced


def is_open(world: World, node: int) -> bool:
    """Whether a broker's replica has a transaction that no marker below its high watermark has ended."""
    replica = world.replica(node, U)
    return replica is not None and replica.log.producer_state.first_unstable_offset is not None


def is_over(world: World) -> bool:
    """Whether its coordinator has nothing more to tell."""
    coordinators = [broker.broker_services.transaction_coordinator for broker in world.brokers().values()]
    return any(not transaction.partitions for coordinator in coordinators for transaction in coordinator.transactions())


async def hangs(world: World, checker: EverythingRecovers, *, commit: bool) -> None:
    """The marker is on the first two brokers; the last one, which has the records only, is elected without them."""
    await world.start()
    workload = world.workload = Workload(world, [])
    world.loop.on_jump = lambda: checker.step(list(checker.replicas()))
    await workload.create_topic("u", partitions=1, tiered=True, unclean=True, leader=FIRST)
    topic, client = world.history.topics["u"], workload.client
    await until("all have it", lambda: isr(world, U) == {FIRST, SECOND, LAST})
    await workload.fill(topic, 0, 6)
    producer = await producer_id(world)
    await client.begin(await client.coordinator(FIRST, NAME), NAME, producer, "u", 0)
    records = build_batch(
        [RecordData(world.client.ports.clock.time_ms(), None, b"open")],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        transactional=True,
    )
    await client.produce(FIRST, topic.topic_id, 0, records, transactional_id=NAME)
    await until("the last one has the records", lambda: is_open(world, LAST))
    world.machines[LAST].crash(power=False)
    await until("it is out of the ISR", lambda: isr(world, U) == isr(world, STATE) == {FIRST, SECOND})
    await client.end(await client.coordinator(FIRST, NAME), NAME, producer, commit=commit)
    await until("the transaction is over", lambda: not is_open(world, SECOND))
    await until("its coordinator knows", lambda: is_over(world))
    for node in (SECOND, FIRST):
        world.machines[node].crash(power=False)
        await until(f"{node} is fenced", partial(is_fenced, world, node))
    await world.machines[LAST].start()
    await until("it leads", lambda: isr(world, U) == {LAST})
    for node in (FIRST, SECOND):
        await world.machines[node].start()
    await checker.finish()


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_whose_marker_an_unclean_election_cut_off_hangs_and_the_rest_recovers(commit: bool) -> None:
    world = World(3)
    checker = EverythingRecovers(world)
    world.loop.play(hangs(world, checker, commit=commit))
    assert list(checker.hanging) == [U]
    dispose(world)


class SeesNoMarker(EverythingRecovers):
    def step(self, replicas: object) -> None:
        """The marker is in no log that it looks at."""


def test_an_open_transaction_whose_marker_nobody_saw_is_a_violation() -> None:
    world = World(3)
    with pytest.raises(Violation, match="u-0 is stable up to"):
        world.loop.play(hangs(world, SeesNoMarker(world), commit=True))
    dispose(world)
