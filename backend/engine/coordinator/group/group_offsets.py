"""Offsets that groups commit: checked against the group's members, stored, looked up and deleted.

Kafka: `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol

from backend.engine.coordinator.group.classic.classic_step import check_commit, check_transactional_commit
from backend.engine.coordinator.group.consumer.consumer_heartbeat import check_commit as check_consumer_commit
from backend.engine.coordinator.group.consumer.consumer_heartbeat import check_fetch
from backend.engine.coordinator.group.group_records import OFFSETS_TOPIC, CommittedOffset
from backend.engine.coordinator.group.group_shard import GroupShards
from backend.engine.coordinator.group.offset_store import OffsetStore
from backend.engine.coordinator.group.subscriptions import Subscriptions, subscribed_topics
from backend.engine.coordinator.group.transactional_offsets import TransactionalCommit, TransactionalOffsets
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition


class KeepMember(Protocol):
    """A commit of a classic group's member counts as its heartbeat."""

    def __call__(self, group_id: str, *, member_id: str, instance_id: str | None, generation: int) -> ErrorCode: ...


class GroupOffsets:
    """Committed offsets of the groups that this broker coordinates."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        shards: GroupShards,
        stored: OffsetStore,
        in_transactions: TransactionalOffsets,
        heartbeat: KeepMember,
    ) -> None:
        self._replicas = replica_manager
        self._shards = shards
        self._stored = stored
        self._in_transactions = in_transactions
        self._heartbeat = heartbeat

    async def commit(
        self,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        version: int,
    ) -> dict[TopicPartition, ErrorCode]:
        """Stores offsets; one code for each. `version` is OffsetCommit's: old ones have no code for stale epochs.

        Raises KafkaError when the group refuses all of them, GROUP_ID_NOT_FOUND when a generation of none is named.
        """
        shard = self._shards.of(group_id)
        entry = shard.groups.get(group_id)
        if entry is None and generation >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        entry = shard.entry(group_id)
        if entry.consumer is None:
            error = check_commit(entry.group, member_id, instance_id, generation)
        else:
            partitions = [(offset.topic_id, partition.partition) for partition, offset in offsets.items()]
            error = check_consumer_commit(entry.consumer, member_id, generation, partitions, version)
        if error is not ErrorCode.NONE:
            shard.drop_if_unused(entry)
            raise KafkaError(error, f"group {group_id!r} refuses the commit of member {member_id!r}")
        if generation >= 0 and entry.consumer is None:
            self._heartbeat(group_id, member_id=member_id, instance_id=instance_id, generation=generation)
        stored = self._short_enough(offsets)
        error = await self._stored.store(shard, group_id, stored)
        shard.drop_if_unused(entry)
        return _codes(offsets, stored, error)

    async def commit_in_transaction(
        self,
        group_id: str,
        commit: TransactionalCommit,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> dict[TopicPartition, ErrorCode]:
        """Stores offsets that count once the transaction is committed; one code for each.

        Raises KafkaError when the group refuses all of them.
        """
        shard = self._shards.of(group_id)
        entry = shard.groups.get(group_id)
        if entry is None and generation >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {group_id!r}")
        entry = shard.entry(group_id)
        if entry.consumer is None:
            error = check_transactional_commit(entry.group, member_id, instance_id, generation)
        else:
            partitions = [(offset.topic_id, partition.partition) for partition, offset in offsets.items()]
            error = check_consumer_commit(entry.consumer, member_id, generation, partitions, None)
            if error is ErrorCode.STALE_MEMBER_EPOCH:
                # Producers know the older code only.
                error = ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            shard.drop_if_unused(entry)
            raise KafkaError(error, f"group {group_id!r} refuses the commit of member {member_id!r}")
        stored = self._short_enough(offsets)
        error = await self._in_transactions.store(shard, group_id, commit, stored)
        shard.drop_if_unused(entry)
        return _codes(offsets, stored, error)

    def _short_enough(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, CommittedOffset]:
        size_max = self._replicas.config.offset_metadata_max_bytes
        return {partition: offset for partition, offset in offsets.items() if len(offset.metadata) <= size_max}

    async def end_transaction(
        self, index: int, producer: Producer, *, commit: bool, coordinator_epoch: int, timeout_ms: float
    ) -> None:
        """Writes a transaction's marker to a partition of `__consumer_offsets` and lets its offsets count, or drops
        them. Raises KafkaError; NOT_LEADER_OR_FOLLOWER as long as this broker does not coordinate the partition.
        """
        shard = self._shards.at(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{OFFSETS_TOPIC}-{index} is not coordinated here yet")
        await self._in_transactions.end(
            shard, producer, commit=commit, coordinator_epoch=coordinator_epoch, timeout_ms=timeout_ms
        )

    def unstable_partitions(self, group_id: str) -> frozenset[TopicPartition]:
        """Partitions for which a transaction that is open has offsets of the group. Raises KafkaError."""
        entry = self._shards.of(group_id).groups.get(group_id)
        return frozenset() if entry is None else frozenset().union(*entry.pending.values())

    def of(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Committed offsets; empty for an unknown group. Raises KafkaError, also for a stale member."""
        entry = self._shards.of(group_id).groups.get(group_id)
        if entry is None:
            return {}
        if entry.consumer is not None:
            error = check_fetch(entry.consumer, member_id, member_epoch)
            if error is not ErrorCode.NONE:
                raise KafkaError(error, f"group {group_id!r} refuses the fetch of member {member_id!r}")
        return entry.offsets

    async def delete(self, group_id: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Removes committed offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP and those of finding the group."""
        shard = self._shards.of(group_id)
        entry = shard.groups.get(group_id)
        if entry is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        if entry.group.members and entry.group.protocol_type != "consumer":
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id!r} has members")
        subscribed = subscribed_topics(entry.group)
        if entry.consumer is not None:
            subscribed = Subscriptions(entry.consumer.subscribed_topics(), when_unknown=True)
        codes = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed.has(partition.topic) else ErrorCode.NONE
            for partition in partitions
        }
        deleted = [
            partition
            for partition, code in codes.items()
            if code is ErrorCode.NONE and partition in entry.all_partitions
        ]
        error = await self._stored.delete(shard, group_id, deleted)
        return {partition: error if partition in deleted else code for partition, code in codes.items()}


def _codes(
    offsets: Iterable[TopicPartition], stored: Container[TopicPartition], error: ErrorCode
) -> dict[TopicPartition, ErrorCode]:
    """A code for each offset: the result of storing it, or that its metadata was too long."""
    return {offset: error if offset in stored else ErrorCode.OFFSET_METADATA_TOO_LARGE for offset in offsets}
