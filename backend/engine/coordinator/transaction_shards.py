"""The partitions of `__transaction_state` that this broker leads: taken over, read, written to, given up.

A new leader epoch is a new coordinator epoch, so the partition is read anew (`TransactionStateManager` of Kafka).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backend.engine.coordinator.group_records import coordinator_partition
from backend.engine.coordinator.log_reader import batches_of
from backend.engine.coordinator.transaction import Transaction
from backend.engine.coordinator.transaction_records import TRANSACTIONS_TOPIC, decode_transaction
from backend.engine.ports import tasks
from backend.engine.replica.partition import Partition
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol.batch import build_batch
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.records import RecordData
from backend.tiering.ids import TopicPartition

# What producers are told when their transaction could not be stored.
_STORE_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TransactionEntry:
    """A transactional id. While `storing`, a change of it is on its way into the log and others must wait."""

    transaction: Transaction
    storing: bool = False


class TransactionShard:
    """Transactional ids of one partition. `loading` until the log has been read, and for good when that `failed`."""

    def __init__(self, index: int, partition: Partition) -> None:
        self.index = index
        self.partition = partition
        self.coordinator_epoch = partition.leader_epoch
        self.loading = True
        self.failed = False
        self.entries: dict[str, TransactionEntry] = {}

    def __str__(self) -> str:
        return f"{TRANSACTIONS_TOPIC}-{self.index}"

    async def load(self) -> int:
        """Reads the whole log; how many records. Raises KafkaError or DecodeError."""
        count = 0
        async for batch in batches_of(self.partition.log):
            if batch.header.is_control:
                continue
            for record in batch.records:
                self._replay(decode_transaction(record.key, record.value))
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


class TransactionShards:
    """Use: `on_metadata` after the replica manager's for every image, `close`. `loaded` hears of those taken over."""

    def __init__(self, *, replica_manager: ReplicaManager, loaded: Callable[[TransactionShard], None]) -> None:
        self._replicas = replica_manager
        self._loaded = loaded
        self._shards: dict[int, TransactionShard] = {}
        self._partitions = 0  # of __transaction_state; 0 while the topic is not there
        self._tasks: set[tasks.Task[None]] = set()
        self._closed = False

    def on_metadata(self, partitions: int) -> None:
        """Takes over and gives up; `partitions` is how many `__transaction_state` has."""
        self._partitions = partitions
        for index, shard in list(self._shards.items()):
            partition = self._led(index)
            if partition is not shard.partition or partition.leader_epoch != shard.coordinator_epoch:
                del self._shards[index]
        for index in range(partitions):
            partition = self._led(index)
            if partition is not None and index not in self._shards and not self._closed:
                made = self._shards[index] = TransactionShard(index, partition)
                self.spawn(self._load(made), f"load of {made}")

    async def close(self) -> None:
        """Gives all up; background work ends."""
        self._closed = True
        self._shards.clear()
        for task in list(self._tasks):
            await tasks.cancel(task)

    def _led(self, index: int) -> Partition | None:
        found = self._replicas.find(TRANSACTIONS_TOPIC, index)
        return found if isinstance(found, Partition) and found.is_leader else None

    async def _load(self, shard: TransactionShard) -> None:
        try:
            count = await shard.load()
        except (KafkaError, DecodeError, OSError) as error:
            # Until the next leadership change its producers are answered COORDINATOR_LOAD_IN_PROGRESS, and the log
            # says why.
            _log.error("%s cannot be read, so its transactional ids have no coordinator: %s", shard, error)
            shard.failed = True
            return
        if not self.holds(shard):
            return
        shard.loading = False
        _log.debug("Coordinates %d transactional ids of %s after %d records", len(shard.entries), shard, count)
        self._loaded(shard)
        if not any(one.loading and not one.failed for one in self._shards.values()):
            total = sum(len(one.entries) for one in self._shards.values())
            _log.info("Coordinates %d transactional ids in %d partitions of %s",
                      total, len(self._shards), TRANSACTIONS_TOPIC)  # fmt: skip

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Runs in the background until `close`."""
        task = tasks.spawn(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def __iter__(self) -> Iterator[TransactionShard]:
        """Shards at this time; the caller may wait while it goes through them."""
        return iter(list(self._shards.values()))

    def holds(self, shard: TransactionShard) -> bool:
        """Whether the shard is still this broker's, under the same coordinator epoch."""
        return self._shards.get(shard.index) is shard

    def of(self, transactional_id: str) -> TransactionShard:
        """The shard of a transactional id.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
        index = coordinator_partition(transactional_id, self._partitions) if self._partitions else -1
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"transactional id {transactional_id!r} is coordinated by another broker"
            )
        if shard.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the state of {transactional_id!r} is being read")
        return shard

    async def append(self, shard: TransactionShard, records: Sequence[RecordData], timeout_ms: float) -> None:
        """Returns once the records are replicated and the shard is still held.

        Raises KafkaError with the code that producers are to get.
        """
        gone = KafkaError(ErrorCode.NOT_COORDINATOR, f"{shard} is led by another broker")
        if not self.holds(shard):
            raise gone
        try:
            await self._replicas.append(
                TopicPartition(TRANSACTIONS_TOPIC, shard.index), memoryview(build_batch(records)), timeout_ms=timeout_ms
            )
        except KafkaError as error:
            raise KafkaError(_STORE_ERRORS.get(error.code, error.code), error.message) from error
        if not self.holds(shard):
            raise gone
