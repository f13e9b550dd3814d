"""A transactional id as its coordinator knows it: its producer, the state of its transaction, the partitions in it.

Values only; `transaction_state` has the decisions. Kafka: `TransactionMetadata`, `TransactionState` (KIP-98,
KIP-360, KIP-890).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from backend.tiering.ids import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = (1 << 15) - 1
# Levels of the feature transaction.version: 2 has producers bump their epoch at the end of every transaction (KIP-890).
EPOCH_BUMPED_SINCE: Final = 2
LATEST_VERSION: Final = 2


class TransactionState(IntEnum):
    """The states with the codes of the log. Kafka's PREPARE_EPOCH_FENCE (7) is never stored and not needed here."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def text(self) -> str:
        """The name that Kafka shows to administrators."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether its end is decided, so that the partitions need their markers."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """There is no transaction."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


_S = TransactionState
# The legal predecessors of each state (`TransactionState.validPreviousStates`).
LEGAL_PREVIOUS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # A producer of version 2 may abort a transaction to which it has added nothing.
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """Times are ms since the epoch. `last_epoch` is the producer's epoch before the last bump that it asked for itself,
    to recognise its repeated request; -1 when another producer was fenced.
    """

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    # The id that the producer has once the prepared end is complete, when its epochs are used up.
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """The last epoch is kept for fencing this producer."""
        return self.epoch >= EPOCH_MAX - 1

    def moved_to(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
        """The same in another state; AssertionError for a step that there is not."""
        if self.state not in LEGAL_PREVIOUS[state]:
            raise AssertionError(f"transaction {self.transactional_id} cannot go from {self.state} to {state}")
        made = replace(self, state=state, updated_ms=now_ms, previous_producer_id=self.producer_id)
        return replace(made, **changes) if changes else made
