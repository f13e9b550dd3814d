"""One run of three nodes that are broker and controller each: all end, one disk is lost, all start again.

The other runs have one controller beside three brokers, or voters alone. Here a voter that comes back with an empty
disk has its directory noted in the metadata log while brokers register, and commands of all kinds are under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum
from functools import partial
from typing import Any, Final

from backend.engine.broker import Broker, StartRefused
from backend.engine.controller.image.metadata_image import MetadataImage, PartitionRegistration
from backend.protocol.errors import KafkaError
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from tests.simulation.checkers import Violation
from tests.simulation.client import Client
from tests.simulation.machine import Machine, Process
from tests.simulation.network import Fabric
from tests.simulation.result import Result, collected_between_runs, result_of
from tests.simulation.world import CLUSTER_ID, HOST, World

NODES: Final = (1, 2, 3)
TOPIC: Final = "kept"
RECORDS: Final = 20
# Virtual time within which every replica is in sync again after the network has calmed down.
RECOVERY_S: Final = 30.0
READ_S: Final = 5.0
# Of the whole run; the longest of 1,000 took 44 s.
RUN_S: Final = 300.0
# An orderly stop that takes longer ends in a kill.
STOP_S: Final = 30.0
# Part of the messages that are late, how late, and until how long after the first start.
LATE: Final = (0.0, 0.1, 0.4)
LATE_MS: Final = ((20.0, 400.0), (100.0, 2000.0))
ROUGH_S: Final = (0.0, 5.0, 15.0)
BETWEEN_STARTS_S: Final = (0.0, 0.0, 0.3, 2.0, 6.0)
BETWEEN_ENDS_S: Final = (0.0, 0.0, 0.5, 4.0)

# The intervals of the tests' clusters; timeouts are Kafka's.
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": ",".join(f"{node}@{HOST}:{node}500" for node in NODES),
    "ebbline.cluster.id": CLUSTER_ID,
    "ebbline.events.topic.replication.factor": "3",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "/data",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "process.roles": "broker,controller",
    "replica.fetch.backoff.ms": "200",
}


class Ending(Enum):
    """How a run of all nodes ends."""

    TOGETHER = "all stop together"
    ONE_BY_ONE = "one after the other stops"
    KILLED = "all are killed"


class CombinedWorld(World):
    """Three combined nodes, drawn from one seed."""

    def __init__(self, seed: int, show: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, show)
        self.fabric = Fabric(self.loop, self.new_random("network"), self.trace)
        self.machines = {
            node: Machine(
                self,
                node,
                SETTINGS
                | {
                    "node.id": str(node),
                    "listeners": f"PLAINTEXT://{HOST}:{node}000,CONTROLLER://{HOST}:{node}500",
                },
            )
            for node in NODES
        }
        self.client = Process(self, 0, 0, Machine(self, 0, {}).disk, 0)

    def node_image(self, node: int) -> MetadataImage | None:
        """The newest image that a node's broker has; None while it has none."""
        broker = self.brokers().get(node)
        return None if broker is None else broker.broker_services.replica_manager.image


