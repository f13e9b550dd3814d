"""Appends records to partitions of an internal topic of the own cluster, as an idempotent producer (KIP-98)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from backend.engine.net.cluster_client import ClusterClient
from backend.engine.ports import Ports, tasks
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError, error_code
from backend.protocol.record_batches.record_batch import RecordData, build_batch

PRODUCE_VERSION: Final = 12  # the newest that names topics instead of giving their ids
ACKS_ALL: Final = -1
REQUEST_TIMEOUT_MS: Final = 30_000
# Kafka's delivery.timeout.ms, retry.backoff.ms and retry.backoff.max.ms.
DELIVERY_TIMEOUT_MS: Final = 120_000
RETRY_PAUSE_MS: Final = 100.0
RETRY_PAUSE_MS_MAX: Final = 1000.0
# The leader does not know our sequence any more: only a new producer id goes on without a gap.
_NEW_PRODUCER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)

ProducerIds = Callable[[], Awaitable[int]]


@dataclass(slots=True)
class _Partition:
    """Sequence numbers of one partition; one request at a time keeps them in order."""

    lock: tasks.Lock = field(default_factory=tasks.Lock)
    producer_id: int = -1
    next_sequence: int = 0


class TopicProducer:
    """acks=all to the leaders of one topic. ``new_producer_id`` asks for a fresh id (InitProducerId)."""

    def __init__(
        self,
        ports: Ports,
        client: ClusterClient,
        topic: str,
        new_producer_id: ProducerIds,
        *,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._ports = ports
        self._client = client
        self._topic = topic
        self._new_producer_id = new_producer_id
        self._partitions: dict[int, _Partition] = {}

    async def append(
        self, partition: int, records: Sequence[RecordData], *, timeout_ms: float = DELIVERY_TIMEOUT_MS
    ) -> int:
        """Offset of the first record, once every in-sync replica has all of them.

        Retries what may succeed later until the time is over, then raises the last KafkaError.
        """
        state = self._partitions.setdefault(partition, _Partition())
        deadline_ms = self._ports.clock.monotonic_ms() + timeout_ms
        async with state.lock:
            try:
                offset = await self._append_until(deadline_ms, state, partition, records)
            except BaseException:
                # They may be in the log, or get there yet: the next records must not take their sequence, or the leader
                # would answer them as a repetition and drop them. Cancelling is such a case too.
                state.producer_id = -1
                raise
            state.next_sequence += len(records)
            return offset

    async def _append_until(
        self, deadline_ms: float, state: _Partition, partition: int, records: Sequence[RecordData]
    ) -> int:
        pause_ms = RETRY_PAUSE_MS
        while True:
            try:
                return await self._append_once(state, partition, records)
            except KafkaError as error:
                if error.code in _NEW_PRODUCER:
                    state.producer_id = -1
                elif not _may_retry(error):
                    raise
                if self._ports.clock.monotonic_ms() + pause_ms > deadline_ms:
                    raise
                await tasks.sleep_ms(pause_ms * self._ports.random.uniform(0.8, 1.2))
                pause_ms = min(pause_ms * 2, RETRY_PAUSE_MS_MAX)

    async def _append_once(self, state: _Partition, partition: int, records: Sequence[RecordData]) -> int:
        if state.producer_id < 0:
            state.producer_id, state.next_sequence = await self._new_producer_id(), 0
        batch = build_batch(records, producer_id=state.producer_id, producer_epoch=0, base_sequence=state.next_sequence)
        topic_data = m.ProduceRequest.TopicData
        request = m.ProduceRequest(
            transactional_id=None,
            acks=ACKS_ALL,
            timeout_ms=self._request_timeout_ms,
            topic_data=[
                topic_data(name=self._topic, partition_data=[topic_data.PartitionData(index=partition, records=batch)])
            ],
        )
        response = cast(
            m.ProduceResponse,
            await self._client.send_to_leader(
                self._topic, partition, request, PRODUCE_VERSION, timeout_ms=self._request_timeout_ms + 1000
            ),
        )
        row = response.responses[0].partition_responses[0]
        if row.error_code != ErrorCode.NONE:
            code = error_code(row.error_code)
            raise KafkaError(code, f"Appending to {self._topic}-{partition} failed: {row.error_message or code.text}")
        return row.base_offset


def _may_retry(error: KafkaError) -> bool:
    return error.retriable or error.code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)
