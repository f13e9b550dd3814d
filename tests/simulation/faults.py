"""The faults of a run and their times: drawn from the seed, one kind at a time, each with its end.

Machines lose power only while Kafka promises that nothing is lost: another in-sync replica has everything, and nobody
else is in trouble until the cluster has noticed. A run uses some kinds of fault only, so that runs differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from backend.protocol.errors import KafkaError
from tests.simulation.lost_disks import OTHER_KINDS, LostDisks
from tests.simulation.operators import Operators
from tests.simulation.workload import Workload
from tests.simulation.world import BROKERS, CLIENT, CONTROLLER, LOG_DIRS

if TYPE_CHECKING:
    from tests.simulation.world import World

EVENTS_TOPIC: Final = "__ebbline_events"
HOLES_MAX: Final = 3
# Between one fault and the next; those that last overlap.
PAUSE_S: Final = (0.05, 0.5)
# Half a second each: a broker whose controller is away waits a minute and more by itself.
STARTS_MAX: Final = 400
# Tenths of a second that an orderly stop may take, as a service manager would wait.
STOP_LOOKS_MAX: Final = 200
# Changes of the disk until a process is killed in the midst of its work: a copy of a segment has some ten.
KILL_AFTER_MAX: Final = 80
# Files that a broker makes again when missing or senseless: indexes, producer snapshots, checkpoints, caches.
MADE_AGAIN: Final = (".index", ".timeindex", "-offset-checkpoint", "_remote_partition_remover_offsets")
SNAPSHOT: Final = ".snapshot"
CACHES: Final = ("/remote-log-index-cache/", "/_rlmm_")


class Faults:
    """The bad luck of one run."""

    def __init__(self, world: World, workload: Workload, only: Sequence[str] = (), *, lost_disks: bool = False) -> None:
        self._world = world
        self._workload = workload
        self._random = world.new_random("faults")
        self._running: dict[asyncio.Task[None], None] = {}
        # The broker that has lost power until the controller has noticed.
        self._in_the_dark: tuple[int, int] | None = None
        self.operators = Operators(world, workload, self._random, self._dark)
        self.counts: dict[str, int] = {}
        kinds: dict[str, tuple[int, Callable[[], Awaitable[bool]]]] = {
            "crash": (6, self._crash),
            "power loss": (5, self._lose_power),
            "new disk": (3, self._replace_disk),
            "clean restart": (2, self._restart_cleanly),
            "controller crash": (1, self._crash_controller),
            "hole": (5, self._hole),
            "bad line": (2, self._bad_line),
            "store trouble": (5, self._store_trouble),
            "disk full": (2, self._fill_disk),
            "broken disk": (1, self._break_directory),
            "kill in a write": (4, self._kill_in_a_write),
            "damaged files": (2, self._crash_and_damage),
            **self.operators.kinds,
        }
        self._lost_disks = LostDisks(world, self._bring_up) if lost_disks else None
        if self._lost_disks is not None:
            kinds = self._lost_disks.kinds | {kind: kinds[kind] for kind in OTHER_KINDS}
        chosen = list(only) or [kind for kind in kinds if self._random.random() < 0.6] or ["crash"]
        if self._lost_disks is not None:
            chosen = list(dict.fromkeys((*chosen, *self._lost_disks.kinds)))
        self.kinds = {kind: kinds[kind] for kind in chosen}

    async def rage(self, duration_ms: float) -> None:
        """Faults for so long; those that last end later by themselves or with :meth:`heal`."""
        loop = self._world.loop
        end_ms = loop.now_ms + duration_ms
        weights = [weight for weight, _ in self.kinds.values()]
        while loop.now_ms < end_ms:
            await asyncio.sleep(self._random.uniform(*PAUSE_S))
            if self._lost_disks is not None:
                self._lost_disks.look()
            [kind] = self._random.choices(list(self.kinds), weights)
            # Some ask a broker, which may take its time to answer: trouble goes on meanwhile.
            self._keep(self._world.loop.create_task(self._strike(kind)))

    async def _strike(self, kind: str) -> None:
        try:
            if await self.kinds[kind][1]():
                self.counts[kind] = self.counts.get(kind, 0) + 1
        except KafkaError as error:
            self._note(f"{kind} was refused: {error}")

    async def heal(self) -> None:
        """Everything works again; machines that are down start, replicas whose disk failed start over."""
        world = self._world
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*list(self._running), return_exceptions=True)
        world.fabric.weather.late = world.fabric.weather.reset = 0.0
        world.fabric.clear_holes(set(world.fabric.weather.holes))
        world.objects.mood = type(world.objects.mood)()
        for machine in world.machines.values():
            machine.disk.full, machine.disk.broken = False, None
            if machine.process is not None:
                machine.process.disk.changes_left = None
        self._note("all faults are over")
        await asyncio.gather(*(self._bring_up(node) for node in (CONTROLLER, *BROKERS)))
        for node in BROKERS:
            broker = world.machines[node].broker
            if broker is not None and broker.broker_services.replica_manager.broken_partitions:
                self._note(f"broker {node} has replicas offline and is restarted: "
                           f"{broker.broker_services.replica_manager.broken_partitions}")  # fmt: skip
                world.machines[node].crash(power=False)
                await self._bring_up(node)

    # Common parts

    def _note(self, text: str) -> None:
        self._world.trace.note(text)

    def _later(self, delay_ms: tuple[float, float], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def wait() -> None:
            await asyncio.sleep(self._random.uniform(*delay_ms) / 1000)
            await work()

        self._keep(self._world.loop.create_task(wait()))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._running[task] = None
        task.add_done_callback(lambda task: self._running.pop(task, None))

    async def _bring_up(self, node: int) -> None:
        """Starts a machine until it is up: a start may fail while faults go on."""
        machine = self._world.machines[node]
        reason: Exception | None = None
        for attempt in range(STARTS_MAX):
            if machine.started:
                return
            if machine.stopping and attempt == STOP_LOOKS_MAX:
                self._note(f"node {node} does not end and is killed")
                machine.crash(power=False)
            if machine.up:
                await asyncio.sleep(0.1)
                continue
            self._note(f"node {node} starts")
            try:
                # The waiting task may be cancelled; the machine goes on starting.
                machine.waits_for_start = asyncio.shield(machine.start())
                await machine.waits_for_start
                self._note(f"node {node} is up")
            except Exception as error:
                self._note(f"node {node} did not start: {error}")
                reason = error
                if machine.up:
                    machine.crash(power=False)
                await asyncio.sleep(0.5)
        assert machine.started, f"node {node} does not start: {reason}"

    def _restart_later(self, node: int) -> None:
        self._later((100, 6000), lambda: self._bring_up(node))

    def _running_brokers(self) -> list[int]:
        return [node for node in BROKERS if self._world.machines[node].started]

    def _holes(self) -> bool:
        return bool(self._world.fabric.weather.holes)

    def _dark(self) -> bool:
        """Whether a broker lost power and the controller still counts on what it had."""
        if self._in_the_dark is None:
            return False
        node, epoch = self._in_the_dark
        image = self._world.image
        registration = None if image is None else image.broker(node)
        if registration is not None and (registration.fenced or registration.epoch != epoch):
            self._in_the_dark = None
            return False
        return True

    def _some_broker(self) -> int | None:
        running = self._running_brokers()
        return self._random.choice(running) if running else None

    # Machines

    async def _crash(self) -> bool:
        node = self._some_broker()
        if node is None or self._dark():
            return False
        self._note(f"broker {node} crashes")
        self._world.machines[node].crash(power=False)
        self._restart_later(node)
        return True

    async def _lose_power(self) -> bool:
        node = self._some_broker()
        if node is None or not self._may_lose_data(node):
            return False
        self._note(f"broker {node} loses power")
        self._world.machines[node].crash(power=True)
        self._restart_later(node)
        return True

    async def _replace_disk(self) -> bool:
        """A machine comes back with an empty disk: all its replicas begin empty, where the leader's logs begin."""
        node = self._some_broker()
        if node is None or not self._may_lose_data(node):
            return False
        self._note(f"broker {node} crashes and gets a new disk")
        machine = self._world.machines[node]
        machine.crash(power=False)
        machine.disk.replace()
        self._restart_later(node)
        return True

    def _may_lose_data(self, node: int) -> bool:
        """Whether Kafka promises that nothing is lost with what is on the broker's disk; from now on it is dark."""
        image = self._world.image
        if image is None or self._dark() or self._holes() or len(self._running_brokers()) < 3:
            return False
        if any(machine.is_doomed for machine in self._world.machines.values()):
            # It would go while what this one had is still counted on.
            return False
        registration = image.broker(node)
        if registration is None or any(broker.fenced for broker in image.brokers.values()):
            return False
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                if topic.name != EVENTS_TOPIC and node in partition.isr and len(partition.isr) < 2:
                    return False
        self._in_the_dark = (node, registration.epoch)
        return True

    async def _restart_cleanly(self) -> bool:
        node = self._some_broker()
        if node is None or self._dark():
            return False
        self._note(f"broker {node} stops")
        machine = self._world.machines[node]
        stopping = machine.stop()

        async def finish() -> None:
            await asyncio.wait([stopping], timeout=20)
            if machine.process is not None and machine.stopping:
                machine.crash(power=False)
            await self._bring_up(node)

        self._later((100, 3000), finish)
        return True

    async def _crash_controller(self) -> bool:
        machine = self._world.machines[CONTROLLER]
        if not machine.started or self._dark():
            return False
        power = self._random.random() < 0.5
        self._note(f"the controller {'loses power' if power else 'crashes'}")
        machine.crash(power=power)
        self._restart_later(CONTROLLER)
        return True

    # Network

    async def _hole(self) -> bool:
        """One direction, or both, between two nodes."""
        if self._dark() or len(self._world.fabric.weather.holes) >= HOLES_MAX:
            return False
        source, target = self._random.sample((CLIENT, CONTROLLER, *BROKERS), 2)
        holes = {(source, target)} | ({(target, source)} if self._random.random() < 0.4 else set())
        self._note(f"nothing goes from {source} to {target}{' and back' if len(holes) > 1 else ''}")
        self._world.fabric.weather.holes |= holes

        async def close() -> None:
            self._world.fabric.clear_holes(holes)
            self._note(f"{source} reaches {target} again")

        self._later((200, 6000), close)
        return True

    async def _bad_line(self) -> bool:
        weather = self._world.fabric.weather
        if weather.late or weather.reset:
            return False
        weather.late, weather.reset = self._random.uniform(0, 0.1), self._random.uniform(0, 0.01)
        self._note(f"{weather.late:.1%} of the messages are late, {weather.reset:.2%} lose their connection")

        async def end() -> None:
            weather.late = weather.reset = 0.0

        self._later((500, 8000), end)
        return True

    # Object store and disks

    async def _store_trouble(self) -> bool:
        mood = self._world.objects.mood
        if mood.refusing or mood.list_delay_ms:
            return False
        mood.refusing = self._random.choice((0.0, 0.05, 0.3, 1.0))
        mood.call_ms = self._random.choice(((1.0, 8.0), (50.0, 400.0), (500.0, 3000.0)))
        mood.list_delay_ms = self._random.choice((0.0, 2000.0))
        mood.cutting = self._random.choice((0.0, 0.0, 0.5))
        self._note(f"the object store refuses {mood.refusing:.0%}, calls take {mood.call_ms} ms")

        async def end() -> None:
            mood.refusing, mood.call_ms, mood.list_delay_ms, mood.cutting = 0.0, (1.0, 8.0), 0.0, 0.0
            self._note("the object store is well again")

        self._later((500, 6000), end)
        return True

    async def _fill_disk(self) -> bool:
        node = self._random.choice(BROKERS)
        disk = self._world.machines[node].disk
        if disk.full:
            return False
        disk.full = True
        self._note(f"the disk of broker {node} is full")

        async def end() -> None:
            disk.full = False
            self._note(f"the disk of broker {node} has room again")

        self._later((200, 3000), end)
        return True

    async def _break_directory(self) -> bool:
        """The device of a broker's second log directory fails; it is repaired, and the broker starts again."""
        node = self._some_broker()
        if node is None or self._dark() or self._world.machines[node].disk.broken is not None:
            return False
        machine = self._world.machines[node]
        machine.disk.broken = LOG_DIRS[1] + "/"
        self._note(f"the log directory {LOG_DIRS[1]} of broker {node} fails")

        async def repair() -> None:
            machine.disk.broken = None
            self._note(f"the log directory {LOG_DIRS[1]} of broker {node} is repaired")
            if machine.started:
                machine.crash(power=False)
            await self._bring_up(node)

        self._later((500, 4000), repair)
        return True

    async def _kill_in_a_write(self) -> bool:
        node = self._some_broker()
        if node is None or self._dark():
            return False

        def killed() -> None:
            self._note(f"broker {node} is killed between two changes of its disk")
            self._restart_later(node)

        self._world.machines[node].kill_after(self._random.randint(1, KILL_AFTER_MAX), killed)
        return True

    async def _crash_and_damage(self) -> bool:
        """A crash that leaves some files empty, cut or gone, of those that are made from others."""
        node = self._some_broker()
        if node is None or self._dark():
            return False
        machine = self._world.machines[node]
        machine.crash(power=False)
        files = machine.disk.files
        kept = self._snapshots_that_others_are_made_from(files)
        chosen = [
            path
            for path in files
            if path.endswith(MADE_AGAIN)
            or any(cache in path for cache in CACHES)
            or (path.endswith(SNAPSHOT) and path not in kept)
        ]
        damaged = self._random.sample(chosen, min(len(chosen), self._random.randint(1, 12)))
        for path in damaged:
            size = len(files[path].data)
            match self._random.randrange(3):
                case 0:
                    machine.disk.unlink(path)
                case 1:
                    del files[path].data[:]
                case _:
                    del files[path].data[self._random.randint(0, size) :]
                    files[path].data += b"\xff"
        self._note(f"broker {node} crashes and comes back with damaged files: {damaged}")
        self._restart_later(node)
        return True

    @staticmethod
    def _snapshots_that_others_are_made_from(files: Iterable[str]) -> set[str]:
        """Of each log the first one, which alone tells of producers whose records are not local any more, and the one
        before the newest, as after a restart the newest is made again from it.
        """
        kept: set[str] = set()
        paths = sorted(path for path in files if path.endswith(SNAPSHOT))
        for _, group in groupby(paths, lambda path: path.rpartition("/")[0]):
            snapshots = list(group)
            kept |= {snapshots[0], *snapshots[-2:-1]}
        return kept
