"""A topic of the lab with one partition: create, fill, configure, move, look, delete. All over the Kafka protocol."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message, Producer

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.gateway_errors import BrokerUnavailable
from backend.control.gateway.kafka_client import REQUEST_TIMEOUT_S, Gateway, until_settled
from backend.control.gateway.requests.config_requests import TOPIC, ConfigChange, ConfigResource, alter_configs
from backend.control.gateway.requests.log_dir_requests import describe_log_dirs
from backend.control.gateway.requests.metadata_requests import PartitionMetadata, fetch_topic
from backend.control.gateway.requests.offset_requests import list_offsets
from backend.protocol import messages as m
from backend.protocol.config_enums import AlterConfigOp
from backend.protocol.errors import ErrorCode, KafkaError, error_for
from backend.tiering.ids import TopicPartition

T = TypeVar("T")
VALUE_BYTES: Final = 1_000
# In the log a record of a large batch takes this much: value, lengths, offset and time deltas.
RECORD_BYTES: Final = VALUE_BYTES + 10
POLL_S: Final = 0.2
# librdkafka's queue; the records in it are not in the log yet.
QUEUE_KBYTES: Final = 32_768
DELIVERY_TIMEOUT_S: Final = 60.0


class LabFailed(Exception):
    """A step of the lab did not succeed; one sentence for people."""


async def until(what: str, probe: Callable[[], Awaitable[T | None]], timeout_s: float, pause_s: float = POLL_S) -> T:
    """The first answer that is not None. Raises LabFailed when none comes; a moving leader is waited for."""
    deadline_s = time.monotonic() + timeout_s
    last = ""
    while time.monotonic() < deadline_s:
        try:
            result = await probe()
        except (KafkaError, BrokerUnavailable) as error:
            if isinstance(error, KafkaError) and not error.retriable:
                raise
            result, last = None, f" (last answer: {error})"
        if result is not None:
            return result
        await asyncio.sleep(pause_s)
    raise LabFailed(f"After {timeout_s:.0f} s this was still waited for: {what}{last}.")


class LabTopic:
    """One topic of one partition. Belongs to one event loop."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        self._gateway = gateway
        self.name = name
        self.partition = TopicPartition(name, 0)

    async def create(self, leader: int, config: Mapping[str, str], others: Sequence[int] = ()) -> None:
        """Creates it with a replica on `leader` and one on each of the `others`. Raises KafkaError, GatewayError."""
        topics = m.CreateTopicsRequest.Topics
        topic_request = topics(
            name=self.name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[topics.Assignments(partition_index=0, broker_ids=[leader, *others])],
            configs=[topics.Configs(name=name, value=value) for name, value in config.items()],
        )
        request = m.CreateTopicsRequest(topics=[topic_request], timeout_ms=round(REQUEST_TIMEOUT_S * 1000))
        response = await self._gateway.ask_any(request, m.CreateTopicsResponse, lane=Lane.ACT)
        for topic in response.topics:
            if topic.error_code:
                raise error_for(topic.error_code, topic.error_message)

        async def leads() -> bool | None:
            return (await self.view()).leader == leader or None

        await until(f"broker {leader} leads {self.name}", leads, REQUEST_TIMEOUT_S)

    async def delete(self) -> None:
        """Deletes it; one that is not there is fine. Raises KafkaError, GatewayError."""
        request = m.DeleteTopicsRequest(
            topics=[m.DeleteTopicsRequest.Topics(name=self.name)], timeout_ms=round(REQUEST_TIMEOUT_S * 1000)
        )

        async def once() -> None:
            response = await self._gateway.ask_any(request, m.DeleteTopicsResponse, at_least=6, lane=Lane.ACT)
            for topic in response.responses:
                if topic.error_code and topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise error_for(topic.error_code, topic.error_message)

        await until_settled(once, timeout_s=REQUEST_TIMEOUT_S)

    async def configure(self, **settings: str | None) -> None:
        """Sets settings (None: unsets); `_` stands for `.` in names. Raises KafkaError, GatewayError."""
        changes = [
            ConfigChange(name.replace("_", "."), AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
            for name, value in settings.items()
        ]
        await alter_configs(self._gateway, ConfigResource(TOPIC, self.name), changes)

    async def move(self, replicas: Sequence[int]) -> None:
        """Asks for these replicas (KIP-455). Raises KafkaError, GatewayError."""
        topics = m.AlterPartitionReassignmentsRequest.Topics
        topic_request = topics(
            name=self.name, partitions=[topics.Partitions(partition_index=0, replicas=list(replicas))]
        )
        request = m.AlterPartitionReassignmentsRequest(
            topics=[topic_request], timeout_ms=round(REQUEST_TIMEOUT_S * 1000)
        )
        response = await self._gateway.ask_any(request, m.AlterPartitionReassignmentsResponse, lane=Lane.ACT)
        codes = [(response.error_code, response.error_message)]
        codes += [(p.error_code, p.error_message) for topic in response.responses for p in topic.partitions]
        for code, message in codes:
            if code:
                raise error_for(code, message)

    async def view(self) -> PartitionMetadata:
        """Leader, replicas and ISR. Raises KafkaError, GatewayError."""
        [partition] = (await fetch_topic(self._gateway, self.name)).partitions
        return partition

    async def offset(self, node: int, timestamp: int) -> int | None:
        """A broker's report of its replica; None while it has none. Raises GatewayError."""
        listed_offsets = await list_offsets(self._gateway, node, timestamp, [self.partition])
        listed = listed_offsets.get(self.partition)
        return listed.offset if listed is not None and listed.error is ErrorCode.NONE else None

    async def size_bytes(self, node: int) -> int | None:
        """A replica's local log; None while the broker has none. Raises KafkaError, GatewayError."""
        replica = (await describe_log_dirs(self._gateway, node)).replicas.get(self.partition)
        return None if replica is None else replica.size_bytes

    async def fill(self, size_bytes: int, batch_bytes: int, progress: Callable[[int], None]) -> None:
        """Produces records of one size until the log has this many bytes more, as nearly as a batch allows.

        Raises LabFailed. `progress` is called with the bytes from time to time, on a thread of the client's.
        """
        stop = threading.Event()
        servers = ",".join(str(address) for address in self._gateway.bootstrap)
        work = asyncio.to_thread(_produce, servers, self.name, size_bytes, batch_bytes, progress, stop)
        try:
            await work
        finally:
            stop.set()


def _produce(
    servers: str, topic: str, size_bytes: int, batch_bytes: int, progress: Callable[[int], None], stop: threading.Event
) -> None:
    failures: list[ClientError] = []

    def delivered(error: ClientError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "client.id": "ebbline-lab",
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 50,
            "batch.size": batch_bytes,
            "message.timeout.ms": round(DELIVERY_TIMEOUT_S * 1000),
            "queue.buffering.max.kbytes": QUEUE_KBYTES,
            "log_level": 0,
        }
    )
    # Bytes that no compression makes smaller; a window over it is a new value.
    noise = os.urandom(2 * VALUE_BYTES)
    for number in range(size_bytes // RECORD_BYTES):
        at = number % VALUE_BYTES
        while not (stop.is_set() or failures):
            try:
                producer.produce(topic, noise[at : at + VALUE_BYTES], on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if stop.is_set() or failures:
            break
        if at == 0:
            producer.poll(0)
            progress((number - len(producer)) * RECORD_BYTES)
    if stop.is_set():
        producer.purge()
    left = producer.flush(DELIVERY_TIMEOUT_S)
    if not stop.is_set() and (failures or left):
        why = failures[0].str() if failures else f"{left} records were not acknowledged in time"
        raise LabFailed(f"Records for {topic} could not be produced: {why}.")
    progress(size_bytes)
