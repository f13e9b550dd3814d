"""Pure decisions about a transaction: its value after each request.

Each function returns the transaction as it must be stored before the client gets a response, or the code that the
client gets when nothing changes (NONE: the request is fulfilled already). `storing`: an earlier change is still being
stored. While a change is under way the code is CONCURRENT_TRANSACTIONS, so that the client retries, before the producer
is checked: with version 2 a producer gets its next id and epoch before the change is complete (KAFKA-18464,
KAFKA-18660).
Kafka: `TransactionCoordinator` (KIP-98, KIP-360, KIP-890), and its answers:
`tests/scenarios/golden/transaction-table.kafka.txt`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from backend.engine.coordinator.transaction.transaction import (
    EPOCH_BUMPED_SINCE,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    Transaction,
    TransactionState,
)
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import TopicPartition

TransactionDecision = Transaction | ErrorCode
_S = TransactionState
_NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class Producer(NamedTuple):
    """A producer as a request names it."""

    producer_id: int
    epoch: int


def _is_changing(transaction: Transaction, storing: bool) -> bool:
    """A prepared end is a change under way until all partitions have its marker."""
    return storing or transaction.state.is_prepared


def init_producer(
    transaction: Transaction, *, storing: bool, timeout_ms: int, now_ms: int, claimed: Producer | None, fresh_id: int
) -> TransactionDecision:
    """A producer introduces itself, with who it was when it recovers from an error (KIP-360).

    Gives it the next epoch, which fences all others. `fresh_id` is an unused producer id, needed only when
    `is_epoch_exhausted`. A transaction that is still open must be fenced first: see :func:`fence`.
    """
    if _is_changing(transaction, storing):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if claimed is not None and not _may_claim(transaction, claimed):
        return ErrorCode.PRODUCER_FENCED
    if not transaction.state.is_idle:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.is_epoch_exhausted and (claimed is None or claimed.epoch == transaction.epoch):
        last_epoch = NO_EPOCH if claimed is None else transaction.epoch
        return _emptied(transaction, fresh_id, 0, last_epoch, timeout_ms, now_ms)
    if transaction.is_epoch_exhausted:
        # Only a repeated request is left to be answered.
        return ErrorCode.PRODUCER_FENCED
    epoch, last_epoch = transaction.epoch + 1, NO_EPOCH
    if claimed is not None:
        if transaction.epoch in (NO_EPOCH, claimed.epoch):
            last_epoch = transaction.epoch
        elif claimed.epoch == transaction.last_epoch:
            # The answer to its last request was lost: it gets the same again.
            epoch, last_epoch = transaction.epoch, transaction.last_epoch
        else:
            return ErrorCode.PRODUCER_FENCED
    return _emptied(transaction, transaction.producer_id, epoch, last_epoch, timeout_ms, now_ms)


def _may_claim(transaction: Transaction, claimed: Producer) -> bool:
    if transaction.epoch == NO_EPOCH or claimed.producer_id == transaction.producer_id:
        return True
    # Its epochs were used up and the answer with the new id was lost.
    return claimed.producer_id == transaction.previous_producer_id and claimed.epoch >= EPOCH_MAX - 1


def _emptied(
    transaction: Transaction, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
) -> Transaction:
    return transaction.moved_to(
        _S.EMPTY,
        now_ms,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=_NOTHING,
        started_ms=NO_TIME,
    )


def is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Whether its producer has left it open for longer than it asked for."""
    return transaction.state is _S.ONGOING and transaction.started_ms + transaction.timeout_ms < now_ms


