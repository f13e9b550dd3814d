"""The work of operators while a run goes on: moves, elections, topics that come and go, settings, deleted records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Final

from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition
from tests.simulation.client import BROKER_RESOURCE, TOPIC_RESOURCE
from tests.simulation.workload import Workload
from tests.simulation.world import BROKERS, LOG_DIRS

if TYPE_CHECKING:
    from tests.simulation.world import World

TOPICS_MAX: Final = 3
LAST_TIERED: Final = "follower.fetch.last.tiered.offset.enable"
COPY_RATE: Final = "remote.log.manager.copy.max.bytes.per.second"
FETCH_RATE: Final = "remote.log.manager.fetch.max.bytes.per.second"
REPLICATION_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
# Settings that may change at any time, and values for them.
RESIZED: Final[dict[str, tuple[str, ...]]] = {
    "remote.log.index.file.cache.total.size.bytes": ("150", "600", "1048576"),
    "remote.log.reader.threads": ("1", "2", "6"),
    "remote.log.manager.copier.thread.pool.size": ("1", "2", "6"),
    "remote.log.manager.expiration.thread.pool.size": ("6", "15"),
    "remote.fetch.max.wait.ms": ("5", "400"),
    "remote.list.offsets.request.timeout.ms": ("20", "30000"),
    "log.cleaner.threads": ("1", "2"),
    "log.cleaner.io.max.bytes.per.second": ("20000", "1000000000"),
    "num.replica.fetchers": ("1", "2"),
}
CHANGED: Final[dict[str, tuple[str, ...]]] = {
    "compression.type": ("producer", "zstd", "lz4"),
    "segment.ms": ("1000", "604800000"),
    "segment.jitter.ms": ("0", "300"),
    "flush.messages": ("1", "9223372036854775807"),
    "max.message.bytes": ("300", "1048588"),
    "message.timestamp.before.max.ms": ("500", "9223372036854775807"),
    "index.interval.bytes": ("1", "4096"),
    "file.delete.delay.ms": ("0", "1000"),
}
NO_BOUND: Final = str(2**63 - 1)
# Longer than a broker tries to reach the controller with a request.
FORWARDED_S: Final = 5.0


class Operators:
    """One action at a time, drawn from the seed; each tells whether it did anything."""

    def __init__(self, world: World, workload: Workload, random: Random, in_the_dark: Callable[[], bool]) -> None:
        self._world = world
        self._workload = workload
        self._random = random
        self._in_the_dark = in_the_dark
        self._next_topic = 0
        # Whether anybody asked for what would keep a run from its end: slow brokers, and topics that are not copied.
        self._throttled: set[str] = set()
        # Whether a change of settings may be carried out or not.
        self._unanswered = False
        self._copy_switched: set[str] = set()
        # Kind → (weight, action).
        self.kinds: dict[str, tuple[int, Callable[[], Awaitable[bool]]]] = {
            "reassignment": (5, self._reassign),
            "election": (3, self._elect),
            "new topic": (2, self._new_topic),
            "topic deletion": (2, self._delete_topic),
            "retention": (3, self._change_retention),
            "copy switch": (2, self._switch_copy),
            "last tiered switch": (2, self._switch_last_tiered),
            "tiering switch": (2, self._switch_tiering),
            "delete records": (2, self._delete_records),
            "directory move": (2, self._move_directory),
            "throttle": (2, self._throttle),
            "broker setting": (2, self._set_brokers),
            "topic setting": (2, self._set_topic),
            "look": (2, self._look),
        }

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
        self._world.trace.note(f"{topic.name}-{index} is to be on {replicas}")
        await self._workload.client.reassign(self._workload.some_broker(), topic.name, index, replicas)
        return True

    async def _elect(self) -> bool:
        chosen = self._workload.some_partition()
        if chosen is None or self._in_the_dark():
            return False
        topic, index = chosen
        self._world.trace.note(f"the preferred replica of {topic.name}-{index} shall lead")
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
        self._world.trace.note(f"topic {topic.name} is deleted")
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
        if "remote.log.copy.disable" in configs:
            self._copy_switched.add(topic.name)
        self._world.trace.note(f"topic {topic.name} gets {configs}")
        await self._configure(self._workload.some_broker(), TOPIC_RESOURCE, topic.name, configs)
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
        self._world.trace.note(f"{LAST_TIERED}={value} on {'all brokers' if node is None else f'broker {node}'}")
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
        self._world.trace.note(f"records of {topic.name}-{index} below {offset} are deleted")
        await self._workload.client.delete_records(self._workload.leader(topic, index), topic.name, index, offset)
        return True

    async def _switch_tiering(self) -> bool:
        """Off with everything remote deleted (KIP-950), or on again."""
        chosen = self._workload.some_partition()
        if chosen is None or chosen[0].compacted or not chosen[0].may_tier:
            return False
        topic, _ = chosen
        # Records that were only remote are deleted, and the outcome is unknown when the response is lost.
        topic.limited = True
        if topic.tiered:
            configs = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        else:
            configs = {"remote.storage.enable": "true", "remote.log.copy.disable": "false"}
        topic.tiered = False
        self._world.trace.note(f"topic {topic.name} gets {configs}")
        await self._configure(self._workload.some_broker(), TOPIC_RESOURCE, topic.name, configs)
        return True

    async def _move_directory(self) -> bool:
        chosen = self._workload.some_partition()
        if chosen is None:
            return False
        (topic, index), node = chosen, self._workload.some_broker()
        path = self._random.choice((*LOG_DIRS, LOG_DIRS[1]))
        self._world.trace.note(f"the replica of {topic.name}-{index} on broker {node} moves to {path}")
        await self._workload.client.move_directory(node, topic.name, index, path)
        return True

    async def _throttle(self) -> bool:
        """Replication, or copies and reads of the remote tier, are slow for a while."""
        rate = str(self._random.choice((200, 1000, 5000)))
        if self._random.random() < 0.5:
            chosen = self._workload.some_partition()
            if chosen is None:
                return False
            replicas = self._random.choice(("*", ",".join(f"{chosen[1]}:{node}" for node in BROKERS)))
            await self._set(TOPIC_RESOURCE, chosen[0].name, dict.fromkeys(THROTTLED, replicas))
            for node in BROKERS:
                self._throttled.add(str(node))
                await self._set(BROKER_RESOURCE, str(node), dict.fromkeys(REPLICATION_RATES, rate))
        else:
            self._throttled.add("")
            await self._set(BROKER_RESOURCE, "", {COPY_RATE: rate, FETCH_RATE: rate})
        return True

    async def _set_brokers(self) -> bool:
        """Pools, caches and the cleaner become larger or smaller while they work."""
        name = self._random.choice(list(RESIZED))
        await self._set(BROKER_RESOURCE, "", {name: self._random.choice(RESIZED[name])})
        return True

    async def _set_topic(self) -> bool:
        chosen = self._workload.some_partition()
        if chosen is None:
            return False
        name = self._random.choice(list(CHANGED))
        await self._set(TOPIC_RESOURCE, chosen[0].name, {name: self._random.choice(CHANGED[name])})
        return True

    async def _look(self) -> bool:
        """The requests of tools: the place of every replica, and the producers of a partition."""
        client, node = self._workload.client, self._workload.some_broker()
        await client.describe_directories(node)
        chosen = self._workload.some_partition()
        if chosen is not None:
            await client.describe_producers(self._workload.leader(*chosen), chosen[0].name, chosen[1])
        return True

    async def _set(self, kind: int, name: str, configs: dict[str, str]) -> None:
        self._world.trace.note(f"{name or 'all brokers'} get {configs}")
        ask = int(name) if kind == BROKER_RESOURCE and name else self._workload.some_broker()
        await self._configure(ask, kind, name, configs)

    async def _configure(self, ask: int, kind: int, name: str, configs: dict[str, str]) -> None:
        answered = False
        try:
            await self._workload.client.configure(ask, kind, name, configs)
            answered = True
        except KafkaError as error:
            answered = error.code not in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)
            raise
        finally:
            # Also when the run has gone on without the answer.
            self._unanswered |= not answered

    async def restore_settings(self) -> None:
        """Settings that would keep a run from its end are reset to those of the beginning."""
        if self._unanswered:
            # A broker may still be at it: what it asks the controller for later would undo what follows.
            await asyncio.sleep(FORWARDED_S)
        for name in sorted(self._throttled):
            rates = REPLICATION_RATES if name else (COPY_RATE, FETCH_RATE)
            await self._insist(BROKER_RESOURCE, name, dict.fromkeys(rates, NO_BOUND))
        for topic in self._world.history.living:
            if topic.tiered and topic.name not in self._copy_switched:
                continue
            if topic.tiered:
                await self._insist(TOPIC_RESOURCE, topic.name, {"remote.log.copy.disable": "false"})
            elif topic.may_tier:
                configs = {"remote.storage.enable": "true", "remote.log.copy.disable": "false"}
                await self._insist(TOPIC_RESOURCE, topic.name, configs)
                topic.tiered = True

    async def _insist(self, kind: int, name: str, configs: dict[str, str]) -> None:
        for _ in range(100):
            try:
                await self._set(kind, name, configs)
                return
            except KafkaError:
                await asyncio.sleep(0.3)
        raise AssertionError(f"the settings of {name or 'all brokers'} could not be changed")
