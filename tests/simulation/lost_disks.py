"""A disk is lost while its node is down: one at a time, at any moment, also while all nodes are down.

With three replicas and `min.insync.replicas=2` nothing that was acknowledged may be lost with it, regardless of the
brokers in the ISR and of the order in which the others come back. The next disk may only go once every replica has
been in sync again: until then an acknowledged record may be on one disk alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.world import BROKERS, CONTROLLER, LOG_DIRS

if TYPE_CHECKING:
    from tests.simulation.world import World

# The other faults of such runs. Left out: a power cut and a disk that fails, which would be a second disk, and
# reassignments, which may leave a partition with two replicas.
OTHER_KINDS: Final = (
    "crash",
    "clean restart",
    "controller crash",
    "hole",
    "bad line",
    "store trouble",
    "kill in a write",
    "damaged files",
    "election",
    "new topic",
    "topic deletion",
    "retention",
    "delete records",
    "throttle",
    "look",
)
MIN_ISR: Final = 2
# Part of the losses of a disk that take one of its two log directories only.
ONE_DIRECTORY: Final = 0.2
# Between the ends of two brokers and between their starts, and how long nothing runs; a session has 1.8 s.
BETWEEN_S: Final = (0.0, 0.0, 0.3, 2.5)
DOWN_S: Final = (0.0, 0.5, 2.5)
# An orderly stop that takes longer ends in a kill.
STOP_S: Final = 20.0


class LostDisks:
    """Two kinds of fault, and the rule that keeps it at one disk. `bring_up` starts a node until it is up."""

    def __init__(self, world: World, bring_up: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        self._world = world
        self._bring_up = bring_up
        # A separate generator: the numbers that other faults draw stay the same.
        self._random = world.new_random("lost disks")
        # Whether all replicas have been in sync since the last disk was lost.
        self._whole = False
        # Partitions that have had an ISR large enough to acknowledge anything.
        self._taken: set[tuple[bytes, int]] = set()
        # The broker that lost its disk last, and the directories that it had registered.
        self._lost: tuple[int, frozenset[bytes]] | None = None
        # Kind → (weight, action).
        self.kinds: dict[str, tuple[int, Callable[[], Awaitable[bool]]]] = {
            "disk lost": (8, self._lose_one),
            "disk lost, all down": (20, self._lose_one_of_all),
        }

    def look(self) -> None:
        """Notices that every broker is there, with the disk that it has now, and every replica in its ISR."""
        image = self._world.image
        if image is None:
            return
        for topic in image.topics.values():
            self._taken |= {
                (topic.id, at)
                for at, partition_registration in topic.partitions.items()
                if len(partition_registration.isr) >= MIN_ISR
            }
        if self._whole:
            return
        for node in BROKERS:
            registration = image.broker(node)
            if registration is None or registration.fenced:
                return
            if self._lost == (node, frozenset(registration.log_dirs)):
                return
        self._whole = all(
            set(partition.isr) == set(partition.replicas) == set(BROKERS)
            for topic in image.topics.values()
            for partition in topic.partitions.values()
        )

    async def _lose_one(self) -> bool:
        """A broker ends, in order or not, or is down already; it comes back before or after the others notice."""
        random = self._random
        node, orderly, down_s = random.choice(BROKERS), random.random() < 0.5, random.choice(DOWN_S)
        if not self._whole:
            return False
        await self._end(node, orderly=orderly)
        await asyncio.sleep(down_s)
        lost = self._lose(node)
        await self._bring_up(node)
        return lost

    async def _lose_one_of_all(self) -> bool:
        """All brokers end, at once or one after the other, sometimes the controller too; they start in any order."""
        world, random = self._world, self._random
        order = random.sample(BROKERS, len(BROKERS))
        node = random.choice((order[0], order[-1], *BROKERS))
        orderly, between_s = random.random() < 0.4, random.choice(BETWEEN_S)
        if not self._whole:
            return False
        world.trace.note(f"all brokers end: {order}{', in order' if orderly else ''}")
        if between_s:
            for broker in order:
                await self._end(broker, orderly=orderly)
                await asyncio.sleep(between_s)
        else:
            await asyncio.gather(*(self._end(broker, orderly=orderly) for broker in order))
        if random.random() < 0.3 and world.machines[CONTROLLER].up:
            world.trace.note("the controller crashes, too")
            world.machines[CONTROLLER].crash(power=False)
        await asyncio.sleep(random.choice(DOWN_S))
        # Other faults may have started it again.
        down = [broker for broker in (node, *order) if not world.machines[broker].up]
        lost = bool(down) and self._lose(down[0])
        await self._start_all(random.sample((CONTROLLER, *BROKERS), 1 + len(BROKERS)), random.choice(BETWEEN_S))
        return lost

    async def _end(self, node: int, *, orderly: bool) -> None:
        """A process that still starts, or whose stop takes too long, is killed."""
        machine = self._world.machines[node]
        if machine.started and orderly:
            self._world.trace.note(f"broker {node} stops")
            await asyncio.wait([machine.stop()], timeout=STOP_S)
        if machine.up:
            self._world.trace.note(f"broker {node} is killed")
            machine.crash(power=False)

    def _lose(self, node: int) -> bool:
        """Empties the disk, unless somebody has started the broker meanwhile, or another disk was lost."""
        machine, image = self._world.machines[node], self._world.image
        registration = None if image is None else image.broker(node)
        if machine.up or image is None or registration is None or not self._whole:
            return False
        if any((topic.id, at) not in self._taken for topic in image.topics.values() for at in topic.partitions):
            # Made while two brokers were away: nobody else has had it, and only an operator lets it begin empty.
            return False
        self._whole, self._lost = False, (node, frozenset(registration.log_dirs))
        path = self._random.choice(LOG_DIRS) if self._random.random() < ONE_DIRECTORY else None
        self._world.trace.note(f"broker {node} has lost {'its disk' if path is None else f'the disk of {path}'}")
        machine.disk.replace(path)
        return True

    async def _start_all(self, order: Sequence[int], between_s: float) -> None:
        starting = []
        try:
            for node in order:
                starting.append(self._world.loop.create_task(self._bring_up(node)))
                await asyncio.sleep(between_s)
            await asyncio.gather(*starting)
        finally:
            # The end of all faults starts every machine that is down.
            for task in starting:
                task.cancel()
