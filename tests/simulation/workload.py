"""Producers and consumers: they live through every fault, and remember their responses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.tiering.ids import TopicPartition
from tests.simulation.checkers.checker import Checker
from tests.simulation.client import Client, Read
from tests.simulation.history import PartitionHistory, TopicHistory
from tests.simulation.world import BROKERS

if TYPE_CHECKING:
    from tests.simulation.world import World

# Batches that fill a segment: time index entries of 12 bytes, of which one stays free and the first batch has none.
BATCHES_PER_SEGMENT: Final = 4
READ_ALL_TRIES: Final = 40
# Batches that a producer sends one behind the other; five may be under way (max.in.flight.requests.per.connection).
BURST: Final = (1, 2, 5)
KEYS: Final = 5
# None, none, gzip, snappy, lz4, zstd.
COMPRESSIONS: Final = (0, 0, 1, 2, 3, 4)
# ListOffsets: latest, earliest, maximum timestamp, earliest local, last tiered, earliest pending upload.
SENTINELS: Final = (-1, -2, -3, -4, -5, -6)


@dataclass(slots=True)
class _Idempotent:
    """A producer's identity and its next sequence in each partition."""

    producer_id: int
    epoch: int
    sequences: dict[tuple[bytes, int], int]


def topic_configs(random: Random, *, tiered: bool, unclean: bool, compacted: bool) -> dict[str, str]:
    """Small segments, so that a few seconds fill many."""
    configs = {
        "segment.index.bytes": str(12 * BATCHES_PER_SEGMENT),
        "index.interval.bytes": "1",
        "min.insync.replicas": "1" if unclean else "2",
        "retention.ms": "-1",
        "compression.type": random.choice(("producer", "producer", "gzip", "lz4", "zstd", "uncompressed")),
        "message.timestamp.type": random.choice(("CreateTime", "CreateTime", "LogAppendTime")),
    }
    if random.random() < 0.2:
        configs |= {"flush.messages": "1", "segment.ms": "1500"}
    elif random.random() < 0.2:
        configs |= {"flush.ms": "500", "file.delete.delay.ms": "200"}
    if compacted:
        configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1000"}
        configs |= random.choice(({}, {"min.compaction.lag.ms": "500"}, {"max.compaction.lag.ms": "1000"}))
        configs["cleanup.policy"] = random.choice(("compact", "compact,delete"))
    if unclean:
        configs["unclean.leader.election.enable"] = "true"
    if tiered:
        configs["remote.storage.enable"] = "true"
        configs["local.retention.bytes"] = str(random.choice((1, 400, 1500)))
    return configs


