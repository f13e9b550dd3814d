"""AddPartitionsToTxn (24), versions 0-5; AddOffsetsToTxn (25), 0-4; EndTxn (26), 0-5: a producer's transaction
(KIP-98, KIP-890).

AddPartitionsToTxn carries many transactions from version 4 on, when leaders of partitions ask on behalf of producers.
EndTxn version 5 gives the producer the epoch of its next transaction.
Kafka: `KafkaApis.handleAddPartitionsToTxnRequest`, `handleAddOffsetsToTxnRequest`, `handleEndTxnRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.apis.support.auto_topic_creation import create_in_background
from backend.engine.apis.support.forwarding import caught_up
from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import TopicImage
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.coordinator.group.group_records import OFFSETS_TOPIC, coordinator_partition
from backend.engine.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.engine.ports import tasks
from backend.engine.ports.time_slices import TimeSlicer, in_parts
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

ADD_PARTITIONS_KEY: Final = 24
ADD_PARTITIONS_MAX: Final = 5
ADD_OFFSETS_KEY: Final = 25
ADD_OFFSETS_MAX: Final = 4
END_TXN_KEY: Final = 26
END_TXN_MAX: Final = 5
FIRST_BATCHED: Final = 4
# Before, clients know INVALID_PRODUCER_EPOCH only.
FIRST_FENCED: Final = 2
FIRST_BUMPING_END: Final = 5
# transaction.version that a client's request shows (`TransactionVersion` of Kafka).
OLD_VERSION: Final = 0
BUMPING_VERSION: Final = 2

# Transactions that are looked at together, and partitions of one before others may have a turn.
TRANSACTIONS_AT_A_TIME: Final = 100
INDEXES_PER_STEP: Final = 2_000

_TransactionRequest = m.AddPartitionsToTxnRequest.Transactions
_TransactionResult = m.AddPartitionsToTxnResponse.ResultsByTransaction
_TopicResult = m.AddPartitionsToTxnResponse.ResultsByTopicV3AndBelow
ErrorCodes = dict[TopicPartition, ErrorCode]


class TransactionsServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    config: BrokerConfig
    metadata: MetadataCache
    transaction_coordinator: TransactionCoordinator
    controller_channel: ControllerChannel
    time_slicer: TimeSlicer


async def add_partitions_to_txn(
    services: TransactionsServices, context: RequestContext, request: m.AddPartitionsToTxnRequest
) -> m.AddPartitionsToTxnResponse:
    """One code for each partition."""
    if context.api_version >= FIRST_BATCHED:
        transaction_results: list[_TransactionResult] = []
        time_slice = services.time_slicer.time_slice()
        for some in in_parts(request.transactions, TRANSACTIONS_AT_A_TIME):
            transaction_results += await tasks.gather(_add_or_verify(services, transaction) for transaction in some)
            await time_slice.step()
        return m.AddPartitionsToTxnResponse(results_by_transaction=transaction_results)
    partitions = [
        TopicPartition(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions
    ]
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    codes = _unknown(services, partitions)
    if not codes:
        transactional_id = request.v3_and_below_transactional_id
        codes = await _add(services, transactional_id, producer, partitions, OLD_VERSION, context.api_version)
    results = [
        _TopicResult(
            name=topic.name,
            results_by_partition=[
                _TopicResult.ResultsByPartition(
                    partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in request.v3_and_below_topics
    ]
    return m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _add_or_verify(services: TransactionsServices, transaction: _TransactionRequest) -> _TransactionResult:
    time_slice = services.time_slicer.time_slice()
    partitions: list[TopicPartition] = []
    for topic in transaction.topics:
        for some in in_parts(topic.partitions, INDEXES_PER_STEP):
            partitions += [TopicPartition(topic.name, index) for index in some]
            await time_slice.step()
    partitions = list(dict.fromkeys(partitions))
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    codes = _unknown(services, partitions)
    if not codes and transaction.verify_only:
        codes = _verify(services, transaction.transactional_id, producer, partitions)
    elif not codes:
        codes = await _add(services, transaction.transactional_id, producer, partitions, BUMPING_VERSION, FIRST_BATCHED)
    result = _TransactionResult(transactional_id=transaction.transactional_id)
    row = _TransactionResult.TopicResults.ResultsByPartition
    for topic in transaction.topics:
        topic_result = _TransactionResult.TopicResults(name=topic.name)
        result.topic_results.append(topic_result)
        for some in in_parts(topic.partitions, INDEXES_PER_STEP):
            topic_result.results_by_partition += [
                row(partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)])
                for index in some
            ]
            await time_slice.step()
    return result


def _unknown(services: TransactionsServices, partitions: list[TopicPartition]) -> ErrorCodes:
    """All or nothing: when some do not exist the others are not attempted. Empty when all exist."""
    image = services.metadata.image
    missing = {partition for partition in partitions if image.partition(partition.topic, partition.partition) is None}
    if not missing:
        return {}
    unknown, skipped = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    return {partition: unknown if partition in missing else skipped for partition in partitions}


def _verify(
    services: TransactionsServices, transactional_id: str, producer: Producer, partitions: list[TopicPartition]
) -> ErrorCodes:
    if not transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    try:
        return services.transaction_coordinator.verify_partitions(transactional_id, producer, frozenset(partitions))
    except KafkaError as error:
        return dict.fromkeys(partitions, error.code)


async def _add(
    services: TransactionsServices,
    transactional_id: str,
    producer: Producer,
    partitions: list[TopicPartition],
    transaction_version: int,
    api_version: int,
) -> ErrorCodes:
    code = ErrorCode.NONE if transactional_id else ErrorCode.INVALID_REQUEST
    if transactional_id:
        try:
            await services.transaction_coordinator.add_partitions(
                transactional_id, producer, frozenset(partitions), transaction_version
            )
        except KafkaError as error:
            code = _as_known(error.code, api_version)
    return dict.fromkeys(partitions, code)


def _as_known(code: ErrorCode, api_version: int) -> ErrorCode:
    fenced = code is ErrorCode.PRODUCER_FENCED and api_version < FIRST_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if fenced else code


async def add_offsets_to_txn(
    services: TransactionsServices, context: RequestContext, request: m.AddOffsetsToTxnRequest
) -> m.AddOffsetsToTxnResponse:
    """Puts the partition that holds a group's offsets into the transaction."""
    topic = await _offsets_topic(services)
    if topic is None:
        return m.AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = TopicPartition(OFFSETS_TOPIC, coordinator_partition(request.group_id, len(topic.partitions)))
    producer = Producer(request.producer_id, request.producer_epoch)
    codes = await _add(services, request.transactional_id, producer, [partition], OLD_VERSION, context.api_version)
    return m.AddOffsetsToTxnResponse(error_code=codes[partition])