def is_expired(transaction: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Whether the transactional id has expired."""
    return transaction.state.is_idle and transaction.updated_ms + expiration_ms <= now_ms


def fence(transaction: Transaction, *, now_ms: int, version: int, fresh_id: int, raised: bool = False) -> Transaction:
    """Aborts an open transaction on behalf of the coordinator, with an epoch that its producer does not have.

    `version` is the cluster's transaction.version; `fresh_id` as in :func:`init_producer`. `raised`: it has such an
    epoch since an earlier try. AssertionError unless the transaction is open.
    """
    assert transaction.state is _S.ONGOING, f"transaction {transaction.transactional_id} is not open"
    # In version 2 this is an end like any other: its producer may recover (KIP-360), and once its epochs are used up it
    # has another id (KAFKA-20090).
    bumps = version >= EPOCH_BUMPED_SINCE
    return transaction.moved_to(
        _S.PREPARE_ABORT,
        now_ms,
        epoch=transaction.epoch if raised else min(transaction.epoch + 1, EPOCH_MAX),
        last_epoch=transaction.epoch if bumps else NO_EPOCH,
        client_version=version,
        next_producer_id=fresh_id if bumps and transaction.is_epoch_exhausted else NO_PRODUCER_ID,
    )


def with_epoch(transaction: Transaction, epoch: int) -> Transaction:
    """An open transaction whose producer is fenced already, while its abort is being stored (before version 2)."""
    return replace(transaction, epoch=epoch, last_epoch=NO_EPOCH)


def add_partitions(
    transaction: Transaction,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    *,
    storing: bool,
    now_ms: int,
    version: int,
) -> TransactionDecision:
    """Puts partitions into the transaction, which begins with the first."""
    if _is_changing(transaction, storing):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = _check(transaction, producer)
    if error is not ErrorCode.NONE:
        return error
    if transaction.state is _S.ONGOING and partitions <= transaction.partitions:
        return ErrorCode.NONE
    started_ms = now_ms if transaction.state.is_idle else transaction.started_ms
    return transaction.moved_to(
        _S.ONGOING,
        now_ms,
        partitions=transaction.partitions | partitions,
        started_ms=started_ms,
        client_version=version,
    )


def verify_partition(transaction: Transaction, producer: Producer, partition: TopicPartition) -> ErrorCode:
    """Whether a producer may write to a partition: TRANSACTION_ABORTABLE when it is not in the transaction.

    A change that is being stored does not count: the leader checks again before it appends.
    """
    error = _check(transaction, producer)
    if error is not ErrorCode.NONE:
        return error
    return ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE


def _check(transaction: Transaction, producer: Producer) -> ErrorCode:
    if transaction.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.epoch != producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.state.is_prepared else ErrorCode.NONE


def end(
    transaction: Transaction,
    producer: Producer,
    *,
    commit: bool,
    storing: bool,
    now_ms: int,
    version: int,
    fresh_id: int,
) -> TransactionDecision:
    """A producer ends its transaction. `fresh_id` as in :func:`init_producer`."""
    if version < EPOCH_BUMPED_SINCE:
        return _end_keeping_epoch(transaction, producer, commit, storing, now_ms, version)
    if _is_changing(transaction, storing):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return _end_bumping_epoch(transaction, producer, commit, now_ms, version, fresh_id)


def _end_keeping_epoch(
    transaction: Transaction, producer: Producer, commit: bool, storing: bool, now_ms: int, version: int
) -> TransactionDecision:
    """Before version 2 a producer knows no epoch but its own, so who it is can be said first."""
    if transaction.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.epoch != producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    if _is_changing(transaction, storing):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is _S.ONGOING:
        target = _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT
        return transaction.moved_to(target, now_ms, client_version=version, next_producer_id=NO_PRODUCER_ID)
    return ErrorCode.NONE if _has_ended(transaction, commit) else ErrorCode.INVALID_TXN_STATE


def _has_ended(transaction: Transaction, commit: bool) -> bool:
    """An end that is asked for again is all right when the transaction ended that way."""
    return transaction.state is (_S.COMPLETE_COMMIT if commit else _S.COMPLETE_ABORT)


def _end_bumping_epoch(
    transaction: Transaction, producer: Producer, commit: bool, now_ms: int, version: int, fresh_id: int
) -> TransactionDecision:
    """The end in version 2: the same epoch means the next transaction, a retry has the epoch before."""
    has_new_id = (
        transaction.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_MAX - 1
        and transaction.epoch == 0
    )
    if transaction.producer_id != producer.producer_id and not has_new_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    state = transaction.state
    ended = state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
    if ended and (has_new_id or producer.epoch == transaction.epoch - 1):
        return _repeated(transaction, commit)
    if transaction.producer_id != producer.producer_id or producer.epoch != transaction.epoch:
        return ErrorCode.PRODUCER_FENCED
    if state is not _S.ONGOING and commit:
        return ErrorCode.INVALID_TXN_STATE
    return transaction.moved_to(
        _S.PREPARE_COMMIT if commit else _S.PREPARE_ABORT,
        now_ms,
        # The highest epoch stays: its producer cannot have it, so this is the end of a state that must not be.
        epoch=min(transaction.epoch + 1, EPOCH_MAX),
        last_epoch=transaction.epoch,
        next_producer_id=fresh_id if transaction.is_epoch_exhausted else NO_PRODUCER_ID,
        # Nothing was added to it, but it has a beginning.
        started_ms=transaction.started_ms if state is _S.ONGOING else now_ms,
        client_version=version,
    )


def _repeated(transaction: Transaction, commit: bool) -> ErrorCode:
    if _has_ended(transaction, commit):
        return ErrorCode.NONE
    # A retry asks for the same end: a commit that meets an abort was overtaken by the coordinator's own abort, as the
    # transaction timed out or a new producer came. INVALID_TXN_STATE of Apache Kafka 4.3.1 has clients give up, where
    # a fenced producer begins again; later versions answer this (KAFKA-20785).
    return ErrorCode.PRODUCER_FENCED if commit else ErrorCode.INVALID_TXN_STATE


def complete(transaction: Transaction, now_ms: int) -> Transaction:
    """All partitions have the marker of a prepared transaction."""
    committed = transaction.state is _S.PREPARE_COMMIT
    next_id = transaction.next_producer_id
    return transaction.moved_to(
        _S.COMPLETE_COMMIT if committed else _S.COMPLETE_ABORT,
        now_ms,
        partitions=_NOTHING,
        next_producer_id=NO_PRODUCER_ID,
        **({} if next_id == NO_PRODUCER_ID else {"producer_id": next_id, "epoch": 0}),
    )
