"""What goes wrong, and when: drawn from the seed, one kind at a time, each with its end.

Machines lose power only while Kafka promises that nothing is lost: another in-sync replica has everything, and nobody
else is in trouble until the cluster has noticed. A run uses some kinds of fault only, so that runs differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from backend.protocol.errors import KafkaError
from backend.tiering.ids import TopicPartition
from tests.simulation.client import BROKER_RESOURCE, TOPIC_RESOURCE
from tests.simulation.workload import Workload
from tests.simulation.world import BROKERS, CLIENT, CONTROLLER

if TYPE_CHECKING:
    from tests.simulation.world import World

EVENTS_TOPIC: Final = "__ebbline_events"
TOPICS_MAX: Final = 3
HOLES_MAX: Final = 3
# Half a second each: a broker whose controller is away waits a minute and more by itself.
STARTS_MAX: Final = 400
# Tenths of a second that an orderly stop may take, as a service manager would wait.
STOP_LOOKS_MAX: Final = 200
LAST_TIERED: Final = "follower.fetch.last.tiered.offset.enable"


class Faults:
    """The bad luck of one run."""

    def __init__(self, world: World, workload: Workload, only: Sequence[str] = ()) -> None:
        self._world = world
        self._workload = workload
        self._random = world.new_random("faults")
        self._running: set[asyncio.Task[None]] = set()
        # The broker that has lost power until the controller has noticed.
        self._in_the_dark: tuple[int, int] | None = None
        self._next_topic = 0
        self.counts: dict[str, int] = {}
        kinds: dict[str, tuple[int, Callable[[], Awaitable[bool]]]] = {
            "crash": (6, self._crash),
            "power loss": (5, self._lose_power),
            "clean restart": (2, self._restart_cleanly),
            "controller crash": (1, self._crash_controller),
            "hole": (5, self._hole),
            "bad line": (2, self._bad_line),
            "store trouble": (5, self._store_trouble),
            "disk full": (2, self._fill_disk),
            "reassignment": (5, self._reassign),
            "election": (3, self._elect),
            "new topic": (1, self._new_topic),
            "topic deletion": (1, self._delete_topic),
            "retention": (3, self._change_retention),
            "copy switch": (2, self._switch_copy),
            "last tiered switch": (2, self._switch_last_tiered),
            "delete records": (2, self._delete_records),
        }
        chosen = list(only) or [kind for kind in kinds if self._random.random() < 0.6] or ["crash"]
        self.kinds = {kind: kinds[kind] for kind in chosen}

    async def rage(self, duration_ms: float) -> None:
        """Faults for so long; those that last end later by themselves or with :meth:`heal`."""
        loop = self._world.loop
        end_ms = loop.now_ms + duration_ms
        weights = [weight for weight, _ in self.kinds.values()]
        while loop.now_ms < end_ms:
            await asyncio.sleep(self._random.uniform(0.1, 1.2))
            [kind] = self._random.choices(list(self.kinds), weights)
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
        await asyncio.gather(*self._running, return_exceptions=True)
        world.fabric.weather.late = world.fabric.weather.reset = 0.0
        world.fabric.clear_holes(set(world.fabric.weather.holes))
        world.objects.mood = type(world.objects.mood)()
        for machine in world.machines.values():
            machine.disk.full = False
        self._note("all faults are over")
        await asyncio.gather(*(self._bring_up(node) for node in (CONTROLLER, *BROKERS)))
        for node in BROKERS:
            broker = world.machines[node].broker
            if broker is not None and broker.services.replica_manager.broken_partitions:
                self._note(f"broker {node} has replicas offline and is restarted: "
                           f"{broker.services.replica_manager.broken_partitions}")  # fmt: skip
                world.machines[node].crash(power=False)
                await self._bring_up(node)

    # What they share

    def _note(self, text: str) -> None:
        self._world.trace.note(text)

    def _later(self, delay_ms: tuple[float, float], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def wait() -> None:
            await asyncio.sleep(self._random.uniform(*delay_ms) / 1000)
            await work()

        task = self._world.loop.create_task(wait())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

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
                # Whoever waits may be called off; the machine goes on starting.
                await asyncio.shield(machine.start())
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
        node, image = self._some_broker(), self._world.image
        if node is None or image is None or self._dark() or self._holes() or len(self._running_brokers()) < 3:
            return False
        registration = image.broker(node)
        if registration is None or any(broker.fenced for broker in image.brokers.values()):
            return False
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                if topic.name != EVENTS_TOPIC and node in partition.isr and len(partition.isr) < 2:
                    return False
        self._note(f"broker {node} loses power")
        self._in_the_dark = (node, registration.epoch)
        self._world.machines[node].crash(power=True)
        self._restart_later(node)
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
        self._note(f"the object store refuses {mood.refusing:.0%}, calls take {mood.call_ms} ms")

        async def end() -> None:
            mood.refusing, mood.call_ms, mood.list_delay_ms = 0.0, (1.0, 8.0), 0.0
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

    # What operators do

    async def _reassign(self) -> bool:
        chosen = self._workload.some_partition()
        if chosen is None:
            return False
        topic, index = chosen
        registration = self._world.registration(TopicPartition(topic.name, index))
        if registration is None:
            return False
        replicas: list[int] | None = None
        if not registration.reassigning or self._random.random() < 0.3:
            replicas = self._random.sample(BROKERS, self._random.choice((2, 2, 3)))
            if topic.unclean and len(replicas) < 3:
                return False
        self._note(f"{topic.name}-{index} is to be on {replicas}")
        await self._workload.client.reassign(self._workload.some_broker(), topic.name, index, replicas)
        return True

    async def _elect(self) -> bool:
        chosen = self._workload.some_partition()
        if chosen is None or self._dark():
            return False
        topic, index = chosen
        self._note(f"the preferred replica of {topic.name}-{index} shall lead")
        await self._workload.client.elect(self._workload.some_broker(), topic.name, index)
        return True

    async def _new_topic(self) -> bool:
        if len(self._world.history.living) >= TOPICS_MAX:
            return False
        self._next_topic += 1
        await self._workload.create_topic(f"n{self._next_topic}", partitions=1, tiered=self._random.random() < 0.8)
        return True

    async def _delete_topic(self) -> bool:
        living = self._world.history.living
        if len(living) < 2:
            return False
        topic = self._random.choice(living)
        topic.deleting = True
        self._note(f"topic {topic.name} is deleted")
        try:
            await self._workload.client.delete_topic(self._workload.some_broker(), topic.name)
        finally:
            await self._settle_deletion(topic.name)
        return True

    async def _settle_deletion(self, name: str) -> None:
        """Whether it happened shows in the metadata; a request whose answer is lost may still come through."""
        topic = self._world.history.topics.get(name)
        if topic is not None:
            del self._world.history.topics[name]

    async def _configure_topic(self, configs: dict[str, str]) -> bool:
        chosen = self._workload.some_partition()
        if chosen is None:
            return False
        topic, _ = chosen
        if topic.compacted:
            return False
        if "retention.bytes" in configs or "retention.ms" in configs:
            topic.limited = True
        if not topic.tiered:
            configs = {key: value for key, value in configs.items() if key.startswith("retention")}
        if not configs:
            return False
        self._note(f"topic {topic.name} gets {configs}")
        await self._workload.client.configure(self._workload.some_broker(), TOPIC_RESOURCE, topic.name, configs)
        return True

    async def _change_retention(self) -> bool:
        random = self._random
        configs: list[dict[str, str]] = [
            {"local.retention.bytes": random.choice(("1", "800", "3000"))},
            {"retention.bytes": random.choice(("3000", "6000", "-1"))},
            {"retention.ms": random.choice(("3000", "10000", "-1"))},
        ]
        return await self._configure_topic(random.choice(configs))

    async def _switch_copy(self) -> bool:
        disabled = self._random.random() < 0.5
        return await self._configure_topic({"remote.log.copy.disable": str(disabled).lower()})

    async def _switch_last_tiered(self) -> bool:
        node = self._random.choice((None, *BROKERS))
        value = self._random.choice(("true", "false"))
        self._note(f"{LAST_TIERED}={value} on {'all brokers' if node is None else f'broker {node}'}")
        ask = self._workload.some_broker() if node is None else node
        await self._workload.client.configure(ask, BROKER_RESOURCE, "" if node is None else str(node),
                                              {LAST_TIERED: value})  # fmt: skip
        return True

    async def _delete_records(self) -> bool:
        chosen = self._workload.some_partition()
        if chosen is None:
            return False
        topic, index = chosen
        if topic.compacted:
            return False
        history = topic.partitions[index]
        end = max(history.acknowledged, default=0)
        if end <= history.log_start:
            return False
        offset = self._random.randint(history.log_start, min(end, history.log_start + 12))
        history.deleted_to = max(history.deleted_to, offset)
        self._note(f"records of {topic.name}-{index} below {offset} are deleted")
        await self._workload.client.delete_records(self._workload.leader(topic, index), topic.name, index, offset)
        return True

    async def restore_settings(self) -> None:
        """What would keep a run from its end is as at the beginning."""
        for topic in self._world.history.living:
            if topic.tiered:
                await self._insist(topic.name, {"remote.log.copy.disable": "false"})

    async def _insist(self, topic: str, configs: dict[str, str]) -> None:
        for _ in range(100):
            try:
                await self._workload.client.configure(self._workload.some_broker(), TOPIC_RESOURCE, topic, configs)
                return
            except KafkaError:
                await asyncio.sleep(0.3)
        raise AssertionError(f"the settings of {topic} could not be changed")
