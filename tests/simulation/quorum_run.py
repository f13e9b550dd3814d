"""One run of a metadata quorum: changes go on while processes end between any two effects, wires fail, requests come
again; then everything works, and all nodes must agree.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from backend.engine.broker import StartRefused
from backend.engine.controller.commands.command import ControllerResult, checked_result
from backend.engine.controller.image.metadata_image import BROKER_RESOURCE, MetadataImage
from backend.engine.raft.quorum_state import VoterStanding
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError
from tests.simulation.checkers import Violation
from tests.simulation.quorum_checkers import SETTINGS_MAX, QuorumCheckers
from tests.simulation.quorum_world import VOTERS, QuorumWorld
from tests.simulation.result import EXPECTED, Result, collected_between_runs, result_of

FAULTS_MS: Final = (1_200.0, 2_800.0)
LOOK_S: Final = 0.05
# Virtual time within which a quorum that is left in peace must agree.
RECOVERY_S: Final = 30.0
# Between the first tries of two voters that start together: a quarter of the election timeout.
FIRST_TRIES_S: Final = 0.05


class QuorumRun:
    """The course of events."""

    def __init__(self, world: QuorumWorld) -> None:
        self.world = world
        self.checkers = QuorumCheckers()
        self._random = world.new_random("quorum run")
        self.faults: Counter[str] = Counter()
        self.acknowledged: list[int] = []
        self.elections = self.snapshots_loaded = 0
        self._next_value = 1
        self._stopping = False
        # A run has its own mixture.
        self._crashes = self._random.choice((0.0, 0.3, 0.8))
        self._holes = self._random.choice((0.0, 0.2, 0.5))
        self._repeats = self._random.choice((0.0, 0.5))
        self._losses = self._random.choice((0.0, 0.3, 0.6))
        # Voters that remember all that they promised and acknowledged. Only while all do is a disk lost.
        self._whole: set[int] = set()
        self._copies: dict[int, list[dict[str, bytes]]] = {node: [] for node in VOTERS}

    async def main(self) -> None:
        world, weather = self.world, self.world.fabric.weather
        # In every other run the first tries of all voters meet, which a start of all at once avoids.
        between_s = self._random.choice((0.0, FIRST_TRIES_S))
        for node in reversed(VOTERS):
            world.machines[node].start()
            await asyncio.sleep(between_s)
        weather.late = self._random.choice((0.0, 0.05, 0.2))
        weather.reset = self._random.choice((0.0, 0.0, 0.01))
        helpers = [world.loop.create_task(work) for work in (self._change_on(), self._look_on())]
        raging = world.loop.create_task(self._rage(self._random.uniform(*FAULTS_MS)))
        while not raging.done():
            await asyncio.wait([raging, *helpers], return_when=asyncio.FIRST_COMPLETED)
            for task in helpers:
                if task.done():
                    task.result()
        await self._recover()
        await asyncio.gather(*helpers)
        self.checkers.finish(world.controllers(), self.acknowledged)

    def note_mistake(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Exceptions of tasks that nobody retrieved; those of a process that has ended are its disk's errors."""
        error = context.get("exception")
        if error is not None and not isinstance(error, (*EXPECTED, StartRefused)):
            self.world.failures.append(f"{context.get('message')}: {error!r}")

    async def _rage(self, duration_ms: float) -> None:
        world, random = self.world, self._random
        end_ms = world.loop.now_ms + duration_ms
        while world.loop.now_ms < end_ms:
            await asyncio.sleep(random.uniform(0.02, 0.25))
            self._maybe_lose_a_disk()
            for machine in world.machines.values():
                if machine.process is None and random.random() < 0.3:
                    machine.start()
            if random.random() < self._crashes:
                self.faults["crash"] += 1
                world.crash_at(random.choice(VOTERS), random.randrange(60), power=random.random() < 0.6)
            if random.random() < self._holes:
                self.faults["hole"] += 1
                source, target = random.sample(VOTERS, 2)
                both = {(source, target), (target, source)} if random.random() < 0.5 else {(source, target)}
                world.fabric.clear_holes(set(world.fabric.weather.holes))
                world.fabric.weather.holes |= both
            elif random.random() < 0.3:
                world.fabric.clear_holes(set(world.fabric.weather.holes))
            if random.random() < self._repeats:
                self.faults["repeat"] += 1
                world.loop.create_task(self._repeat())

    def _maybe_lose_a_disk(self) -> None:
        """One at a time, while its node is down: the next one only after all voters are whole again."""
        world, random = self.world, self._random
        for node, controller in world.controllers().items():
            raft = controller.raft
            if raft.state.standing is VoterStanding.MEMBER and raft.directory_id == raft.log.committed_directories.get(
                node
            ):
                self._whole.add(node)
        if not self._losses:
            return
        node = random.choice(VOTERS)
        machine = world.machines[node]
        if len(self._whole) < len(VOTERS):
            return
        self._copies[node].append(world.copy_metadata(node))
        if random.random() >= self._losses:
            return
        if machine.process is not None:
            machine.crash(power=False)
        self._whole.discard(node)
        kind = random.choice(("disk lost", "older copy", "quorum-state damaged"))
        self.faults[kind] += 1
        if kind == "disk lost":
            world.lose_disk(node)
        elif kind == "older copy":
            world.put_back(node, random.choice(self._copies[node]))
        else:
            world.damage_promises(node)

    async def _repeat(self) -> None:
        try:
            await self.world.ask_again(self._random.randrange)
        except OSError:
            self.faults["repeat"] -= 1

    async def _change_on(self) -> None:
        world = self.world
        while not self._stopping:
            await asyncio.sleep(self._random.uniform(0.005, 0.06))
            for node, controller in world.controllers().items():
                process = world.machines[node].process
                if controller.is_active and process is not None:
                    value, self._next_value = self._next_value, self._next_value + 1
                    world.loop.create_task(self._change(node, value), context=process.context)

    async def _change(self, node: int, value: int) -> None:
        """In the node's own process: it ends with it."""

        def command(image: MetadataImage) -> ControllerResult[None]:
            name = f"s{value % SETTINGS_MAX}"
            record = m.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=name, value=str(value))
            return checked_result([record], None)

        try:
            await self.world.controllers()[node].submit("a change", command)
        except (KafkaError, KeyError):
            return
        self.acknowledged.append(value)

    async def _look_on(self) -> None:
        while not self._stopping:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """One moment, from outside."""
        self.world.looking = True
        try:
            self.checkers.look(self.world.controllers())
        finally:
            self.world.looking = False

    async def _recover(self) -> None:
        """Nothing fails any more: a leader is elected, and everybody catches up."""
        world = self.world
        weather = world.fabric.weather
        world.spare_all()
        weather.late = weather.reset = 0.0
        world.fabric.clear_holes(set(weather.holes))
        world.trace.note("all faults are over")
        end_ms = world.loop.now_ms + RECOVERY_S * 1000
        while True:
            for machine in world.machines.values():
                if machine.process is None:
                    machine.start()
            controllers = world.controllers()
            active = [controller for controller in controllers.values() if controller.is_active]
            if len(controllers) == len(VOTERS) and len(active) == 1:
                self._stopping = True
                if await self._agree():
                    break
            if world.loop.now_ms > end_ms:
                roles = {node: str(controller.raft.state.role) for node, controller in controllers.items()}
                raise Violation("Recovers", f"left in peace for {RECOVERY_S:.0f} s the nodes are {roles}")
            await asyncio.sleep(0.1)
        for controller in world.controllers().values():
            self.elections += controller.raft.elections
            self.snapshots_loaded += controller.snapshots_loaded

    async def _agree(self) -> bool:
        """Whether everybody has come to the end of the one log; there are no more changes."""
        for _ in range(20):
            await asyncio.sleep(0.1)
            ends = {
                (controller.image.offset + 1, controller.log.end_offset)
                for controller in self.world.controllers().values()
            }
            if len(ends) == 1 and len(set(*ends)) == 1:
                return True
        return False


def simulate_quorum(seed: int, *, show: Callable[[str], None] | None = None) -> tuple[Result, QuorumRun]:
    """Plays one seed. A violation is part of the result; `show` gets every line of the trace as it happens."""
    with collected_between_runs():
        return _simulate(seed, show)


def _simulate(seed: int, show: Callable[[str], None] | None) -> tuple[Result, QuorumRun]:
    world = QuorumWorld(seed, show)
    run = QuorumRun(world)
    result = result_of(world, run.main(), show, run.note_mistake)
    result.acknowledged = len(run.acknowledged)
    result.faults = dict(run.faults) | {"ended between effects": world.crashes}
    return result, run
