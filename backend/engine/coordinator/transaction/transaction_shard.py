"""One partition of `__transaction_state` that this broker leads: transactional ids, read back from the log.

A new leader epoch is a new coordinator epoch, so the partition is read again (`TransactionStateManager` of Kafka).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from backend.engine.common.unreadable_records import UnreadableRecords
from backend.engine.coordinator.coordinator_shards import CoordinatorShard, CoordinatorShards, ShardKind
from backend.engine.coordinator.log_reader import batches_of
from backend.engine.coordinator.transaction.transaction import Transaction
from backend.engine.coordinator.transaction.transaction_records import TRANSACTIONS_TOPIC, decode_transaction
from backend.engine.replica.partition import Partition
from backend.protocol.errors import DecodeError, ErrorCode
from backend.tiering.ids import TopicPartition


@dataclass(slots=True)
class TransactionEntry:
    """A transactional id. While `storing`, a change of it is on its way into the log and others must wait."""

    transaction: Transaction
    storing: bool = False
    # Its epoch has been raised to fence its producer, and that is not stored yet (`hasFailedEpochFence`).
    fences: bool = False
    # Partitions of a prepared transaction that have not the marker yet; of another one there are none.
    unmarked: set[TopicPartition] = field(default_factory=set)


class TransactionShard(CoordinatorShard):
    """Transactions by transactional id."""

    topic = TRANSACTIONS_TOPIC

    def __init__(self, index: int, partition: Partition) -> None:
        super().__init__(index, partition)
        self.entries: dict[str, TransactionEntry] = {}

    @property
    def size(self) -> int:
        return len(self.entries)

    @property
    def is_outdated(self) -> bool:
        return self.leader_epoch_changed

    @property
    def coordinator_epoch(self) -> int:
        """The epoch by which brokers that write its markers recognize this coordinator."""
        return self.leader_epoch

    async def load(self, unreadable_records: UnreadableRecords) -> int:
        count = 0
        async for batch in batches_of(self.partition.log, unreadable_records):
            if batch.header.is_control:
                continue
            for record in batch.records:
                try:
                    self._replay(decode_transaction(record.key, record.value))
                except DecodeError as error:
                    unreadable_records.note(self.topic, self.index, record.offset, str(error))
            count += len(batch.records)
        return count

    def _replay(self, record: tuple[str, Transaction | None] | None) -> None:
        if record is None:
            return
        transactional_id, transaction = record
        if transaction is None:
            self.entries.pop(transactional_id, None)
        else:
            self.entries[transactional_id] = TransactionEntry(transaction)


TransactionShards = CoordinatorShards[TransactionShard]
TRANSACTIONAL_IDS: Final = ShardKind("transactional id", TransactionShard, ErrorCode.UNKNOWN_SERVER_ERROR)
