"""A producer that does what none should, and a scraper of metrics: the engine refuses the one and answers the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC
from backend.protocol.errors import KafkaError
from backend.protocol.record_batches.record_batch import RecordData, build_batch
from backend.tiering.ids import TopicPartition
from tests.simulation.client import Client
from tests.simulation.history import TopicHistory

if TYPE_CHECKING:
    from tests.simulation.workload import Workload
    from tests.simulation.world import World

CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAGIC_AT: Final = 16
LAST_OFFSET_DELTA_AT: Final = 23
COUNT_AT: Final = 57
# More than message.timestamp.after.max.ms allows.
HOURS_MS: Final = 3 * 3_600_000

Spoil = Callable[[bytearray], bytearray]


def _with(at: int, data: bytes) -> Spoil:
    def spoil(batch: bytearray) -> bytearray:
        batch[at : at + len(data)] = data
        return batch

    return spoil


def _sealed(batch: bytearray) -> bytearray:
    """The batch with the checksum of what is in it."""
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(batch)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return batch


# Records that do not belong on the topic of remote log metadata, and are no records of it.
STRANGE: Final = (None, b"", b"odd", b"\x00", b"\x09\x00odd", b"\x00\x00" + bytes(40))
# Each way to spoil a good batch.
SPOILED: Final[Mapping[str, Spoil]] = {
    "another checksum": _with(CRC_AT, b"\x00\x00\x00\x01"),
    "an old magic": _with(MAGIC_AT, b"\x01"),
    "a future magic": _with(MAGIC_AT, b"\x7f"),
    "a base offset": _with(0, (5).to_bytes(8, "big")),
    "a size below the least": _with(8, (3).to_bytes(4, "big")),
    "more records than it has": _with(COUNT_AT, (9).to_bytes(4, "big")),
    "two batches": lambda batch: batch + batch,
    "half a batch": lambda batch: batch[: len(batch) // 2],
    "a few bytes": lambda batch: batch[:9],
    "nothing": lambda batch: bytearray(),
}


# More of these, which are sent when a run is over: draws from `SPOILED` stay the same for ever.
SPOILED_AT_LAST: Final[Mapping[str, Spoil]] = {
    "no size at all": _with(8, (1).to_bytes(4, "big")),
    "its size and nothing else": lambda batch: batch[:14],
    "fewer bytes than its records need": lambda batch: _sealed(
        _with(LAST_OFFSET_DELTA_AT, (899).to_bytes(4, "big"))(_with(COUNT_AT, (900).to_bytes(4, "big"))(batch))
    ),
}


class OddProducer:
    """Sends what must be refused, and sequences out of turn; AssertionError when it is taken."""

    def __init__(self, world: World, workload: Workload) -> None:
        self._world = world
        self._workload = workload
        self._random = world.new_random("odd producer")
        self._client: Client = workload.client

    async def produce_on(self, pause_ms: tuple[float, float]) -> None:
        """Until the run stops."""
        while not self._workload.stopping:
            chosen = self._workload.some_partition()
            if chosen is not None:
                act = self._random.choices((self._spoiled, self._out_of_turn, self._astray), (6, 3, 1))[0]
                try:
                    await act(*chosen)
                except KafkaError:
                    await asyncio.sleep(0.1)
            await asyncio.sleep(self._random.uniform(*pause_ms) / 1000)

    async def _spoiled(self, topic: TopicHistory, index: int) -> None:
        wrong = self._wrong(topic)
        what = self._random.choice((*SPOILED, *wrong))
        batch = wrong[what] if what in wrong else SPOILED[what](self._batch())
        await self._refused(topic, index, batch, f"a batch with {what}")

    async def say_the_last(self) -> None:
        """All that is always refused, once each, when everything has recovered and nothing else goes on."""
        for topic in self._world.history.living:
            registration = self._world.registration(TopicPartition(topic.name, 0))
            assert registration is not None
            leader = registration.leader
            spoiled = {what: spoil(self._batch()) for what, spoil in {**SPOILED, **SPOILED_AT_LAST}.items()}
            for what, batch in (spoiled | self._wrong(topic) | await self._of_an_older_epoch(topic, leader)).items():
                try:
                    base = await self._client.produce(leader, topic.topic_id, 0, batch)
                except KafkaError:
                    continue
                raise AssertionError(f"a batch with {what} was taken at offset {base} of {topic.name}-0")
            for offset in (-2, 1 << 40):
                try:
                    await self._client.delete_records(leader, topic.name, 0, offset)
                except KafkaError:
                    continue
                raise AssertionError(f"records of {topic.name}-0 were deleted up to {offset}")

    async def _of_an_older_epoch(self, topic: TopicHistory, leader: int) -> dict[str, bytearray]:
        """A batch whose producer has gone on to the next epoch."""
        producer_id, epoch = await self._client.producer_id(leader)

        def batch(epoch: int) -> bytearray:
            return self._batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=0)

        try:
            await self._client.produce(leader, topic.topic_id, 0, batch(epoch + 1))
        except KafkaError:
            # Refused for another reason, such as too few replicas in sync: then the older one would be, too.
            return {}
        return {"an older epoch": batch(epoch)}

    async def _astray(self, topic: TopicHistory, index: int) -> None:
        """A good batch of what is no remote log metadata on their topic: readers pass it by."""
        image, at = self._world.image, TopicPartition(METADATA_TOPIC, 0)
        registration = self._world.registration(at)
        if image is None or registration is None or registration.leader < 0:
            return
        now_ms = self._world.client.ports.clock.time_ms()
        values = self._random.sample(STRANGE, 2)
        batch = build_batch([RecordData(now_ms, None, value) for value in values])
        self._world.trace.note(f"{values} are produced to {at}")
        await self._client.produce(registration.leader, image.topic_ids[METADATA_TOPIC], 0, batch)

    def _wrong(self, topic: TopicHistory) -> dict[str, bytearray]:
        """Batches whose checksum is right."""
        now_ms = self._world.client.ports.clock.time_ms()
        record = RecordData(now_ms, b"key", b"odd")
        not_compressed = _sealed(_with(ATTRIBUTES_AT, b"\x00\x01")(build_batch([record])))
        too_many = _sealed(_with(COUNT_AT, (900).to_bytes(4, "big"))(build_batch([record])))
        batches = {
            "something else than gzip": not_compressed,
            "a count that is not its own": too_many,
            "a control marker": build_batch([record], control=True),
            "the broker's timestamps": build_batch([record], log_append_time=True),
            "too many bytes": build_batch([RecordData(now_ms, b"key", bytes(1_100_000))]),
            "a negative sequence": build_batch([record], producer_id=1, producer_epoch=0, base_sequence=-2),
        }
        if not topic.broker_stamps:
            batches["a time to come"] = build_batch([record, RecordData(now_ms + HOURS_MS, b"key", b"odd")])
        if topic.compacted:
            batches["no key"] = build_batch([RecordData(now_ms, None, b"odd")])
        return batches

    def _batch(self, *values: bytes, **identity: Any) -> bytearray:
        now_ms = self._world.client.ports.clock.time_ms()
        return build_batch([RecordData(now_ms, b"odd", value) for value in values or (b"odd",)], **identity)

    async def _refused(self, topic: TopicHistory, index: int, batch: bytearray, what: str) -> None:
        try:
            base = await self._client.produce(self._workload.leader(topic, index), topic.topic_id, index, batch)
        except KafkaError:
            return
        raise AssertionError(f"{what} was taken at offset {base} of {topic.name}-{index}")

    async def _out_of_turn(self, topic: TopicHistory, index: int) -> None:
        """A producer's first batch, the same again, one behind a gap, one of a new epoch, one of the old."""
        began_ms = self._world.loop.now_ms
        producer_id, epoch = await self._client.producer_id(self._workload.some_broker())

        def batch(sequence: int, epoch: int) -> bytearray:
            return self._batch(
                b"in turn %d %d" % (producer_id, sequence),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )

        async def produce(sequence: int, epoch: int) -> int:
            leader = self._workload.leader(topic, index)
            return await self._client.produce(leader, topic.topic_id, index, batch(sequence, epoch))

        first = await produce(0, epoch)
        self._workload.remember(topic, index, first, [b"in turn %d 0" % producer_id])
        again = await produce(0, epoch)
        if self._world.loop.now_ms - began_ms >= self._world.producers_expire_ms:
            # An answer may come so late that the leader has forgotten the producer.
            return
        # Where records may be lost or thinned out, so may what a leader knows of a producer.
        if topic.keeps_records and again != first:
            raise AssertionError(f"the batch at {first} of {topic.name}-{index} was taken again, at {again}")
        if not topic.keeps_records or topic.limited:
            return
        await self._refused(topic, index, batch(7, epoch), "a batch behind a gap")
        await self._refused(topic, index, batch(3, epoch + 1), "a new epoch's batch that is not its first")


async def scrape_on(world: World, pause_ms: tuple[float, float]) -> None:
    """Reads every metric of every broker, now and then, until the run stops."""
    random = world.new_random("scraper")
    while not world.workload.stopping:
        for broker in world.brokers().values():
            metrics = broker.services.metrics
            for pulled in (*metrics.gauges, *metrics.counters):
                pulled.read()
        await asyncio.sleep(random.uniform(*pause_ms) / 1000)
