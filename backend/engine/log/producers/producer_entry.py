"""One producer's state on a partition (KIP-98; `ProducerStateEntry` and `BatchMetadata` of Kafka)."""

from __future__ import annotations

from dataclasses import dataclass, field

from backend.engine.log.log_config import INT32_MAX
from backend.engine.log.producers.producer_snapshot import NONE, SnapshotEntry


def last_sequence_of(base_sequence: int, offset_delta: int) -> int:
    """Sequence of a batch's last record; sequences wrap from 2^31-1 to 0."""
    last = base_sequence + offset_delta
    return last if last <= INT32_MAX else last - INT32_MAX - 1


def first_sequence_of(last_sequence: int, offset_delta: int) -> int:
    """Inverse of :func:`last_sequence_of`."""
    first = last_sequence - offset_delta
    return first if first >= 0 else first + INT32_MAX + 1


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """A batch as far as its repetition must be recognised."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return first_sequence_of(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """One producer's state on this partition."""

    producer_id: int
    epoch: int = NONE
    batches: list[BatchMetadata] = field(default_factory=list)
    last_timestamp_ms: int = NONE
    coordinator_epoch: int = NONE
    txn_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NONE

    @property
    def last_data_offset(self) -> int | None:
        """Last offset of the last data batch; None when only markers are known."""
        return self.batches[-1].last_offset if self.batches else None

    def set_epoch(self, epoch: int) -> None:
        """A new epoch starts with no batches to recognise."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    def snapshot(self) -> SnapshotEntry:
        last = self.batches[-1] if self.batches else BatchMetadata(NONE, NONE, 0, NONE)
        return SnapshotEntry(
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp_ms,
            self.coordinator_epoch,
            NONE if self.txn_first_offset is None else self.txn_first_offset,
        )


@dataclass(frozen=True, slots=True)
class CompletedTxn:
    """A transaction that a marker has just ended; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@dataclass(frozen=True, slots=True)
class EndTxnMarker:
    """The end of a transaction, as its control batch has it."""

    aborted: bool
    coordinator_epoch: int
