"""The transactions that this broker coordinates: looks them up, stores decisions, has markers written at their end.

Leads a partition of `__transaction_state` → reads it, finishes what was prepared, and answers for its transactional
ids; loses it → forgets them. Every decision is in `transaction_state`; here a change is stored before the client hears
of it, and time passes. Everything runs on the loop's thread. Kafka: `TransactionCoordinator`,
`TransactionStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Final

from backend.engine.common.unreadable_records import UnreadableRecords
from backend.engine.controller.commands.cluster_bootstrap import TRANSACTION_VERSION
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.controller.registration.producer_id_manager import ProducerIdManager
from backend.engine.coordinator.transaction import transaction_state as decide
from backend.engine.coordinator.transaction.transaction import (
    EPOCH_BUMPED_SINCE,
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
)
from backend.engine.coordinator.transaction.transaction_markers import MarkersRefused, SendToBroker, TransactionMarkers
from backend.engine.coordinator.transaction.transaction_records import (
    TRANSACTIONS_TOPIC,
    encode_tombstone,
    encode_transaction,
)
from backend.engine.coordinator.transaction.transaction_shard import (
    TRANSACTIONAL_IDS,
    TransactionEntry,
    TransactionShard,
    TransactionShards,
)
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.engine.ports import Clock, tasks
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

# Limit for replicating a change by the coordinator itself; a producer's may take its transaction time-out.
OWN_STORE_TIMEOUT_MS: Final = 30_000
# Before the completion of a transaction that could not be stored is tried again.
RETRY_PAUSE_MS: Final = 100
# Transactional ids forgotten in one batch: far below max.message.bytes with the longest ids.
FORGOTTEN_AT_ONCE: Final = 100

_log = logging.getLogger(__name__)


class TransactionCoordinator:
    """Use: `start`, `on_metadata` after the replica manager's for every image, `shutdown`."""

    def __init__(
        self,
        *,
        clock: Clock,
        replica_manager: ReplicaManager,
        producer_ids: ProducerIdManager,
        send_to_broker: SendToBroker,
        unreadable_records: UnreadableRecords | None = None,
    ) -> None:
        """`unreadable_records` notes the stored records that cannot be read."""
        self._clock = clock
        self._replicas = replica_manager
        self._producer_ids = producer_ids
        self._shards = TransactionShards(
            TRANSACTIONAL_IDS,
            replica_manager,
            loaded=self._loaded,
            lost=lambda shard: None,
            append_timeout_ms=lambda: OWN_STORE_TIMEOUT_MS,
            unreadable_records=unreadable_records or UnreadableRecords(),
        )
        self._markers = TransactionMarkers(send_to_broker, lambda: replica_manager.image)

    # Life

    def start(self) -> None:
        """Begins to abort what is left open for too long and to remove expired ids."""
        config = self._replicas.config
        abort_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        forget_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._shards.spawn(_repeatedly(abort_ms, self._abort_timed_out), "transaction time-outs")
        self._shards.spawn(_repeatedly(forget_ms, self._forget_expired), "expiry of transactional ids")

    async def shutdown(self) -> None:
        """Coordinates nothing any more."""
        await self._shards.close()

    def on_metadata(self, new: MetadataImage) -> None:
        """Takes over and gives up partitions of `__transaction_state` as this broker's leadership changes."""
        topic = new.topic(TRANSACTIONS_TOPIC)
        self._shards.on_metadata(0 if topic is None else len(topic.partitions))

    def _loaded(self, shard: TransactionShard) -> None:
        for entry in shard.entries.values():
            if entry.transaction.state.is_prepared:
                self._finish(shard, entry)

    @property
    def version(self) -> int:
        """The cluster's level of transaction.version."""
        return self._replicas.image.features.get(TRANSACTION_VERSION, 0)

    # Requests of producers

    async def init_producer(self, transactional_id: str, timeout_ms: int, claimed: Producer | None) -> Producer:
        """The id and epoch under which the producer is the only one to use the transactional id. Raises KafkaError."""
        if not 0 < timeout_ms <= self._replicas.config.transaction_max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction time-out is 1 to {self._replicas.config.transaction_max_timeout_ms} ms",
            )
        shard = self._shards.of(transactional_id)
        if transactional_id not in shard.entries:
            producer_id = await self._producer_ids.next_id()
            self._must_hold(shard)
            made = Transaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                timeout_ms=timeout_ms,
                updated_ms=self._clock.time_ms(),
            )
            shard.entries.setdefault(transactional_id, TransactionEntry(made))
        entry = shard.entries[transactional_id]
        fresh_id = await self._fresh_id(shard, entry)
        transaction, storing, now_ms = entry.transaction, entry.storing, self._clock.time_ms()
        decision = decide.init_producer(
            transaction, storing=storing, timeout_ms=timeout_ms, now_ms=now_ms, claimed=claimed, fresh_id=fresh_id
        )
        if (
            decision is ErrorCode.CONCURRENT_TRANSACTIONS
            and transaction.state is TransactionState.ONGOING
            and not storing
        ):
            # The one before has left it open. The new producer asks again when its end is decided.
            await self._fence(shard, entry, fresh_id)
        stored = await self._carry_out(shard, entry, decision)
        return Producer(stored.producer_id, stored.epoch)

    async def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition], version: int
    ) -> None:
        """Puts partitions into the producer's transaction. Raises KafkaError."""
        shard, entry = self._existing(transactional_id)
        decision = decide.add_partitions(
            entry.transaction,
            producer,
            partitions,
            storing=entry.storing,
            now_ms=self._clock.time_ms(),
            version=version,
        )
        await self._carry_out(shard, entry, decision)

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether the producer may write to each partition. Raises KafkaError."""
        _, entry = self._existing(transactional_id)
        return {partition: decide.verify_partition(entry.transaction, producer, partition) for partition in partitions}

    async def end(self, transactional_id: str, producer: Producer, *, commit: bool, version: int) -> Producer:
        """Decides how the transaction ends; the partitions hear of it afterwards.

        Returns the producer's id and epoch for its next transaction. Raises KafkaError.
        """
        shard, entry = self._existing(transactional_id)
        fresh_id = await self._fresh_id(shard, entry)
        decision = decide.end(
            entry.transaction,
            producer,
            commit=commit,
            storing=entry.storing,
            now_ms=self._clock.time_ms(),
            version=version,
            fresh_id=fresh_id,
        )
        stored = await self._carry_out(shard, entry, decision)
        if stored.state.is_prepared and isinstance(decision, Transaction):
            self._finish(shard, entry)
            stored = decide.complete(stored, stored.updated_ms)
        return Producer(stored.producer_id, stored.epoch)

    # Administration

    def describe(self, transactional_id: str) -> Transaction | None:
        """A transaction as it is, a prepared one without the partitions that have its marker; None for an unknown id.

        Raises KafkaError.
        """
        entry = self._shards.of(transactional_id).entries.get(transactional_id)
        if entry is None or not entry.transaction.state.is_prepared:
            return None if entry is None else entry.transaction
        return replace(entry.transaction, partitions=frozenset(entry.unmarked))

    def transactions(self) -> Iterator[Transaction]:
        """All that are coordinated here. Raises COORDINATOR_LOAD_IN_PROGRESS while some are being read."""
        if any(shard.loading for shard in self._shards):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "transactions are being read")
        return (entry.transaction for shard in self._shards for entry in shard.entries.values())

    # Changes

    def _existing(self, transactional_id: str) -> tuple[TransactionShard, TransactionEntry]:
        shard = self._shards.of(transactional_id)
        entry = shard.entries.get(transactional_id)
        if entry is None:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"there is no transactional id {transactional_id!r}"
            )
        return shard, entry

    def _must_hold(self, shard: TransactionShard) -> None:
        if not self._shards.holds(shard):
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{shard} is led by another broker")

    async def _fresh_id(self, shard: TransactionShard, entry: TransactionEntry) -> int:
        """A new producer id when the present one has no epochs left, else -1."""
        fresh_id = NO_PRODUCER_ID
        while entry.transaction.is_epoch_exhausted and fresh_id == NO_PRODUCER_ID:
            fresh_id = await self._producer_ids.next_id()
            self._must_hold(shard)
        return fresh_id

    async def _carry_out(
        self, shard: TransactionShard, entry: TransactionEntry, decision: decide.TransactionDecision
    ) -> Transaction:
        """Stores what was decided; the transaction as it is now. Raises KafkaError."""
        if isinstance(decision, Transaction):
            await self._store(shard, entry, decision, decision.timeout_ms)
        elif decision is not ErrorCode.NONE:
            transaction = entry.transaction
            raise KafkaError(
                decision,
                f"transactional id {transaction.transactional_id!r} is {transaction.state.text} with producer "
                f"{transaction.producer_id} and epoch {transaction.epoch}"
                f"{', and a change of it is being stored' if entry.storing else ''}",
            )
        return entry.transaction

    async def _store(
        self, shard: TransactionShard, entry: TransactionEntry, changed: Transaction, timeout_ms: float
    ) -> None:
        entry.storing = True
        try:
            record = encode_transaction(changed, self.version, self._clock.time_ms())
            await self._shards.append(shard, [record], timeout_ms)
        finally:
            entry.storing = False
        entry.transaction = changed

    async def _fence(self, shard: TransactionShard, entry: TransactionEntry, fresh_id: int) -> None:
        changed = decide.fence(
            entry.transaction,
            now_ms=self._clock.time_ms(),
            version=self.version,
            fresh_id=fresh_id,
            raised=entry.fences,
        )
        if self.version < EPOCH_BUMPED_SINCE:
            # Its producer gets the answer at once, and also when it cannot be stored.
            entry.transaction, entry.fences = decide.with_epoch(entry.transaction, changed.epoch), True
        await self._store(shard, entry, changed, OWN_STORE_TIMEOUT_MS)
        entry.fences = False
        self._finish(shard, entry)

    # The end

    def _finish(self, shard: TransactionShard, entry: TransactionEntry) -> None:
        entry.unmarked = set(entry.transaction.partitions)
        self._shards.spawn(
            self._write_markers_and_complete(shard, entry), f"end of transaction {entry.transaction.transactional_id}"
        )

    async def _write_markers_and_complete(self, shard: TransactionShard, entry: TransactionEntry) -> None:
        prepared = entry.transaction
        try:
            await self._markers.write(
                prepared, entry.unmarked, shard.coordinator_epoch, lambda: self._shards.holds(shard)
            )
        except MarkersRefused as refused:
            _log.warning("Transaction %s cannot be finished by this coordinator of epoch %d: %s",
                         prepared.transactional_id, shard.coordinator_epoch, refused)  # fmt: skip
            return
        while self._shards.holds(shard):
            completed = decide.complete(prepared, self._clock.time_ms())
            try:
                await self._store(shard, entry, completed, OWN_STORE_TIMEOUT_MS)
                return
            except KafkaError as error:
                _log.info("The end of transaction %s could not be stored: %s", prepared.transactional_id, error)
            await tasks.sleep_ms(RETRY_PAUSE_MS)

    # Time

    async def _abort_timed_out(self) -> None:
        now_ms = self._clock.time_ms()
        for shard, entry in self._resting():
            if not decide.is_timed_out(entry.transaction, now_ms):
                continue
            transaction = entry.transaction
            try:
                fresh_id = await self._fresh_id(shard, entry)
                if entry.storing or entry.transaction is not transaction:
                    continue  # it has ended as the id was fetched
                await self._fence(shard, entry, fresh_id)
            except KafkaError as error:
                _log.info("Transaction %s timed out and could not be aborted yet: %s",
                          transaction.transactional_id, error)  # fmt: skip
                continue
            _log.info("Aborts transaction %s of producer %d: it was open for more than %d ms",
                      transaction.transactional_id, transaction.producer_id, transaction.timeout_ms)  # fmt: skip

    async def _forget_expired(self) -> None:
        expiration_ms = self._replicas.config.transactional_id_expiration_ms
        for shard in self._shards:
            now_ms = self._clock.time_ms()
            expired = [
                entry
                for entry in shard.entries.values()
                if not shard.loading
                and not entry.storing
                and decide.is_expired(entry.transaction, now_ms, expiration_ms)
            ]
            for at in range(0, len(expired), FORGOTTEN_AT_ONCE):
                await self._forget(shard, expired[at : at + FORGOTTEN_AT_ONCE])

    async def _forget(self, shard: TransactionShard, entries: list[TransactionEntry]) -> None:
        entries = [entry for entry in entries if not entry.storing]
        names = [entry.transaction.transactional_id for entry in entries]
        for entry in entries:
            entry.storing = True
        now_ms = self._clock.time_ms()
        try:
            await self._shards.append(shard, [encode_tombstone(name, now_ms) for name in names])
        except KafkaError as error:
            _log.info("%d expired transactional ids of %s could not be forgotten: %s", len(names), shard, error)
            return
        finally:
            for entry in entries:
                entry.storing = False
        for name in names:
            del shard.entries[name]

    def _resting(self) -> Iterator[tuple[TransactionShard, TransactionEntry]]:
        """The transactions without a change under way, each checked in its turn: the caller waits in between."""
        for shard in self._shards:
            for entry in list(shard.entries.values()):
                if not shard.loading and not entry.storing and self._shards.holds(shard):
                    yield shard, entry


async def _repeatedly(interval_ms: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await tasks.sleep_ms(interval_ms)
        await work()
