"""One run: start, live through faults, heal, recover, compare everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from backend.protocol.errors import KafkaError
from tests.simulation.checkers import Checker, all_checkers
from tests.simulation.faults import Faults
from tests.simulation.odd import OddProducer, scrape_on
from tests.simulation.result import Result, collected_between_runs, result_of
from tests.simulation.workload import Workload
from tests.simulation.world import World

FAULTS_MS: Final = (2_000.0, 4_500.0)
# Time for two or three disks, with everything in sync between one and the next.
LOST_DISKS_FAULTS_MS: Final = (6_000.0, 12_000.0)
# As `ebbline up` has it with three brokers, internal topics included.
LOST_DISKS_SETTINGS: Final = {"ebbline.events.topic.replication.factor": "3", "min.insync.replicas": "2"}
LOOK_S: Final = 0.3
# Part of the runs whose tiered topics have a past when trouble begins: batches of each partition, and how long ago.
PAST: Final = 0.8
PAST_BATCHES: Final = (5, 17)
PAST_S: Final = (0.0, 1.0, 2.0)
# Part of the runs that have a transactional producer.
TRANSACTIONS: Final = 0.4
# Part of the runs that have a producer of odd batches and somebody who scrapes metrics.
ODD: Final = 0.4
# Not at every moment: nothing is copied to the remote tier within so short a time.
STEP_MS: Final = 5.0


def simulate(
    seed: int,
    *,
    show: Callable[[str], None] | None = None,
    faults: Sequence[str] = (),
    unclean: bool | None = None,
    lost_disks: bool = False,
) -> Result:
    """Plays one seed. A violation is part of the result; `show` gets every line of the trace as it happens.

    `faults` names the only kinds of fault there are, `unclean` says whether a topic with unclean elections is there;
    the seed decides otherwise. With `lost_disks` it is another kind of run: disks are lost, one at a time, and every
    topic is on all brokers with `min.insync.replicas=2`.
    """
    with collected_between_runs():
        return _simulate(seed, show, faults, unclean, lost_disks)


def _simulate(
    seed: int, show: Callable[[str], None] | None, faults: Sequence[str], unclean: bool | None, lost_disks: bool
) -> Result:
    world = World(seed, show, LOST_DISKS_SETTINGS if lost_disks else None)
    run = Run(world, faults, unclean, lost_disks=lost_disks)
    result = result_of(world, run.main(), show)
    result.acknowledged = world.history.acknowledged
    result.reads = world.history.reads
    result.faults = run.faults.counts
    return result


class Run:
    """The course of events."""

    def __init__(self, world: World, faults: Sequence[str], unclean: bool | None, *, lost_disks: bool) -> None:
        self.world = world
        self.checkers: list[Checker] = all_checkers(world)
        self._stepping = [checker for checker in self.checkers if type(checker).step is not Checker.step]
        self.workload = world.workload = Workload(world, self.checkers, everywhere=lost_disks)
        self.faults = Faults(world, self.workload, faults, lost_disks=lost_disks)
        self._faults_ms = LOST_DISKS_FAULTS_MS if lost_disks else FAULTS_MS
        self._random = world.new_random("run")
        self._unclean = self._random.random() < 0.25 if unclean is None else unclean
        if lost_disks:
            # Its records may be lost by what an operator has allowed.
            self._unclean = False

    async def main(self) -> None:
        world, workload = self.world, self.workload
        await world.start()
        await self._make_topics()
        self.world.loop.on_jump = self._step
        if self._random.random() < PAST:
            await self._make_past()
        clients = [
            world.loop.create_task(workload.produce_on((20.0, 120.0), acks_one=0.05)),
            world.loop.create_task(workload.produce_on((20.0, 120.0), acks_one=0.95)),
            world.loop.create_task(workload.consume_on((30.0, 150.0))),
        ]
        if self._random.random() < TRANSACTIONS:
            clients.append(world.loop.create_task(workload.transact_on((50.0, 300.0))))
        odd = OddProducer(world, workload) if self._random.random() < ODD else None
        if odd is not None:
            clients.append(world.loop.create_task(odd.produce_on((50.0, 250.0))))
            clients.append(world.loop.create_task(scrape_on(world, (500.0, 1500.0))))
        looking = world.loop.create_task(self._look_on())
        raging = world.loop.create_task(self.faults.rage(self._random.uniform(*self._faults_ms)))
        # A checker that fails ends the run at once.
        await _all_or_first_error([raging], [looking, *clients])
        workload.stopping = True
        await self.faults.heal()
        await asyncio.gather(*clients)
        await self.faults.operators.restore_settings()
        for checker in reversed(self.checkers):
            # Recovery comes first: the others compare what it left.
            await checker.finish()
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        self._step()
        if odd is not None:
            await odd.say_the_last()
            self._step()

    async def _make_topics(self) -> None:
        topics = [("t", 2, True, False, False)]
        if self._unclean:
            topics.append(("u", 1, True, True, False))
        else:
            compacted = self._random.random() < 0.4
            topics.append(("c" if compacted else "p", 1, False, False, compacted))
        for name, partitions, tiered, unclean, compacted in topics:
            for _ in range(50):
                try:
                    await self.workload.create_topic(
                        name, partitions=partitions, tiered=tiered, unclean=unclean, compacted=compacted
                    )
                    break
                except KafkaError:
                    await asyncio.sleep(0.2)

    async def _make_past(self) -> None:
        """The run begins when the partitions have closed segments, and mostly when they are remote only."""
        topics = [topic for topic in self.world.history.living if topic.tiered]
        await asyncio.gather(*(self.workload.fill(topic, index, self._random.randint(*PAST_BATCHES))
                               for topic in topics for index in topic.partitions))  # fmt: skip
        await asyncio.sleep(self._random.choice(PAST_S))

    def _step(self) -> None:
        loop = self.world.loop
        loop.no_jump_before_s = loop.time() + STEP_MS / 1000
        replicas = list(self.checkers[0].replicas())
        for checker in self._stepping:
            checker.step(replicas)

    async def _look_on(self) -> None:
        while True:
            for checker in self.checkers:
                checker.look()
            await asyncio.sleep(LOOK_S)


async def _all_or_first_error(required: list[asyncio.Task[None]], others: list[asyncio.Task[None]]) -> None:
    """Waits for the required ones; an error of any ends the wait."""
    while any(not task.done() for task in required):
        done, _ = await asyncio.wait([*required, *others], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        others = [task for task in others if not task.done()]
