"""One partition of `__consumer_offsets` that this broker leads: groups and offsets, read back from the log.

A new leader epoch changes nothing: groups keep their state while this broker stays their coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from backend.engine.common.unreadable_records import UnreadableRecords
from backend.engine.coordinator.coordinator_shards import CoordinatorShard, CoordinatorShards, ShardKind
from backend.engine.coordinator.group.classic.classic_group import Group, GroupState
from backend.engine.coordinator.group.consumer.consumer_group import ConsumerGroup
from backend.engine.coordinator.group.consumer.consumer_group_records import ConsumerGroupRecord
from backend.engine.coordinator.group.consumer.consumer_heartbeat import resumed
from backend.engine.coordinator.group.group_records import (
    OFFSETS_TOPIC,
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    StoredRecord,
    decode_record,
)
from backend.engine.coordinator.group.subscriptions import subscribed_topics
from backend.engine.coordinator.log_reader import LoadedBatch, batches_of
from backend.engine.ports import tasks
from backend.engine.replica.partition import Partition
from backend.protocol.errors import DecodeError, ErrorCode
from backend.protocol.record_batches.control_records import ControlType, control_type
from backend.tiering.ids import TopicPartition

NEVER: Final = -1


@dataclass(slots=True)
class GroupEntry:
    """A group with what the driver keeps beside its state.

    While `consumer` is there the group is one of the consumer protocol, and `group` is a classic one without members.
    """

    group: Group
    consumer: ConsumerGroup | None = None
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    # Log offset of the record that each committed offset came from: commits may be acknowledged out of order.
    applied: dict[TopicPartition, int] = field(default_factory=dict)
    # Offsets committed in transactions that are open, by producer id, with the log offset of their records.
    pending: dict[int, dict[TopicPartition, tuple[CommittedOffset, int]]] = field(default_factory=dict)
    # Wall clock: since when the group has had no members.
    empty_since_ms: int = NEVER
    timer: tasks.TimerHandle | None = None
    timer_due_ms: float | None = None
    # The latest records of the consumer group on their way to the replicas.
    writing: tasks.Future[None] | None = None

    @property
    def is_empty(self) -> bool:
        """There are no members."""
        return self.group.state is GroupState.EMPTY and (self.consumer is None or not self.consumer.members)

    @property
    def is_unused(self) -> bool:
        """There are neither members, nor any to come, nor offsets."""
        return self.is_empty and not self.group.pending and not self.offsets and not any(self.pending.values())

    @property
    def all_partitions(self) -> set[TopicPartition]:
        """All partitions with offsets, committed or pending."""
        return set(self.offsets).union(*self.pending.values())

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for the partition."""
        return any(partition in offsets for offsets in self.pending.values())

    @property
    def deadline_ms(self) -> float | None:
        """The next deadline of the group."""
        return self.group.deadline_ms if self.consumer is None else self.consumer.deadline_ms

    def forget_consumers(self) -> None:
        """The group of the consumer protocol has been deleted."""
        self.consumer = None

    def expired_offsets(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Offsets that nobody has needed for the retention time, or for the time their commit asked for.

        A group that has had members counts from when the last one left, one that never had from each commit, a living
        one from the commit of topics it does not subscribe to any more (KIP-211, KIP-496).
        """
        if self.consumer is not None:
            return self._expired_of_consumers(self.consumer, now_ms, retention_ms)
        group = self.group
        subscribed = subscribed_topics(group)
        empty = group.state is GroupState.EMPTY
        stable = group.state is GroupState.STABLE and subscribed.topics is not None
        if group.protocol_type is not None and not empty and not stable:
            return []
        since_ms = self.empty_since_ms if group.protocol_type is not None and empty else NEVER
        return [
            partition
            for partition, offset in self.offsets.items()
            if not subscribed.has(partition.topic)
            and offset.expires_ms(since_ms, retention_ms) <= now_ms
            and not self.is_pending(partition)
        ]

    def _expired_of_consumers(self, group: ConsumerGroup, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """A group of the consumer protocol counts from each commit; what it subscribes to stays."""
        subscribed = group.subscribed_topics()
        return [
            partition
            for partition, offset in self.offsets.items()
            if partition.topic not in subscribed and offset.expires_ms(NEVER, retention_ms) <= now_ms
        ]


class GroupShard(CoordinatorShard):
    """Groups by id."""

    topic = OFFSETS_TOPIC

    def __init__(self, index: int, partition: Partition) -> None:
        super().__init__(index, partition)
        self.groups: dict[str, GroupEntry] = {}
        # Groups with pending offsets, by producer id.
        self.pending_groups: dict[int, set[str]] = {}

    @property
    def size(self) -> int:
        return len(self.groups)

    @property
    def is_outdated(self) -> bool:
        # A leader that stays one keeps what it knows, whatever the epoch; what it could not read it tries again.
        return self.failed and self.leader_epoch_changed

    def entry(self, group_id: str) -> GroupEntry:
        """The group's entry, made when there is none."""
        entry = self.groups.get(group_id)
        if entry is None:
            entry = self.groups[group_id] = GroupEntry(Group(group_id))
        return entry

    def drop_if_unused(self, entry: GroupEntry) -> None:
        """A group that never came to be (a refused join, a pending member that stayed away) leaves nothing behind."""
        if entry.group.generation == 0 and entry.consumer is None and entry.is_unused:
            self.groups.pop(entry.group.group_id, None)

    async def load(self, unreadable_records: UnreadableRecords) -> int:
        count = 0
        async for batch in batches_of(self.partition.log, unreadable_records):
            self._replay_batch(batch, unreadable_records)
            count += len(batch.records)
        self._forget_empty()
        return count

    def _replay_batch(self, batch: LoadedBatch, unreadable_records: UnreadableRecords) -> None:
        header = batch.header
        if header.is_control:
            for record in batch.records:
                kind = control_type(record.key)
                if kind in (ControlType.COMMIT, ControlType.ABORT):
                    self.end_pending(header.producer_id, commit=kind == ControlType.COMMIT)
            return
        for record in batch.records:
            try:
                decoded = decode_record(record.key, record.value)
            except DecodeError as error:
                unreadable_records.note(self.topic, self.index, record.offset, str(error))
                continue
            if header.is_transactional and isinstance(decoded, OffsetRecord) and decoded.committed is not None:
                self.apply_pending(
                    header.producer_id, decoded.group_id, decoded.partition, decoded.committed, record.offset
                )
            else:
                self.replay(decoded, record.offset)

    def begin(self, now_ms: float, session_ms_of: Callable[[str], int]) -> None:
        """The log has been read; the sessions of its members begin now."""
        for entry in self.groups.values():
            if entry.consumer is not None:
                entry.consumer = resumed(entry.consumer, now_ms, session_ms_of(entry.consumer.group_id))
            members = {
                name: replace(member, session_deadline_ms=now_ms + member.session_timeout_ms)
                for name, member in entry.group.members.items()
            }
            entry.group = replace(entry.group, members=members)

    def replay(self, record: StoredRecord | None, log_offset: int) -> None:
        """Takes in one record of the log."""
        if record is None:
            return
        if isinstance(record, GroupRecord):
            entry = self.entry(record.group_id)
            entry.group = record.group or Group(record.group_id)
            entry.empty_since_ms = NEVER if entry.group.members else record.changed_time_ms
            return
        if isinstance(record, ConsumerGroupRecord):
            entry = self.entry(record.group_id)
            entry.consumer = record.apply(entry.consumer or ConsumerGroup(record.group_id))
            if entry.consumer == ConsumerGroup(record.group_id):
                # Nothing is left of it, or there was nothing to delete.
                entry.consumer = None
            return
        self.apply_offset(record.group_id, record.partition, record.committed, log_offset)

    def apply_offset(
        self, group_id: str, partition: TopicPartition, committed: CommittedOffset | None, log_offset: int
    ) -> None:
        """A commit or deletion that is in the log at `log_offset`.

        An older one than the last applied changes nothing.
        """
        entry = self.entry(group_id)
        if entry.applied.get(partition, -1) > log_offset:
            return
        if committed is None:
            entry.offsets.pop(partition, None)
            entry.applied.pop(partition, None)
            for offsets in entry.pending.values():
                offsets.pop(partition, None)
        else:
            entry.offsets[partition] = committed
            entry.applied[partition] = log_offset

    def apply_pending(
        self, producer_id: int, group_id: str, partition: TopicPartition, committed: CommittedOffset, log_offset: int
    ) -> None:
        """An offset that is in the log and counts once its transaction is committed."""
        self.entry(group_id).pending.setdefault(producer_id, {})[partition] = (committed, log_offset)
        self.pending_groups.setdefault(producer_id, set()).add(group_id)

    def end_pending(self, producer_id: int, *, commit: bool) -> None:
        """The producer's transaction has ended: its offsets count, or never were."""
        for group_id in self.pending_groups.pop(producer_id, ()):
            entry = self.groups.get(group_id)
            offsets = {} if entry is None else entry.pending.pop(producer_id, {})
            for partition, (committed, log_offset) in offsets.items() if commit else ():
                self.apply_offset(group_id, partition, committed, log_offset)

    def _forget_empty(self) -> None:
        """Groups whose last records were tombstones."""
        for group_id, entry in list(self.groups.items()):
            fresh = entry.group == Group(group_id) and entry.consumer is None
            if fresh and not entry.all_partitions:
                del self.groups[group_id]


GroupShards = CoordinatorShards[GroupShard]
GROUPS: Final = ShardKind("group", GroupShard, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