async def _offsets_topic(services: TransactionsServices) -> TopicImage | None:
    """Made if it is not there: a producer looks for the group's coordinator, which makes it too, only after this."""
    topic = services.metadata.image.topic(OFFSETS_TOPIC)
    if topic is None:
        create_in_background(services, [OFFSETS_TOPIC])
        await caught_up(services, lambda image: image.topic(OFFSETS_TOPIC) is not None)
        topic = services.metadata.image.topic(OFFSETS_TOPIC)
    return topic


async def end_txn(
    services: TransactionsServices, context: RequestContext, request: m.EndTxnRequest
) -> m.EndTxnResponse:
    """Commits or aborts: answered once that is decided and stored."""
    bumps = context.api_version >= FIRST_BUMPING_END
    if not request.transactional_id:
        return m.EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        following = await services.transaction_coordinator.end(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            commit=request.committed,
            version=BUMPING_VERSION if bumps else OLD_VERSION,
        )
    except KafkaError as error:
        return m.EndTxnResponse(error_code=_as_known(error.code, context.api_version))
    if not bumps:
        return m.EndTxnResponse()
    return m.EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)


APIS: Final = (
    Api(ADD_PARTITIONS_KEY, 0, ADD_PARTITIONS_MAX, add_partitions_to_txn),
    Api(ADD_OFFSETS_KEY, 0, ADD_OFFSETS_MAX, add_offsets_to_txn),
    Api(END_TXN_KEY, 0, END_TXN_MAX, end_txn),
)
