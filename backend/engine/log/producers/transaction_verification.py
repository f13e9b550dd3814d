"""Producers whose first records of a transaction wait until its coordinator has confirmed the partition (KIP-890).

A marker may be written in the meantime; what was confirmed before it must not be appended after it, or it would stay
open for ever. Kafka: `VerificationStateEntry`, `VerificationGuard`.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import BatchHeader


@dataclass(slots=True, eq=False)
class VerificationStateEntry:
    """The first batch that a producer wants to write in a transaction. Compared by identity."""

    lowest_sequence: int
    epoch: int
    bumps_epoch: bool  # the producer has a new epoch in every transaction
    began_ms: int


class PendingVerifications:
    """The verifications of one partition, by producer id. Not stored: a new leader asks the coordinator again."""

    def __init__(self) -> None:
        self._by_producer: dict[int, VerificationStateEntry] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def begin(self, batch: BatchHeader, *, bumps_epoch: bool, now_ms: int) -> VerificationStateEntry:
        """The producer's verification, a new one when there is none; it knows the lowest sequence that waits."""
        entry = self._by_producer.get(batch.producer_id)
        if entry is None:
            entry = VerificationStateEntry(batch.base_sequence, batch.producer_epoch, bumps_epoch, now_ms)
            self._by_producer[batch.producer_id] = entry
        elif batch.producer_epoch > entry.epoch:
            entry.epoch, entry.lowest_sequence = batch.producer_epoch, batch.base_sequence
        elif batch.producer_epoch == entry.epoch:
            entry.lowest_sequence = min(entry.lowest_sequence, batch.base_sequence)
        return entry

    def check(self, batch: BatchHeader, verification: VerificationStateEntry, *, knows_producer: bool) -> None:
        """Right before the append of a confirmed batch. `knows_producer`: batches of this epoch are remembered.

        Raises INVALID_TXN_STATE when the transaction ended meanwhile, OUT_OF_ORDER_SEQUENCE_NUMBER when an earlier
        batch has to come first.
        """
        if self._by_producer.get(batch.producer_id) is not verification:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")
        sequence = batch.base_sequence
        too_early = sequence > verification.lowest_sequence
        unknown = verification.bumps_epoch and sequence != 0 and not knows_producer
        if too_early or unknown:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {batch.producer_id}: {sequence} (incoming seq. number), "
                f"{0 if unknown else verification.lowest_sequence} (the earliest that is expected)",
            )

    def begun(self, producer_id: int) -> None:
        """Its transaction has begun in the log."""
        self._by_producer.pop(producer_id, None)

    def ended(self, producer_id: int, marker_epoch: int) -> None:
        """A marker has ended its transaction in the log.

        With an epoch for each transaction the marker has the one of the next, which may wait to be confirmed already:
        its end would come with a higher one.
        """
        entry = self._by_producer.get(producer_id)
        if entry is not None and not (entry.bumps_epoch and entry.epoch >= marker_epoch):
            del self._by_producer[producer_id]

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets those that were never followed by records."""
        expired = [p for p, entry in self._by_producer.items() if now_ms - entry.began_ms >= expiration_ms]
        for producer_id in expired:
            del self._by_producer[producer_id]
