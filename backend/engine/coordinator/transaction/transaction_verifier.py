"""Asks the coordinator of a transaction whether a producer may write to partitions here, or has it add them (KIP-890).

Kafka: `AddPartitionsToTxnManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.coordinator.group.group_records import coordinator_partition
from backend.engine.coordinator.request_batches import RequestBatches
from backend.engine.coordinator.transaction.transaction_markers import SendToBroker
from backend.engine.coordinator.transaction.transaction_records import TRANSACTIONS_TOPIC
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.engine.ports import Clock, tasks
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

ADD_PARTITIONS_VERSION: Final = 5
SEND_TIMEOUT_MS: Final = 30_000
# add.partitions.to.txn.retry.backoff.ms and .max.ms of Kafka: the end of the transaction before is often still under
# way when the next one begins.
RETRY_PAUSE_MS: Final = 20
RETRY_MS: Final = 100

_TransactionRequest = m.AddPartitionsToTxnRequest.Transactions
VerificationCodes = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """May the producer write here? With `add` the partitions become part of its transaction."""

    transactional_id: str
    producer: Producer
    partitions: tuple[TopicPartition, ...]
    add: bool


class TransactionVerifier:
    """Questions of this broker as the leader of partitions."""

    def __init__(self, clock: Clock, send: SendToBroker, image: Callable[[], MetadataImage]) -> None:
        self._clock = clock
        self._send_to_broker = send
        self._image = image
        self._batches: RequestBatches[VerificationRequest, VerificationCodes] = RequestBatches(
            self._send, name="transaction checks"
        )

    async def ask(self, verification: VerificationRequest) -> VerificationCodes:
        """A code for each partition as the coordinator gave it, or as it could not be asked."""
        until_ms = self._clock.monotonic_ms() + RETRY_MS
        while True:
            codes = await self._ask_once(verification)
            busy = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if not busy or not verification.add or self._clock.monotonic_ms() + RETRY_PAUSE_MS > until_ms:
                return codes
            await tasks.sleep_ms(RETRY_PAUSE_MS)

    async def _ask_once(self, verification: VerificationRequest) -> VerificationCodes:
        coordinator = self._coordinator(verification.transactional_id)
        if coordinator is None:
            return dict.fromkeys(verification.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            return await self._batches.ask(coordinator, verification)
        except (KafkaError, DecodeError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
            return dict.fromkeys(verification.partitions, code)

    def _coordinator(self, transactional_id: str) -> int | None:
        topic = self._image().topic(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        partition = topic.partitions.get(coordinator_partition(transactional_id, len(topic.partitions)))
        return None if partition is None or partition.leader < 0 else partition.leader

    async def _send(self, broker_id: int, verifications: Sequence[VerificationRequest]) -> Sequence[VerificationCodes]:
        request = m.AddPartitionsToTxnRequest(
            transactions=[_transaction_request(verification) for verification in verifications]
        )
        response = await self._send_to_broker(broker_id, request, ADD_PARTITIONS_VERSION, timeout_ms=SEND_TIMEOUT_MS)
        if not isinstance(response, m.AddPartitionsToTxnResponse):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id} answered something else")
        return [
            {
                TopicPartition(topic.name, result.partition_index): ErrorCode(result.partition_error_code)
                for topic in row.topic_results
                for result in topic.results_by_partition
            }
            for row in response.results_by_transaction
        ]


def _transaction_request(verification: VerificationRequest) -> _TransactionRequest:
    return _TransactionRequest(
        transactional_id=verification.transactional_id,
        producer_id=verification.producer.producer_id,
        producer_epoch=verification.producer.epoch,
        verify_only=not verification.add,
        topics=[
            _TransactionRequest.Topics(name=name, partitions=indexes)
            for name, indexes in by_topic(verification.partitions)
        ],
    )


def by_topic(partitions: Collection[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Partition indexes under their topics."""
    indexes: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        indexes.setdefault(partition.topic, []).append(partition.partition)
    return list(indexes.items())
