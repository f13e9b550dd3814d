"""DescribeTransactions (65), version 0; ListTransactions (66), 0-2; DescribeProducers (61), 0 (KIP-664, KIP-1152).

Kafka: `KafkaApis.handleDescribeTransactionsRequest`, `handleListTransactionsRequest`,
`handleDescribeProducersRequest`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.coordinator.name_regex import PROGRAM_MAX, NameRegex, RegexError
from backend.engine.coordinator.transaction.transaction import Transaction, TransactionState
from backend.engine.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from backend.engine.coordinator.transaction.transaction_verifier import by_topic
from backend.engine.log.producers.producer_entry import ProducerEntry
from backend.engine.ports import Ports, tasks
from backend.engine.ports.time_slices import Steps, TimeSlicer
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

DESCRIBE_KEY: Final = 65
LIST_KEY: Final = 66
LIST_MAX: Final = 2
# Characters of ids that are matched with a regular expression before others have a turn: a few milliseconds for an
# ordinary expression, some 150 ms for the worst of `PROGRAM_MAX` instructions, and as much less as one has more.
CHARACTERS_PER_TURN: Final = 20_000
PRODUCERS_KEY: Final = 61
NONE: Final = -1
# Kafka knows one state more, which only ever exists in its memory.
_KNOWN_STATES: Final = frozenset(state.text for state in TransactionState) | {"PrepareEpochFence"}

_Described = m.DescribeTransactionsResponse.TransactionStates
_Listed = m.ListTransactionsResponse.TransactionStates
_Producers = m.DescribeProducersResponse.Topics
_Active = _Producers.Partitions.ActiveProducers


class TransactionsAdminServices(Protocol):
    """The parts of the node that these functions use."""

    ports: Ports
    replica_manager: ReplicaManager
    transaction_coordinator: TransactionCoordinator
    time_slicer: TimeSlicer


def describe_transactions(
    services: TransactionsAdminServices, context: RequestContext, request: m.DescribeTransactionsRequest
) -> Steps[m.DescribeTransactionsResponse]:
    """States of transactional ids coordinated here, each once."""
    response = m.DescribeTransactionsResponse()
    for name in dict.fromkeys(request.transactional_ids):
        response.transaction_states.append(_describe(services, name))
        yield
    return response


def _describe(services: TransactionsAdminServices, transactional_id: str) -> _Described:
    if not transactional_id:
        return _Described(transactional_id=transactional_id, error_code=ErrorCode.INVALID_REQUEST)
    try:
        transaction = services.transaction_coordinator.describe(transactional_id)
    except KafkaError as refused:
        return _Described(transactional_id=transactional_id, error_code=refused.code)
    if transaction is None:
        return _Described(transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return _Described(
        transactional_id=transactional_id,
        transaction_state=transaction.state.text,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[
            _Described.Topics(topic=name, partitions=indexes) for name, indexes in by_topic(transaction.partitions)
        ],
    )


async def list_transactions(
    services: TransactionsAdminServices, context: RequestContext, request: m.ListTransactionsRequest
) -> m.ListTransactionsResponse:
    """Transactional ids coordinated here that pass all filters given."""
    unknown = [state for state in request.state_filters if state not in _KNOWN_STATES]
    try:
        everything = list(services.transaction_coordinator.transactions())
    except KafkaError as refused:
        return m.ListTransactionsResponse(error_code=refused.code)
    now_ms = services.ports.clock.time_ms()
    filters = _Filters(
        frozenset(request.producer_id_filters), frozenset(request.state_filters), request.duration_filter, now_ms
    )
    time_slice = services.time_slicer.time_slice()
    selected = []
    for transaction in everything:
        if filters.pass_(transaction):
            selected.append(transaction)
        await time_slice.step()
    if request.transactional_id_pattern:
        try:
            selected = await _named(selected, request.transactional_id_pattern)
        except RegexError:
            return m.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    listed = [
        _Listed(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.text,
        )
        for transaction in selected
    ]
    return m.ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


async def _named(transactions: list[Transaction], pattern: str) -> list[Transaction]:
    """The transactions whose whole id matches. Raises RegexError."""
    regex = NameRegex(pattern)
    characters_per_turn = CHARACTERS_PER_TURN * PROGRAM_MAX // max(PROGRAM_MAX, regex.program_size)
    matching, characters = [], 0
    for transaction in transactions:
        if regex.matches(transaction.transactional_id):
            matching.append(transaction)
        characters += len(transaction.transactional_id)
        if characters >= characters_per_turn:
            characters = 0
            await tasks.sleep_ms(0)
    return matching


class _Filters(NamedTuple):
    """The conditions for a transaction to be listed; an empty filter is none."""

    producer_ids: frozenset[int]
    states: frozenset[str]
    duration_ms: int
    now_ms: int

    def pass_(self, transaction: Transaction) -> bool:
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.states and transaction.state.text not in self.states:
            return False
        return self.duration_ms < 0 or self.now_ms - transaction.started_ms > self.duration_ms


def describe_producers(
    services: TransactionsAdminServices, context: RequestContext, request: m.DescribeProducersRequest
) -> Steps[m.DescribeProducersResponse]:
    """The active producers of partitions led here, each partition once."""
    indexes_by_topic: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        indexes_by_topic.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        yield
    response = m.DescribeProducersResponse()
    for name, indexes in indexes_by_topic.items():
        result = _Producers(name=name)
        response.topics.append(result)
        for index in indexes:
            result.partitions.append(_producers(services, name, index))
            yield
    return response


def _producers(services: TransactionsAdminServices, topic: str, index: int) -> _Producers.Partitions:
    try:
        partition = services.replica_manager.partition(topic, index)
        partition.check_leader()
    except KafkaError as refused:
        return _Producers.Partitions(partition_index=index, error_code=refused.code, error_message=refused.message)
    return _Producers.Partitions(
        partition_index=index, active_producers=[_active(entry) for entry in partition.log.producer_state.producers]
    )


def _active(entry: ProducerEntry) -> _Active:
    return _Active(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=NONE if entry.txn_first_offset is None else entry.txn_first_offset,
    )


APIS: Final = (
    Api(DESCRIBE_KEY, 0, 0, describe_transactions),
    Api(LIST_KEY, 0, LIST_MAX, list_transactions),
    Api(PRODUCERS_KEY, 0, 0, describe_producers),
)
