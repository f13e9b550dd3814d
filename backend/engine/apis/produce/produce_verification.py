"""Before the first records of a transaction are appended its coordinator must know the partition (KIP-890).

A producer of Produce version 12 lets the leader add the partition; an older one has added it itself, which is verified.
Only the first batch of a transaction waits for this; the ones behind it on the same connection keep their order.
Kafka: `ReplicaManager.handleProduceAppend`, `UnifiedLog.maybeStartTransactionVerification`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Protocol

from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.engine.coordinator.transaction.transaction_verifier import TransactionVerifier, VerificationRequest
from backend.engine.log.producers.transaction_verification import VerificationStateEntry
from backend.engine.ports import Ports, tasks
from backend.engine.replica.partition import Partition
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import HEADER_BYTES, BatchHeader, parse_header
from backend.tiering.ids import TopicPartition

# Versions of Produce whose clients let the leader add partitions, and those that know TRANSACTION_ABORTABLE.
ADDED_BY_LEADER_SINCE: Final = 12
ABORTABLE_SINCE: Final = 11

UnconfirmedPartitions = Mapping[TopicPartition, KafkaError]
VerificationResult = m.ProduceResponse | None
# Errors that clients may not know how to retry become one that has them try again without new metadata.
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class FirstBatch(NamedTuple):
    """A batch that begins a transaction in a partition of this broker."""

    topic_partition: TopicPartition
    partition: Partition
    header: BatchHeader


class ProduceVerificationServices(Protocol):
    """The parts of the node that these functions use."""

    ports: Ports
    metadata: MetadataCache
    replica_manager: ReplicaManager
    transaction_verifier: TransactionVerifier


def first_batches(services: ProduceVerificationServices, request: m.ProduceRequest, *, by_id: bool) -> list[FirstBatch]:
    """The batches of a transactional request that must be confirmed, without those that are refused anyway."""
    batches = []
    for topic in request.topic_data:
        topic_image = services.metadata.image.topics.get(topic.topic_id) if by_id else None
        name = topic.name if topic_image is None else topic_image.name
        for part in topic.partition_data:
            partition = services.replica_manager.find(name, part.index)
            if not isinstance(partition, Partition) or not partition.is_leader:
                continue
            header = _transactional_header(part)
            if header is None:
                continue
            if not partition.log.producer_state.has_open_transaction(header.producer_id, header.producer_epoch):
                batches.append(FirstBatch(partition.topic_partition, partition, header))
    return batches


def _transactional_header(part: m.ProduceRequest.TopicData.PartitionData) -> BatchHeader | None:
    records = part.records
    if not isinstance(records, (bytes, bytearray, memoryview)) or len(records) < HEADER_BYTES:
        return None
    try:
        header = parse_header(records)
    except DecodeError:
        return None
    return header if header.is_transactional and header.producer_id >= 0 else None


async def confirm(
    services: ProduceVerificationServices, transactional_id: str, version: int, batches: list[FirstBatch]
) -> dict[TopicPartition, KafkaError]:
    """Has the batches' partitions confirmed; the errors of those that must not be appended now.

    The append must follow without a pause.
    """
    errors = {batch.topic_partition: error for batch in batches if (error := _stale_epoch(batch)) is not None}
    batches = [batch for batch in batches if batch.topic_partition not in errors]
    if not batches:
        return errors
    producers = {Producer(batch.header.producer_id, batch.header.producer_epoch) for batch in batches}
    if len(producers) > 1:
        refused = KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
        )
        return errors | {batch.topic_partition: refused for batch in batches}
    add = version >= ADDED_BY_LEADER_SINCE
    now_ms = services.ports.clock.time_ms()
    begun = [
        (batch, batch.partition.log.producer_state.verifications.begin(batch.header, bumps_epoch=add, now_ms=now_ms))
        for batch in batches
    ]
    partitions = tuple(batch.topic_partition for batch in batches)
    codes = await services.transaction_verifier.ask(
        VerificationRequest(transactional_id, producers.pop(), partitions, add)
    )
    for batch, verification in begun:
        error = _error(codes.get(batch.topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR), version)
        error = error or _ended_meanwhile(batch, verification)
        if error is not None:
            errors[batch.topic_partition] = error
    return errors


def _stale_epoch(batch: FirstBatch) -> KafkaError | None:
    """A producer that this log knows a later epoch of: the coordinator need not be asked (KAFKA-18042)."""
    try:
        batch.partition.log.producer_state.check_epoch(batch.header)
    except KafkaError as error:
        return error
    return None


def _error(code: ErrorCode, version: int) -> KafkaError | None:
    if code is ErrorCode.NONE:
        return None
    if code in _TRY_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDED_BY_LEADER_SINCE):
        text = f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "There is a newer producer with the same transactional id")
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction")
    return KafkaError(code, "The coordinator of the transaction refuses the partition")


def _ended_meanwhile(batch: FirstBatch, verification: VerificationStateEntry) -> KafkaError | None:
    producers = batch.partition.log.producer_state
    header = batch.header
    if producers.has_open_transaction(header.producer_id, header.producer_epoch):
        return None
    try:
        entry = producers.check_epoch(header)
        producers.verifications.check(header, verification, knows_producer=entry is not None and bool(entry.batches))
    except KafkaError as error:
        return error
    return None


class ProduceQueue:
    """Produce requests of a connection that wait for a confirmation or a worker, and those behind them, in order."""

    def __init__(self) -> None:
        self._last: dict[int, tasks.Future[None]] = {}

    def is_busy(self, connection_id: int) -> bool:
        """Whether a request of this connection has not been appended yet."""
        return connection_id in self._last

    def append_in_order(
        self, connection_id: int, append: Callable[[], Awaitable[VerificationResult | tasks.Future[m.ProduceResponse]]]
    ) -> tasks.Task[VerificationResult]:
        """Appends when all earlier ones of the connection have; the answer comes once that is acknowledged."""
        previous, appended_future = self._last.get(connection_id), tasks.future()
        self._last[connection_id] = appended_future
        return tasks.start(self._in_order(connection_id, previous, appended_future, append), name="records that wait")

    async def _in_order(
        self,
        connection_id: int,
        previous: tasks.Future[None] | None,
        appended_future: tasks.Future[None],
        append: Callable[[], Awaitable[VerificationResult | tasks.Future[m.ProduceResponse]]],
    ) -> VerificationResult:
        try:
            if previous is not None:
                await previous
            appended = await append()
        finally:
            appended_future.set_result(None)
            if self._last.get(connection_id) is appended_future:
                del self._last[connection_id]
        return await appended if isinstance(appended, tasks.Future) else appended
