"""The broker's event sink: state changes as JSON records of `__ebbline_events` (see `protocol/events`).

Reporting never waits: events queue here and one task appends them in batches to the topic's leader. While no broker
takes them the oldest are dropped and counted, because a picture of now is worth more than one of then.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.net.internal_topic import ensure_topic
from backend.engine.net.topic_producer import TopicProducer
from backend.engine.ports import Ports, tasks
from backend.protocol import events
from backend.protocol.errors import DecodeError, EncodeError, KafkaError
from backend.protocol.record_batches.record_batch import RecordData

if TYPE_CHECKING:
    from backend.engine.controller.metadata.metadata_cache import MetadataCache

EVENTS_TOPIC: Final = "__ebbline_events"
EVENTS_PARTITION: Final = 0
EVENTS_TOPIC_CONFIGS: Final = {"cleanup.policy": "delete", "retention.ms": str(24 * 3_600_000)}
# About 300 bytes an event: 3 MB of a broker that cannot publish.
QUEUE_MAX: Final = 10_000
# 150 kB, far below max.message.bytes.
BATCH_EVENTS_MAX: Final = 500
# Events of one moment (a leadership change of many partitions) travel together.
LINGER_MS: Final = 20
RETRY_MS: Final = 1000

_log = logging.getLogger(__name__)


class EventPublisher:
    """Implements `common.event_sink.EventSink`."""

    def __init__(
        self,
        ports: Ports,
        broker_id: int,
        metadata: MetadataCache,
        channel: ControllerChannel,
        producer: TopicProducer,
        *,
        replication_factor: int,
    ) -> None:
        self._ports = ports
        self._broker_id = broker_id
        self._metadata = metadata
        self._channel = channel
        self._producer = producer
        self._replication_factor = replication_factor
        self._queue: deque[RecordData] = deque(maxlen=QUEUE_MAX)
        self._queued = tasks.Event()
        self.dropped = 0
        self.published = 0

    def emit(self, type: str, *, topic: str, topic_id: bytes, partition: int, **detail: Any) -> None:
        """Queues one event; never waits and never fails."""
        now_ms = self._ports.clock.time_ms()
        partition_fields: dict[str, Any] = {"topic": topic, "topic_id": topic_id, "partition": partition}
        try:
            event = events.make(type, broker=self._broker_id, at_ms=now_ms, **partition_fields, **detail)
            record = RecordData(now_ms, events.key(event), events.encode(event))
        except EncodeError as error:
            self.dropped += 1
            _log.error("Broker %d cannot report an event of %s-%d: %s", self._broker_id, topic, partition, error)
            return
        if len(self._queue) == QUEUE_MAX:
            self.dropped += 1
        self._queue.append(record)
        self._queued.set()

    async def run(self) -> None:
        """Publishes until it is cancelled."""
        await self._create_topic()
        while True:
            await self._queued.wait()
            await tasks.sleep_ms(LINGER_MS)
            await self._publish_batch()
            if not self._queue:
                self._queued.clear()

    async def flush(self, timeout_ms: float) -> None:
        """Publishes what is queued before a stop, within the time."""
        try:
            while self._queue and self._metadata.image.topic(EVENTS_TOPIC) is not None:
                await tasks.wait_for(self._publish_batch(), timeout_ms)
        except tasks.Timeout:
            _log.info("Broker %d stops with %d events unpublished", self._broker_id, len(self._queue))

    async def _create_topic(self) -> None:
        last_error = ""
        while True:
            try:
                await ensure_topic(
                    self._channel,
                    self._metadata,
                    EVENTS_TOPIC,
                    partitions=1,
                    replication_factor=self._replication_factor,
                    configs=EVENTS_TOPIC_CONFIGS,
                )
                return
            except KafkaError as error:
                # Expected while the other brokers of a new cluster have not registered yet, and for ever where there
                # are fewer than it has replicas: logged once.
                if error.message != last_error:
                    last_error = error.message
                    _log.info("Broker %d cannot create %s yet: %s", self._broker_id, EVENTS_TOPIC, last_error)
                await tasks.sleep_ms(RETRY_MS)

    async def _publish_batch(self) -> None:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_EVENTS_MAX))]
        if not batch:
            return
        try:
            await self._producer.append(EVENTS_PARTITION, batch)
            self.published += len(batch)
        except (KafkaError, DecodeError) as error:
            self.dropped += len(batch)
            _log.warning("Broker %d dropped %d events: %s", self._broker_id, len(batch), error)
