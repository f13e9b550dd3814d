"""One partition of `__consumer_offsets` that this broker leads: groups and offsets, read back from the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from backend.engine.coordinator.group import Group
from backend.engine.coordinator.group_records import CommittedOffset, GroupRecord, StoredRecord, decode_record
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import tasks
from backend.protocol.batch import iter_batches, iter_records
from backend.tiering.ids import TopicPartition

# offsets.load.buffer.size of Kafka: bytes read at once; other tasks get a turn in between.
LOAD_BYTES: Final = 5 << 20
NEVER: Final = -1


@dataclass(slots=True)
class GroupEntry:
    """A group with what the driver keeps beside its state."""

    group: Group
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    # Log offset of the record that each committed offset came from: commits may be acknowledged out of order.
    applied: dict[TopicPartition, int] = field(default_factory=dict)
    # Wall clock: since when the group has had no members.
    empty_since_ms: int = NEVER
    timer: tasks.TimerHandle | None = None
    timer_due_ms: float | None = None


class Shard:
    """Groups by id. `loading` until the log has been read."""

    def __init__(self, index: int, leader_epoch: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.loading = True
        self.groups: dict[str, GroupEntry] = {}

    def entry(self, group_id: str) -> GroupEntry:
        """The group's entry, made when there is none."""
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = GroupEntry(Group(group_id))
        return found

    async def load(self, log: UnifiedLog, now_ms: float) -> int:
        """Reads the whole log; how many records. Raises KafkaError or DecodeError."""
        offset, count = log.log_start_offset, 0
        while offset < log.log_end_offset:
            info = log.read(offset, LOAD_BYTES, up_to_offset=log.log_end_offset, min_one_message=True)
            next_offset = offset
            for position, header in iter_batches(info.records):
                next_offset = header.next_offset
                if header.is_control:
                    continue
                for record in iter_records(info.records, position):
                    if record.offset >= offset:
                        self.replay(decode_record(record.key, record.value, now_ms), record.offset)
                        count += 1
            if next_offset == offset:
                break
            offset = next_offset
            await tasks.sleep_ms(0)
        self._forget_empty()
        return count

    def replay(self, record: StoredRecord | None, log_offset: int) -> None:
        """Takes in one record of the log."""
        if record is None:
            return
        if isinstance(record, GroupRecord):
            entry = self.entry(record.group_id)
            entry.group = record.group or Group(record.group_id)
            entry.empty_since_ms = NEVER if entry.group.members else record.changed_time_ms
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
        else:
            entry.offsets[partition] = committed
            entry.applied[partition] = log_offset

    def _forget_empty(self) -> None:
        """Groups whose last records were tombstones."""
        for group_id, entry in list(self.groups.items()):
            fresh = entry.group == Group(group_id)
            if fresh and not entry.offsets:
                del self.groups[group_id]
