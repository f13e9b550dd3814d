"""A machine of the simulation and the process on it: one node of the engine, made of nothing but ports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from backend.engine.broker import Broker
from backend.engine.config import BrokerConfig
from backend.engine.ports import Ports, tasks
from backend.engine.ports.random import SystemRandom
from tests.simulation.disk import Disk, VirtualDisk
from tests.simulation.loop import PROCESS
from tests.simulation.network import VirtualNetwork
from tests.simulation.objects import VirtualObjectStore

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

# Wall clock at the start of every run: 2025-06-01.
EPOCH_MS: Final = 1_748_736_000_000
# How long a call to a worker thread takes: fsync and the like.
WORK_MS: Final = (0.02, 2.0)


class VirtualClock:
    """Virtual time; each machine's wall clock is off by a little."""

    def __init__(self, now_ms: Callable[[], float], skew_ms: int) -> None:
        self._now_ms = now_ms
        self._skew_ms = skew_ms

    def time_ms(self) -> int:
        return EPOCH_MS + self._skew_ms + int(self._now_ms())

    def monotonic_ms(self) -> float:
        return self._now_ms()


class VirtualWorkers:
    """Threads without threads: the work is done at one moment between its submission and the delivery of its result.

    Between the two anything else may run, as beside a real thread.
    """

    def __init__(self, process: Process, call_ms: Callable[[], float]) -> None:
        self._process = process
        self._call_ms = call_ms

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        done = tasks.shielded_future()

        def carry_out() -> None:
            try:
                outcome = work()
            except BaseException as error:
                tasks.call_later(self._call_ms() / 2, partial(done.set_exception, error))
                return
            tasks.call_later(self._call_ms() / 2, partial(done.set_result, outcome))

        tasks.call_later(self._call_ms() / 2, carry_out)
        return done

    def grow(self, threads: int) -> None:
        """There is no end of these."""

    def close(self) -> None:
        """Work under way ends by itself."""


class Process:
    """One life of a node: from its start to its stop or crash."""

    def __init__(self, world: World, node_id: int, life: int, disk: Disk, skew_ms: int) -> None:
        self.node_id = node_id
        self.life = life
        self.alive = True
        self.context = copy_context()
        self.context.run(PROCESS.set, self)
        # A separate generator, so that the numbers of one process do not depend on the others.
        self.random = world.new_random(f"process {node_id} {life}")
        self.disk = VirtualDisk(disk, lambda: self.alive)
        engine_seed = self.random.getrandbits(64)
        self.ports = Ports(
            clock=VirtualClock(lambda: world.loop.now_ms, skew_ms),
            random=SystemRandom(engine_seed),
            disk=self.disk,
            network=VirtualNetwork(world.fabric, self),
            workers=VirtualWorkers(self, lambda: self.random.uniform(*WORK_MS)),
            more_workers=lambda threads: VirtualWorkers(self, world.objects.call_ms),
            object_store=lambda location, **settings: VirtualObjectStore(world.objects, self.disk),
        )


class Machine:
    """A node's place: its disk stays, its processes come and go."""

    def __init__(self, world: World, node_id: int, properties: dict[str, str]) -> None:
        """Each life begins with the properties of its moment."""
        self._world = world
        self.node_id = node_id
        self.properties = properties
        random = world.new_random(f"machine {node_id}")
        self._skew_ms = random.randint(-50, 50)
        self.disk = Disk(world.new_random(f"disk {node_id}"), lambda: EPOCH_MS + int(world.loop.now_ms))
        self.process: Process | None = None
        self.broker: Broker | None = None
        self._lives = 0
        # Whether it serves, and whether it is on its way out.
        self.started = False
        self.stopping = False
        # The future on which the caller of the start waits.
        self.waits_for_start: asyncio.Future[None] | None = None
        # Crashed processes stay here until the run is over: nothing of them may run again, not even to clean up.
        self._dead: list[tuple[Process, Broker | None]] = []

    @property
    def up(self) -> bool:
        return self.process is not None

    def start(self) -> asyncio.Task[None]:
        """A new life; the task ends once the node serves."""
        assert self.process is None, f"node {self.node_id} runs"
        self._lives += 1
        process = self.process = Process(self._world, self.node_id, self._lives, self.disk, self._skew_ms)
        return self._world.loop.create_task(self._start(process), context=process.context)

    async def _start(self, process: Process) -> None:
        broker = self.broker = Broker(BrokerConfig.parse(self.properties), ports=process.ports)
        await broker.start()
        self.started = True

    def stop(self) -> asyncio.Task[None]:
        """An orderly stop; the task ends once the process is gone."""
        process, broker = self.process, self.broker
        assert process is not None
        assert broker is not None
        self.started, self.stopping = False, True
        return self._world.loop.create_task(self._stop(process, broker), context=process.context)

    async def _stop(self, process: Process, broker: Broker) -> None:
        await broker.stop()
        if process.alive:
            self._bury(process, at_once=True)
            # This very task belongs to the process: it ends first.
            self._world.loop.call_soon(self._world.loop.drop, process, context=self._world.context)

    def crash(self, *, power: bool) -> None:
        """The process is gone between two instructions; with `power`, so is what its disk had not written."""
        process = self.process
        assert process is not None
        self._bury(process, at_once=not power)
        self._world.loop.drop(process)
        if power:
            self.disk.lose_power()

    def kill_after(self, changes: int, on_killed: Callable[[], None]) -> None:
        """The process is gone in the midst of its work, after so many more changes of its disk."""
        process = self.process
        assert process is not None

        def kill() -> None:
            process.alive = False
            # The frames on the stack belong to the process: the rest follows once they have unwound.
            self._world.loop.call_soon(bury, context=self._world.context)

        def bury() -> None:
            if self.process is process:
                self.crash(power=False)
                on_killed()

        process.disk.changes_left, process.disk.on_last_change = changes, kill

    @property
    def is_doomed(self) -> bool:
        """Whether the process will be killed by what has happened to it, or to its disk, already."""
        return self.disk.broken is not None or (self.process is not None and self.process.disk.changes_left is not None)

    def _bury(self, process: Process, *, at_once: bool) -> None:
        process.alive = False
        self._world.fabric.lose(process, at_once=at_once)
        self._dead.append((process, self.broker))
        if self.waits_for_start is not None and not self.waits_for_start.done():
            # The result of the start itself is never delivered: nothing of the process runs again.
            self.waits_for_start.set_exception(ProcessLookupError("killed while it started"))
        self.process = self.broker = None
        self.started = self.stopping = False

    def abandon(self) -> None:
        """The run is over."""
        if self.process is not None:
            self.process.alive = False
        self._dead.clear()


def dispose(world: World) -> None:
    """Ends what a finished run left waiting, so that it holds no memory; nothing of it reaches the world any more."""
    for machine in world.machines.values():
        machine.abandon()
    for task in [task for task in asyncio.all_tasks(world.loop) | tasks._running if task.get_loop() is world.loop]:
        tasks._running.discard(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # they were to end like this
        coroutine: Any = task.get_coro()  # None for an eager task of Python 3.12
        # Whatever cleaning up meets in a dead world is no finding.
        with contextlib.suppress(BaseException):
            coroutine.close()
