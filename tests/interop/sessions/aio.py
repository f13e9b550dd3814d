"""A session of aiokafka: records, a group that rebalances, transactions, administration."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.interop.sessions.transcript import Transcript, error_text

WAIT_S: Final = 60
T0_MS: Final = 700_000_000_000


def run(bootstrap: str) -> Transcript:
    """The whole session."""
    session = Session(bootstrap)
    asyncio.run(session.run())
    return session.transcript


class Session:
    """Topics and groups begin with `aio-`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.transcript = Transcript("aiokafka", bootstrap)
        self.record = self.transcript.record

    async def run(self) -> None:
        admin: Any = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        for new in (
            NewTopic("aio-a", 3, 3, topic_configs={"retention.ms": "-1"}),
            NewTopic("aio-tx", 1, 3),
            NewTopic("aio-a", 3, 3),
            NewTopic("aio/bad", 1, 1),
        ):
            answer = await admin.create_topics([new])
            self.record(f"create {new.name}", answer.topic_errors)
        self.record("delete unknown", (await admin.delete_topics(["aio-no"])).topic_error_codes)
        await self.records()
        await self.group(admin)
        await self.transactions()
        listed = await admin.list_consumer_groups()
        self.record("groups", sorted(group for group in listed if group[0].startswith("aio-")))
        await admin.close()

    async def records(self) -> None:
        for codec in (None, "gzip"):
            producer: Any = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap, compression_type=codec, enable_idempotence=True
            )
            await producer.start()
            rows = []
            for n in range(12):
                sent = await producer.send_and_wait(
                    "aio-a", f"{codec}-{n}".encode() * 9, b"k%d" % n, n % 3, T0_MS + n, [("h", b"\x00")]
                )
                rows.append((sent.partition, sent.offset, sent.log_start_offset))
            self.record(f"written {codec}", rows)
            await producer.stop()
        consumer: Any = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="none")
        partitions = [TopicPartition("aio-a", index) for index in range(3)]
        await consumer.start()
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        result = await self.read(consumer, 24)
        self.record(
            "records", sorted((r.partition, r.offset, r.timestamp, r.key, r.value[:8], r.headers) for r in result)
        )
        self.record("end", sorted((await consumer.end_offsets(partitions)).items()))
        for at in (T0_MS + 7, T0_MS + 1000):
            self.record(f"offsets for time +{at - T0_MS}",
                      sorted((await consumer.offsets_for_times(dict.fromkeys(partitions, at))).items()))  # fmt: skip
        consumer.seek(partitions[0], 10_000)
        try:
            await asyncio.wait_for(consumer.getone(partitions[0]), WAIT_S)
        except Exception as error:  # whatever the client makes of it
            self.record("past the end", error_text(error))
        await consumer.stop()

    async def read(self, consumer: Any, count: int) -> list[Any]:
        received: list[Any] = []
        async with asyncio.timeout(WAIT_S):
            while len(received) < count:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    received += records
        return received

    async def group(self, admin: Any) -> None:
        def member() -> Any:
            return AIOKafkaConsumer(
                "aio-a", bootstrap_servers=self.bootstrap, group_id="aio-group", auto_offset_reset="earliest",
                enable_auto_commit=False, heartbeat_interval_ms=500,
            )  # fmt: skip

        first = member()
        await first.start()
        self.record("read by one", len(await self.read(first, 24)))
        await first.commit()
        self.record("committed", [await first.committed(TopicPartition("aio-a", index)) for index in range(3)])
        second = member()
        await second.start()
        async with asyncio.timeout(WAIT_S):
            while not (len(first.assignment()) in (1, 2) and len(first.assignment()) + len(second.assignment()) == 3):
                await first.getmany(timeout_ms=200)
                await second.getmany(timeout_ms=200)
        self.record("shared", sorted(len(each.assignment()) for each in (first, second)))
        await second.stop()
        await first.stop()
        offsets = await admin.list_consumer_group_offsets("aio-group")
        self.record("offsets", sorted((key, value.offset) for key, value in offsets.items()))

    async def transactions(self) -> None:
        producer: Any = AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id="aio-tx")
        await producer.start()
        for number, commit in enumerate((True, False, True)):
            await producer.begin_transaction()
            for part in range(3):
                await producer.send_and_wait("aio-tx", b"%d-%d" % (number, part), partition=0)
            if commit:
                await producer.send_offsets_to_transaction({TopicPartition("aio-a", 0): number}, "aio-tx-group")
            await (producer.commit_transaction() if commit else producer.abort_transaction())
        await producer.stop()
        for isolation, count in (("read_committed", 6), ("read_uncommitted", 9)):
            consumer: Any = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap, isolation_level=isolation, group_id="aio-tx-group",
                enable_auto_commit=False,
            )  # fmt: skip
            await consumer.start()
            consumer.assign([TopicPartition("aio-tx", 0)])
            await consumer.seek_to_beginning()
            self.record(isolation, [(r.offset, r.value) for r in await self.read(consumer, count)])
            self.record("committed with it", await consumer.committed(TopicPartition("aio-a", 0)))
            await consumer.stop()