class CombinedRun:
    """The course of events."""

    def __init__(self, world: CombinedWorld) -> None:
        self.world = world
        self._random = world.new_random("combined nodes")
        self._client = Client(world)
        self._acknowledged: list[bytes] = []
        self.ending = self._random.choice(list(Ending))

    async def main(self) -> None:
        """A run that does not come to its end is a violation, too: a node may wait for ever for one that gave up."""
        try:
            async with asyncio.timeout(RUN_S):
                await self._run()
        except TimeoutError as error:
            gave_up = [
                f"node {node} gave up: {machine.broker.failed.result()}"
                for node, machine in self.world.machines.items()
                if machine.broker is not None and machine.broker.failed.done()
            ]
            raise Violation(
                "Recovers", f"no end within {RUN_S:.0f} s; {'; '.join(gave_up) or 'no node gave up'}"
            ) from error

    async def _run(self) -> None:
        world, random = self.world, self._random
        await asyncio.gather(*(world.machines[node].start() for node in NODES))
        await self._write()
        # A partition that never had a second replica in sync may have nothing that survives.
        await self._recover()
        world.fabric.weather.late = random.choice(LATE)
        world.fabric.weather.late_ms = random.choice(LATE_MS)
        lost = random.choice(NODES)
        world.trace.note(self.ending.value)
        await self._end_all()
        world.trace.note(f"the disk of node {lost} is lost")
        world.machines[lost].disk.replace()
        between_s = random.choice(BETWEEN_STARTS_S)
        world.loop.call_later(random.choice(ROUGH_S), self._calm_down)
        starting = []
        for node in random.sample(NODES, len(NODES)):
            starting.append(world.machines[node].start())
            await asyncio.sleep(between_s)
        try:
            await asyncio.gather(*starting)
        except StartRefused as error:
            raise Violation("Recovers", str(error)) from error
        self._calm_down()
        await self._recover()
        await self._read_all()

    def _calm_down(self) -> None:
        self.world.fabric.weather.late = 0.0

    async def _write(self) -> None:
        replicas = self._random.sample(NODES, len(NODES))
        await self._insist(lambda: self._client.create_topic(replicas[0], TOPIC, {0: replicas}, {}))
        while self._partition(replicas[0]) is None:
            await asyncio.sleep(0.05)
        for number in range(RECORDS):
            value = f"value-{number}".encode()
            await self._insist(partial(self._produce, replicas[0], value))
            self._acknowledged.append(value)

    async def _produce(self, leader: int, value: bytes) -> None:
        batch = build_batch([RecordData(self.world.client.ports.clock.time_ms(), None, value)])
        await self._client.produce(leader, self._topic_id(leader), 0, batch)

    async def _insist(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Tries on, as clients do while leaders are elected."""
        for _ in range(50):
            try:
                await work()
                return
            except KafkaError:
                await asyncio.sleep(0.2)
        raise Violation("Recovers", "the client gets nothing done before any fault")

    async def _end_all(self) -> None:
        world, random, machines = self.world, self._random, self.world.machines
        order = random.sample(NODES, len(NODES))
        if self.ending is Ending.TOGETHER:
            await self._stop_together()
        for node in order:
            if self.ending is Ending.ONE_BY_ONE:
                await asyncio.wait([machines[node].stop()], timeout=STOP_S)
                await asyncio.sleep(random.choice(BETWEEN_ENDS_S))
            if machines[node].up:
                world.trace.note(f"node {node} is killed")
                machines[node].crash(power=False)

    async def _stop_together(self) -> None:
        """As `Cluster.stop` does: no ISR changes, none serves, none decides, then the logs are closed."""
        steps: tuple[Callable[[Broker], Coroutine[Any, Any, None]], ...] = (
            Broker.freeze_isr,
            lambda broker: broker.leave(hands_over=False),
            Broker.leave_quorum,
        )
        for step in steps:
            await asyncio.gather(*(self._in_process(node, step) for node in NODES))
        await asyncio.wait([self.world.machines[node].stop() for node in NODES], timeout=STOP_S)

    def _in_process(self, node: int, step: Callable[[Broker], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        machine = self.world.machines[node]
        assert machine.broker is not None
        assert machine.process is not None
        return self.world.loop.create_task(step(machine.broker), context=machine.process.context)

    async def _recover(self) -> None:
        world = self.world
        end_ms = world.loop.now_ms + RECOVERY_S * 1000
        while not self._is_whole():
            if world.loop.now_ms > end_ms:
                images = [world.node_image(node) for node in NODES]
                partitions = [
                    f"{node} at {image.offset}: {topic.name} {partition}"
                    for node, image in zip(NODES, images, strict=True)
                    if image is not None
                    for topic in image.topics.values()
                    for partition in topic.partitions.values()
                    if set(partition.isr) != set(NODES)
                ]
                raise Violation("Recovers", f"left in peace for {RECOVERY_S:.0f} s the nodes see {partitions}")
            await asyncio.sleep(0.1)

    def _is_whole(self) -> bool:
        """Whether all nodes show the same at the same offset, with every replica in sync."""
        images = [self.world.node_image(node) for node in NODES]
        if None in images or len({image.offset for image in images if image is not None}) > 1:
            return False
        first = images[0]
        assert first is not None
        for node, image in zip(NODES, images, strict=True):
            if image != first:
                raise Violation("ImagesAgree", f"at offset {first.offset} node {node} and node {NODES[0]} differ")
        return (
            TOPIC in first.topic_ids
            and self._voters_are_named()
            and all(
                set(partition.isr) == set(NODES) and partition.leader in NODES
                for topic in first.topics.values()
                for partition in topic.partitions.values()
            )
        )

    def _voters_are_named(self) -> bool:
        """Whether every log names the directory of every voter: one that it does not name is trusted with any disk."""
        nodes = [self.world.machines[node].broker for node in NODES]
        rafts = [broker._controller.controller.raft for broker in nodes if broker is not None and broker._controller]
        own = {raft.node_id: raft.directory_id for raft in rafts}
        return set(own) == set(NODES) and all(dict(raft.log.committed_directories) == own for raft in rafts)

    async def _read_all(self) -> None:
        leader_partition = self._partition(NODES[0])
        assert leader_partition is not None
        leader = leader_partition.leader
        values: list[bytes] = []
        offset = 0
        # The connections of before the faults may not know yet that they are broken.
        client = Client(self.world)
        # A new leader's high watermark follows with its followers' next fetches.
        end_ms = self.world.loop.now_ms + READ_S * 1000
        while len(values) < RECORDS and self.world.loop.now_ms < end_ms:
            read = await client.fetch(leader, self._topic_id(leader), 0, offset)
            values += [value for _, _, value in read.records]
            offset = max(offset, read.next_offset)
            await asyncio.sleep(0.05)
        missing = set(self._acknowledged) - set(values)
        if missing:
            raise Violation("AcknowledgedSurvive", f"{len(missing)} acknowledged records are gone: {sorted(missing)}")

    def _partition(self, node: int) -> PartitionRegistration | None:
        image = self.world.node_image(node)
        return None if image is None else image.partition(TOPIC, 0)

    def _topic_id(self, node: int) -> bytes:
        image = self.world.node_image(node)
        assert image is not None
        return image.topic_ids[TOPIC]


def simulate_combined_nodes(seed: int, *, show: Callable[[str], None] | None = None) -> tuple[Result, Ending]:
    """Plays one seed. A violation is part of the result; `show` gets every line of the trace as it happens."""
    with collected_between_runs():
        world = CombinedWorld(seed, show)
        run = CombinedRun(world)
        return result_of(world, run.main(), show), run.ending
