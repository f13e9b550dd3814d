"""Decisions of a transaction's coordinator, one by one (KIP-98, KIP-360, KIP-890)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from backend.engine.coordinator.transaction import transaction_state as decide
from backend.engine.coordinator.transaction.transaction import EPOCH_MAX, Transaction, TransactionState
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import TopicPartition

S = TransactionState
NOW: Final = 10_000
FRESH: Final = 99
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ONLY_A: Final = frozenset({A})
ME: Final = Producer(7, 3)
EMPTY: Final = Transaction(
    transactional_id="x", producer_id=7, epoch=3, previous_producer_id=7, timeout_ms=60_000, updated_ms=1
)
OPEN: Final = replace(EMPTY, state=S.ONGOING, partitions=ONLY_A, started_ms=5_000, client_version=2)


def stored(decision: decide.TransactionDecision) -> Transaction:
    assert isinstance(decision, Transaction), decision
    return decision


def init(
    transaction: Transaction, claimed: Producer | None = None, *, storing: bool = False
) -> decide.TransactionDecision:
    return decide.init_producer(
        transaction, storing=storing, timeout_ms=1_000, now_ms=NOW, claimed=claimed, fresh_id=FRESH
    )


def end(
    transaction: Transaction, producer: Producer = ME, *, commit: bool = True, version: int = 2, storing: bool = False
) -> decide.TransactionDecision:
    return decide.end(
        transaction, producer, commit=commit, storing=storing, now_ms=NOW, version=version, fresh_id=FRESH
    )


def add(
    transaction: Transaction, *partitions: TopicPartition, producer: Producer = ME, storing: bool = False
) -> decide.TransactionDecision:
    return decide.add_partitions(transaction, producer, frozenset(partitions), storing=storing, now_ms=NOW, version=2)


def fence(transaction: Transaction, version: int = 2) -> Transaction:
    return decide.fence(transaction, now_ms=NOW, version=version, fresh_id=FRESH)


# InitProducerId


def test_a_new_transactional_id_begins_with_epoch_0() -> None:
    made = stored(init(Transaction(transactional_id="x", producer_id=7, timeout_ms=5, updated_ms=1)))
    assert (made.producer_id, made.epoch, made.last_epoch, made.timeout_ms, made.state) == (7, 0, -1, 1_000, S.EMPTY)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_another_producer_gets_the_next_epoch_and_fences_the_one_before(state: TransactionState) -> None:
    made = stored(init(replace(EMPTY, state=state, last_epoch=2)))
    assert (made.epoch, made.last_epoch, made.started_ms, made.updated_ms) == (4, -1, -1, NOW)
    assert init(made, claimed=ME) is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_recovers_bumps_its_own_epoch_and_may_ask_twice() -> None:
    first = stored(init(EMPTY, claimed=ME))
    assert (first.epoch, first.last_epoch) == (4, 3)
    again = stored(init(first, claimed=ME))
    assert (again.epoch, again.last_epoch) == (4, 3)
    assert init(again, claimed=Producer(7, 1)) is ErrorCode.PRODUCER_FENCED


def test_a_claim_of_another_producer_id_is_fenced() -> None:
    assert init(EMPTY, claimed=Producer(8, 3)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_nobody_gets_an_epoch_before_the_transaction_has_ended(state: TransactionState) -> None:
    assert init(replace(OPEN, state=state)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert init(replace(OPEN, state=state), claimed=ME) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_producer_without_epochs_left_gets_a_fresh_id_and_may_ask_twice() -> None:
    worn = replace(EMPTY, epoch=EPOCH_MAX - 1)
    made = stored(init(worn))
    assert (made.producer_id, made.epoch, made.last_epoch, made.previous_producer_id) == (FRESH, 0, -1, 7)
    mine = Producer(7, EPOCH_MAX - 1)
    made = stored(init(worn, claimed=mine))
    assert (made.producer_id, made.epoch, made.last_epoch) == (FRESH, 0, EPOCH_MAX - 1)
    again = stored(init(made, claimed=mine))
    assert (again.producer_id, again.epoch) == (FRESH, 0)
    assert init(worn, claimed=Producer(7, 5)) is ErrorCode.PRODUCER_FENCED


# Partitions


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_the_first_partition_begins_the_transaction(state: TransactionState) -> None:
    made = stored(add(replace(EMPTY, state=state), A))
    assert (made.state, made.partitions, made.started_ms, made.client_version) == (S.ONGOING, ONLY_A, NOW, 2)


def test_more_partitions_leave_the_beginning_as_it_is_and_known_ones_change_nothing() -> None:
    made = stored(add(OPEN, A, B))
    assert (made.partitions, made.started_ms) == (frozenset({A, B}), 5_000)
    assert add(made, B) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("transaction", "producer", "code"),
    [
        (OPEN, Producer(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (OPEN, Producer(7, 2), ErrorCode.PRODUCER_FENCED),
        (OPEN, Producer(7, 4), ErrorCode.PRODUCER_FENCED),
        (replace(OPEN, state=S.PREPARE_COMMIT), ME, ErrorCode.CONCURRENT_TRANSACTIONS),
        (replace(OPEN, state=S.PREPARE_ABORT), ME, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_others_add_and_verify_nothing(transaction: Transaction, producer: Producer, code: ErrorCode) -> None:
    assert add(transaction, B, producer=producer) is code
    assert decide.verify_partition(transaction, producer, A) is code


def test_a_partition_that_was_not_added_is_refused_so_that_the_producer_aborts() -> None:
    assert decide.verify_partition(OPEN, ME, A) is ErrorCode.NONE
    assert decide.verify_partition(OPEN, ME, B) is ErrorCode.TRANSACTION_ABORTABLE


# The end, before version 2


@pytest.mark.parametrize(("commit", "prepared", "done"), [
    (True, S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (False, S.PREPARE_ABORT, S.COMPLETE_ABORT),
])  # fmt: skip
def test_an_old_producer_keeps_its_epoch(commit: bool, prepared: TransactionState, done: TransactionState) -> None:
    made = stored(end(OPEN, commit=commit, version=0))
    assert (made.state, made.epoch, made.partitions, made.client_version) == (prepared, 3, ONLY_A, 0)
    assert end(made, commit=commit, version=0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert end(made, commit=not commit, version=0) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert end(made, Producer(7, 2), commit=commit, version=0) is ErrorCode.PRODUCER_FENCED
    ended = decide.complete(made, NOW + 1)
    assert (ended.state, ended.epoch, ended.partitions, ended.updated_ms) == (done, 3, frozenset(), NOW + 1)
    assert end(ended, commit=commit, version=0) is ErrorCode.NONE
    assert end(ended, commit=not commit, version=0) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 2])
def test_nothing_to_commit_is_an_error(version: int) -> None:
    assert end(EMPTY, version=version) is ErrorCode.INVALID_TXN_STATE


def test_an_old_producer_has_nothing_to_abort_either() -> None:
    assert end(EMPTY, commit=False, version=0) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 2])
def test_a_fenced_producer_ends_nothing(version: int) -> None:
    assert end(OPEN, Producer(7, 2), version=version) is ErrorCode.PRODUCER_FENCED
    assert end(OPEN, Producer(7, 4), version=version) is ErrorCode.PRODUCER_FENCED
    assert end(OPEN, Producer(6, 3), version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# The end in version 2


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_bumps_the_epoch_and_may_be_asked_for_twice(commit: bool) -> None:
    made = stored(end(OPEN, commit=commit))
    assert (made.epoch, made.last_epoch) == (4, 3)
    ended = decide.complete(made, NOW)
    assert (ended.producer_id, ended.epoch) == (7, 4)
    assert end(ended, ME, commit=commit) is ErrorCode.NONE
    assert end(ended, ME, commit=not commit) is not ErrorCode.NONE
    assert end(ended, Producer(7, 2), commit=commit) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("epoch", [2, 3, 4, 5])
@pytest.mark.parametrize("ended_by_commit", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_while_markers_are_written_no_end_is_refused_for_good(epoch: int, ended_by_commit: bool, commit: bool) -> None:
    """Epoch 4 is the one that the answer to the end before has given the producer for its next transaction."""
    made = stored(end(OPEN, commit=ended_by_commit))
    assert end(made, Producer(7, epoch), commit=commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert end(made, Producer(6, epoch), commit=commit) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_a_transaction_without_records_may_be_aborted(state: TransactionState) -> None:
    made = stored(end(replace(EMPTY, state=state), commit=False))
    assert (made.state, made.epoch, made.started_ms, made.partitions) == (S.PREPARE_ABORT, 4, NOW, frozenset())


def test_the_last_epoch_ends_with_a_fresh_producer_id_and_may_be_asked_for_twice() -> None:
    mine = Producer(7, EPOCH_MAX - 1)
    made = stored(end(replace(OPEN, epoch=EPOCH_MAX - 1), mine))
    assert (made.producer_id, made.epoch, made.next_producer_id) == (7, EPOCH_MAX, FRESH)
    ended = decide.complete(made, NOW)
    assert (ended.producer_id, ended.epoch, ended.previous_producer_id) == (FRESH, 0, 7)
    assert ended.next_producer_id == -1
    assert end(ended, mine) is ErrorCode.NONE
    assert add(ended, A, producer=Producer(FRESH, 0)) is not ErrorCode.NONE


# Fencing and time


@pytest.mark.parametrize(("version", "epoch", "last_epoch"), [(0, 4, -1), (2, 4, 3)])
def test_fencing_aborts_with_an_epoch_that_the_producer_does_not_have(
    version: int, epoch: int, last_epoch: int
) -> None:
    fenced = fence(OPEN, version)
    assert (fenced.state, fenced.epoch, fenced.last_epoch, fenced.partitions) == (
        S.PREPARE_ABORT,
        epoch,
        last_epoch,
        ONLY_A,
    )
    refused = {0: ErrorCode.PRODUCER_FENCED, 2: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert end(fenced, ME, version=version) is refused[version]
    assert add(fenced, B) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert decide.verify_partition(fenced, ME, A) is ErrorCode.PRODUCER_FENCED
    following = stored(init(decide.complete(fenced, NOW)))
    assert following.epoch == epoch + 1


def test_a_commit_that_meets_the_coordinator_s_abort_is_fenced_so_that_its_producer_begins_anew() -> None:
    aborted = decide.complete(fence(OPEN), NOW)
    assert end(aborted, ME, commit=True) is ErrorCode.PRODUCER_FENCED
    assert end(aborted, ME, commit=False) is ErrorCode.NONE
    worn = decide.complete(fence(replace(OPEN, epoch=EPOCH_MAX - 1)), NOW)
    assert end(worn, Producer(7, EPOCH_MAX - 1), commit=True) is ErrorCode.PRODUCER_FENCED
    assert end(worn, Producer(7, EPOCH_MAX - 1), commit=False) is ErrorCode.NONE


def test_a_commit_that_was_repeated_as_an_abort_is_a_mistake_of_its_producer() -> None:
    committed = decide.complete(stored(end(OPEN, commit=True)), NOW)
    assert end(committed, ME, commit=False) is ErrorCode.INVALID_TXN_STATE


def test_fencing_bumps_the_epoch_once() -> None:
    """KAFKA-19367."""
    assert decide.complete(fence(OPEN), NOW).epoch == OPEN.epoch + 1


def test_fencing_at_the_last_epoch_gives_the_producer_a_fresh_id() -> None:
    """KAFKA-20090: also when the coordinator aborts by itself, as at a time-out."""
    fenced = fence(replace(OPEN, epoch=EPOCH_MAX - 1))
    assert (fenced.producer_id, fenced.epoch, fenced.next_producer_id) == (7, EPOCH_MAX, FRESH)
    aborted = decide.complete(fenced, NOW)
    assert (aborted.producer_id, aborted.epoch, aborted.previous_producer_id) == (FRESH, 0, 7)
    # Its producer recovers from the last response.
    recovered = stored(init(aborted, claimed=Producer(7, EPOCH_MAX - 1)))
    assert (recovered.producer_id, recovered.epoch) == (FRESH, 0)
    assert stored(init(aborted)).epoch == 1


def test_before_version_2_fencing_at_the_last_epoch_leaves_the_fresh_id_to_the_next_producer() -> None:
    fenced = fence(replace(OPEN, epoch=EPOCH_MAX - 1), version=0)
    assert (fenced.epoch, fenced.next_producer_id) == (EPOCH_MAX, -1)
    following = stored(init(decide.complete(fenced, NOW)))
    assert (following.producer_id, following.epoch) == (FRESH, 0)


@pytest.mark.parametrize("ongoing", [True, False])
def test_the_highest_epoch_does_not_overflow(ongoing: bool) -> None:
    """A log of an earlier version may have it."""
    highest = replace(OPEN if ongoing else EMPTY, epoch=EPOCH_MAX)
    ended = decide.complete(stored(end(highest, Producer(7, EPOCH_MAX), commit=False)), NOW)
    assert (ended.producer_id, ended.epoch) == (FRESH, 0)
    if ongoing:
        assert decide.complete(fence(highest), NOW).producer_id == FRESH


@pytest.mark.parametrize("transaction", [EMPTY, OPEN])
@pytest.mark.parametrize("producer", [ME, Producer(7, 1), Producer(7, 9), Producer(8, 3)])
def test_nothing_is_said_about_who_asks_while_a_change_is_being_stored(
    transaction: Transaction, producer: Producer
) -> None:
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    assert add(transaction, A, producer=producer, storing=True) is busy
    assert init(transaction, storing=True) is init(transaction, producer, storing=True) is busy
    for commit in (True, False):
        assert end(transaction, producer, commit=commit, storing=True) is busy
        # Before version 2 a producer has one epoch, which does not depend on the change.
        old = end(transaction, producer, commit=commit, storing=True, version=0)
        assert old is (busy if producer == ME else end(transaction, producer, commit=commit, version=0))


def test_only_an_open_transaction_times_out() -> None:
    late = OPEN.started_ms + OPEN.timeout_ms
    assert not decide.is_timed_out(OPEN, late)
    assert decide.is_timed_out(OPEN, late + 1)
    assert not decide.is_timed_out(replace(OPEN, state=S.PREPARE_COMMIT), late + 1)


def test_an_id_that_nobody_uses_expires_but_not_while_its_transaction_is_open() -> None:
    assert decide.is_expired(EMPTY, 1 + 500, 500)
    assert not decide.is_expired(EMPTY, 500, 500)
    assert not decide.is_expired(OPEN, 1 << 40, 500)


def test_a_step_that_there_is_not_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="cannot go"):
        decide.complete(OPEN, NOW)


def test_before_version_2_a_fence_that_could_not_be_stored_keeps_its_epoch() -> None:
    """`hasFailedEpochFence`: no producer got the epoch, so it is not raised again."""
    fenced = decide.with_epoch(OPEN, fence(OPEN, version=1).epoch)
    assert (fenced.state, fenced.epoch, fenced.partitions) == (S.ONGOING, OPEN.epoch + 1, ONLY_A)
    assert end(fenced, ME, version=1) is ErrorCode.PRODUCER_FENCED
    again = decide.fence(fenced, now_ms=NOW, version=1, fresh_id=FRESH, raised=True)
    assert (again.state, again.epoch) == (S.PREPARE_ABORT, fenced.epoch)