class Workload:
    """The clients of one run."""

    def __init__(self, world: World, checkers: Sequence[Checker], *, everywhere: bool = False) -> None:
        """`everywhere`: no topic has fewer replicas than there are brokers."""
        self._world = world
        self._everywhere = everywhere
        self._checkers = checkers
        self._random = world.new_random("workload")
        self.client = Client(world)
        self.stopping = False
        self._value = 0

    # Topics

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        tiered: bool,
        unclean: bool = False,
        compacted: bool = False,
        leader: int | None = None,
    ) -> None:
        """A new topic, replicated on all brokers but sometimes one; `leader` is to lead it. Raises KafkaError."""
        random = self._random
        assignments = {}
        for index in range(partitions):
            replicas = random.sample(BROKERS, 3 if self._everywhere or random.random() < 0.6 or unclean else 2)
            if leader is not None:
                replicas = [leader, *(node for node in BROKERS if node != leader)]
            assignments[index] = replicas
        configs = topic_configs(random, tiered=tiered, unclean=unclean, compacted=compacted)
        await self.client.create_topic(self.some_broker(), name, assignments, configs)
        for _ in range(100):
            image = self._world.image
            topic_id = None if image is None else image.topic_ids.get(name)
            if topic_id is not None:
                break
            await asyncio.sleep(0.05)
        else:
            return
        self._world.history.topics[name] = TopicHistory(
            name,
            topic_id,
            {index: PartitionHistory() for index in range(partitions)},
            unclean,
            tiered,
            compacted,
            may_tier=tiered,
            broker_stamps=configs["message.timestamp.type"] == "LogAppendTime",
        )
        self._world.trace.note(
            f"topic {name} is there: {assignments}, tiered {tiered}, unclean {unclean}, compacted {compacted}"
        )

    def some_broker(self) -> int:
        up = [node for node in BROKERS if self._world.machines[node].up]
        return self._random.choice(up or BROKERS)

    def leader(self, topic: TopicHistory, index: int) -> int:
        """The leader, as a client with fresh metadata knows it; sometimes a stale client asks another broker."""
        registration = self._world.registration(TopicPartition(topic.name, index))
        if registration is None or registration.leader < 0 or self._random.random() < 0.03:
            return self.some_broker()
        return registration.leader

    def some_partition(self) -> tuple[TopicHistory, int] | None:
        topics = self._world.history.living
        if not topics:
            return None
        topic = self._random.choice(topics)
        return topic, self._random.choice(list(topic.partitions))

    # Producing

    async def produce_on(self, pause_ms: tuple[float, float], *, acks_one: float) -> None:
        """One producer, until the run stops; that part of its batches is sent with acks=1, which waits for nobody."""
        idempotent = await self._identity() if self._random.random() < 0.5 else None
        while not self.stopping:
            chosen = self.some_partition()
            if (
                chosen is not None
                and not await self.produce_some(*chosen, acks_one, idempotent)
                and idempotent is not None
            ):
                # As a client that lost track of its sequences: it begins again under another id.
                idempotent = await self._identity()
            await asyncio.sleep(self._random.uniform(*pause_ms) / 1000)

    async def _identity(self) -> _Idempotent | None:
        try:
            return _Idempotent(*await self.client.producer_id(self.some_broker()), {})
        except KafkaError:
            return None

    async def produce_some(
        self, topic: TopicHistory, index: int, acks_one: float, idempotent: _Idempotent | None
    ) -> bool:
        """Some batches, the next sent before the one before is answered; whether all are known to be in the log."""
        count = self._random.choice(BURST)
        batches = [self._produce_one(topic, index, acks_one, idempotent) for _ in range(count)]
        return all(await asyncio.gather(*batches))

    async def fill(self, topic: TopicHistory, index: int, batches: int) -> None:
        """A past: so many batches at once, as far as the leader takes them."""
        await asyncio.gather(*(self._produce_one(topic, index, 0.0, None) for _ in range(batches)))

    async def _produce_one(
        self, topic: TopicHistory, index: int, acks_one: float, idempotent: _Idempotent | None
    ) -> bool:
        """One batch; whether it is known to be in the log."""
        values = self._values()
        now_ms = self._world.client.ports.clock.time_ms()
        key = (topic.topic_id, index)
        records = build_batch(
            [RecordData(now_ms, self._key(topic), None if self._is_delete(topic) else value) for value in values],
            producer_id=-1 if idempotent is None else idempotent.producer_id,
            producer_epoch=-1 if idempotent is None else idempotent.epoch,
            base_sequence=-1 if idempotent is None else idempotent.sequences.get(key, 0),
            compression=self._random.choice(COMPRESSIONS),
        )
        if idempotent is not None:
            # The next batch goes out before this one is answered.
            idempotent.sequences[key] = idempotent.sequences.get(key, 0) + len(values)
        acks = 1 if self._random.random() < acks_one else -1
        try:
            base = await self.client.produce(self.leader(topic, index), topic.topic_id, index, records, acks=acks)
        except KafkaError:
            return False
        if acks == -1:
            self.remember(topic, index, base, values)
        return True

    # Transactions

    async def transact_on(self, pause_ms: tuple[float, float]) -> None:
        """A transactional producer, until the run stops: some batches, then a commit or an abort; or it walks away."""
        while not self.stopping:
            chosen = self.some_partition()
            if chosen is not None:
                try:
                    await self._transact(*chosen)
                except KafkaError:
                    await asyncio.sleep(0.3)
            await asyncio.sleep(self._random.uniform(*pause_ms) / 1000)

    async def _transact(self, topic: TopicHistory, index: int) -> None:
        random, client, name = self._random, self.client, "transactional"
        coordinator = await client.coordinator(self.some_broker(), name)
        producer = await client.producer_id(coordinator, name)
        if random.random() < 0.7:
            await client.begin(coordinator, name, producer, topic.name, index)
        sequence = 0
        for _ in range(random.randint(1, 3)):
            batches = []
            for _ in range(random.choice((1, 1, 3))):
                values = self._values()
                batches.append(self._produce_part(topic, index, producer, sequence, values))
                sequence += len(values)
            await asyncio.gather(*batches)
            await asyncio.sleep(random.uniform(0.005, 0.1))
        if random.random() < 0.9:
            await client.end(coordinator, name, producer, commit=random.random() < 0.6)

    async def _produce_part(
        self, topic: TopicHistory, index: int, producer: tuple[int, int], sequence: int, values: Sequence[bytes]
    ) -> None:
        """One batch of a transaction. Raises KafkaError."""
        now_ms = self._world.client.ports.clock.time_ms()
        records = build_batch(
            [RecordData(now_ms, self._key(topic), value) for value in values],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        leader = self.leader(topic, index)
        base = await self.client.produce(leader, topic.topic_id, index, records, transactional_id="transactional")
        self.remember(topic, index, base, values)

    def _values(self) -> list[bytes]:
        self._value += 1
        return [b"%d.%d" % (self._value, number) for number in range(self._random.randint(1, 4))]

    def remember(self, topic: TopicHistory, index: int, base: int, values: Sequence[bytes]) -> None:
        """These records were acknowledged to a producer."""
        topic.partitions[index].acknowledged.update(enumerate(values, base))
        self._world.history.acknowledged += len(values)

    def _key(self, topic: TopicHistory) -> bytes | None:
        return b"key %d" % self._random.randrange(KEYS) if topic.compacted else None

    def _is_delete(self, topic: TopicHistory) -> bool:
        return topic.compacted and self._random.random() < 0.1

    # Consuming

    async def consume_on(self, pause_ms: tuple[float, float]) -> None:
        """One consumer that reads here and there, until the run stops."""
        while not self.stopping:
            chosen = self.some_partition()
            if chosen is not None:
                await self.read_some(*chosen)
            await asyncio.sleep(self._random.uniform(*pause_ms) / 1000)

    async def read_some(self, topic: TopicHistory, index: int) -> None:
        history = topic.partitions[index]
        node = self.leader(topic, index)
        replica = self._world.replica(node, TopicPartition(topic.name, index))
        if replica is None:
            return
        end = max(replica.log.high_watermark, max(history.acknowledged, default=0))
        local = replica.log.local_log_start_offset
        if self._random.random() < 0.6 and local > history.log_start:
            # Records that only the remote tier has.
            end = local - 1
        offset = self._random.randint(history.log_start, max(history.log_start, end))
        try:
            await self.read(topic, index, node, offset)
            if self._random.random() < 0.4:
                now_ms = self._world.client.ports.clock.time_ms()
                requested = self._random.choice(
                    (*SENTINELS, *(now_ms - self._random.randint(0, 6_000) for _ in range(4)))
                )
                await self.client.list_offset(node, topic.name, index, requested)
        except KafkaError:
            return

    async def read(self, topic: TopicHistory, index: int, node: int, offset: int) -> Read:
        """The broker's records at an offset; all checkers see the response. Raises KafkaError."""
        replica = self._world.replica(node, TopicPartition(topic.name, index))
        epoch = -1 if replica is None else replica.leader_epoch
        answer = replace(
            await self.client.fetch(
                node,
                topic.topic_id,
                index,
                offset,
                max_bytes=1500,
                rack="" if self.stopping else self._random.choice(("", "", "rack 1", "rack 2", "rack 3")),
                wait_ms=0 if self.stopping else self._random.choice((0, 0, 40)),
                committed=not self.stopping and self._random.random() < 0.3,
            ),
            leader_epoch_before=epoch,
        )
        if answer.preferred_replica >= 0:
            # The replica that is nearer, as a consumer asks it from now on.
            answer = await self.client.fetch(answer.preferred_replica, topic.topic_id, index, offset, max_bytes=1500)
            node = -1
        if answer.error is ErrorCode.NONE:
            self._world.history.reads += 1
            if topic.name in self._world.history.topics and not topic.deleting:
                for checker in self._checkers:
                    checker.read(topic, index, node, offset, answer)
        else:
            raise KafkaError(answer.error)
        return answer

    async def read_all(self, topic: TopicHistory, index: int, values: dict[int, bytes]) -> tuple[int, int]:
        """Everything of a partition through its leader, in the end: (log start, high watermark).

        Retention goes on meanwhile: what it takes is not asked for again.
        """
        at = TopicPartition(topic.name, index)
        offset = 0
        for _ in range(READ_ALL_TRIES):
            registration = self._world.registration(at)
            replica = None if registration is None else self._world.replica(registration.leader, at)
            assert replica is not None, f"{at} has no leader in the end"
            start, end = replica.log.log_start_offset, replica.log.high_watermark
            offset = max(offset, start)
            try:
                while offset < end:
                    answer = await self.read(topic, index, self.leader(topic, index), offset)
                    values.update({record[0]: record[2] for record in answer.records})
                    if answer.next_offset <= offset:
                        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"nothing at {offset} below {end}")
                    offset = answer.next_offset
                return replica.log.log_start_offset, end
            except KafkaError:
                await asyncio.sleep(0.3)
        raise AssertionError(f"{at} cannot be read at offset {offset}, below {end}")
