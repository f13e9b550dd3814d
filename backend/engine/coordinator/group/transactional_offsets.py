"""Offsets that a group commits in a transaction: kept apart until the transaction ends (KIP-98, KIP-447).

They are records of `__consumer_offsets` with a producer id; the marker that ends the transaction is in the same
partition. Kafka: `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from backend.engine.coordinator.group.group_records import OFFSETS_TOPIC, CommittedOffset, OffsetRecord, encode_offset
from backend.engine.coordinator.group.group_shard import GroupShard, GroupShards
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.engine.coordinator.transaction.transaction_verifier import TransactionVerifier, VerificationRequest
from backend.engine.log.producers.transaction_verification import VerificationStateEntry
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.control_records import end_txn_marker
from backend.protocol.record_batches.record_batch import BatchHeader, build_batch, parse_header
from backend.tiering.ids import TopicPartition


class TransactionalCommit(NamedTuple):
    """The owner of a commit's offsets. With `adds_partition` the coordinator puts the partition into the transaction
    (KIP-890); older producers have done so themselves. `knows_abortable`: the client knows TRANSACTION_ABORTABLE.
    """

    transactional_id: str
    producer: Producer
    adds_partition: bool
    knows_abortable: bool


class TransactionalOffsets:
    """Writes pending offsets and the markers that end them."""

    def __init__(self, replicas: ReplicaManager, shards: GroupShards, verifier: TransactionVerifier) -> None:
        self._replicas = replicas
        self._clock = replicas.clock
        self._shards = shards
        self._verifier = verifier

    async def store(
        self,
        shard: GroupShard,
        group_id: str,
        commit: TransactionalCommit,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> ErrorCode:
        """Writes offsets that count once the transaction is committed."""
        if not offsets:
            return ErrorCode.NONE
        now_ms = self._clock.time_ms()
        producer = commit.producer
        records = [
            encode_offset(OffsetRecord(group_id, partition, offset), now_ms) for partition, offset in offsets.items()
        ]
        batch = build_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        try:
            await self._confirm(shard, commit, parse_header(batch))
            first = await self._shards.append_batch(shard, batch)
        except KafkaError as error:
            return error.code
        for at, (partition, offset) in enumerate(offsets.items()):
            shard.apply_pending(producer.producer_id, group_id, partition, offset, first + at)
        return ErrorCode.NONE

    async def _confirm(self, shard: GroupShard, commit: TransactionalCommit, header: BatchHeader) -> None:
        producers = shard.partition.log.producer_state
        producer = commit.producer
        if not self._replicas.config.transaction_partition_verification_enable or producers.has_open_transaction(
            producer.producer_id, producer.epoch
        ):
            return
        producers.check_epoch(header)
        partition = TopicPartition(OFFSETS_TOPIC, shard.index)
        verification = producers.verifications.begin(
            header, bumps_epoch=commit.adds_partition, now_ms=self._clock.time_ms()
        )
        codes = await self._verifier.ask(
            VerificationRequest(commit.transactional_id, producer, (partition,), commit.adds_partition)
        )
        code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        if code is not ErrorCode.NONE:
            raise KafkaError(_as_known(code, commit), f"the coordinator of the transaction refuses {partition}")
        self._check_unended(shard, header, verification)

    def _check_unended(self, shard: GroupShard, header: BatchHeader, verification: VerificationStateEntry) -> None:
        producers = shard.partition.log.producer_state
        if not producers.has_open_transaction(header.producer_id, header.producer_epoch):
            producers.check_epoch(header)
            producers.verifications.check(header, verification, knows_producer=True)

    async def end(
        self, shard: GroupShard, producer: Producer, *, commit: bool, coordinator_epoch: int, timeout_ms: float
    ) -> None:
        """Writes a marker; what was pending counts, or is dropped, once the marker is replicated. Raises KafkaError."""
        marker = end_txn_marker(
            commit=commit,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=self._clock.time_ms(),
        )
        await self._shards.append_batch(shard, marker, timeout_ms)
        shard.end_pending(producer.producer_id, commit=commit)


def _as_known(code: ErrorCode, commit: TransactionalCommit) -> ErrorCode:
    """The error code for a client of TxnOffsetCommit, which handles only some."""
    match code:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.TRANSACTION_ABORTABLE:
            return code if commit.knows_abortable else ErrorCode.INVALID_TXN_STATE
        case (
            ErrorCode.CONCURRENT_TRANSACTIONS
            | ErrorCode.INVALID_PRODUCER_ID_MAPPING
            | ErrorCode.INVALID_PRODUCER_EPOCH
            | ErrorCode.INVALID_REQUEST
        ):
            return code
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
