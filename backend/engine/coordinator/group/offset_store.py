"""Committed offsets: written, deleted, expired, and with the last of them the unused group (KIP-211)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from backend.engine.config import BrokerConfig
from backend.engine.coordinator.group.consumer.consumer_group_records import changes
from backend.engine.coordinator.group.group_records import (
    CommittedOffset,
    OffsetRecord,
    encode_group_tombstone,
    encode_offset,
)
from backend.engine.coordinator.group.group_shard import GroupEntry, GroupShard, GroupShards
from backend.engine.ports import Clock, tasks
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

MINUTE_MS: Final = 60_000
# Tombstones in one batch: far below max.message.bytes with the longest names.
DELETED_AT_ONCE: Final = 500


class OffsetStore:
    """The committed offsets of the groups of all shards."""

    def __init__(self, config: BrokerConfig, clock: Clock, shards: GroupShards) -> None:
        self._config = config
        self._clock = clock
        self._shards = shards

    async def store(
        self, shard: GroupShard, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | None]
    ) -> ErrorCode:
        """Writes commits and deletions (None); they count once they are replicated."""
        if not offsets:
            return ErrorCode.NONE
        now_ms = self._clock.time_ms()
        records = [
            encode_offset(OffsetRecord(group_id, partition, offset), now_ms) for partition, offset in offsets.items()
        ]
        try:
            first = await self._shards.append(shard, records)
        except KafkaError as error:
            return error.code
        for at, (partition, offset) in enumerate(offsets.items()):
            shard.apply_offset(group_id, partition, offset, first + at)
        return ErrorCode.NONE

    async def delete(self, shard: GroupShard, group_id: str, partitions: Sequence[TopicPartition]) -> ErrorCode:
        """Deletes offsets in as many batches as it takes."""
        for at in range(0, len(partitions), DELETED_AT_ONCE):
            error = await self.store(shard, group_id, dict.fromkeys(partitions[at : at + DELETED_AT_ONCE]))
            if error is not ErrorCode.NONE:
                return error
        return ErrorCode.NONE

    async def remove_group(self, shard: GroupShard, entry: GroupEntry) -> ErrorCode:
        """Deletes a group without members and its offsets."""
        group_id = entry.group.group_id
        error = await self.delete(shard, group_id, list(entry.all_partitions))
        if error is not ErrorCode.NONE:
            return error
        if not entry.is_empty:
            # Members that came in the meantime keep the group.
            return ErrorCode.NON_EMPTY_GROUP
        now_ms = self._clock.time_ms()
        tombstones = [encode_group_tombstone(group_id, now_ms)]
        if entry.consumer is not None:
            tombstones = changes(entry.consumer, None, now_ms)
        try:
            await self._shards.append(shard, tombstones, appended=entry.forget_consumers)
        except KafkaError as failure:
            return failure.code
        if shard.groups.get(group_id) is entry and entry.is_unused:
            if entry.timer is not None:
                entry.timer.cancel()
            del shard.groups[group_id]
        return ErrorCode.NONE

    async def forget_topics(self, topics: Collection[str]) -> None:
        """Deletes the offsets of topics that are gone."""
        for shard in self._shards:
            for group_id, entry in list(shard.groups.items()):
                await self.delete(
                    shard,
                    group_id,
                    [all_partition for all_partition in entry.all_partitions if all_partition.topic in topics],
                )

    async def expire_repeatedly(self) -> None:
        """`expire` at the broker's interval, for ever."""
        while True:
            await tasks.sleep_ms(self._config.offsets_retention_check_interval_ms)
            await self.expire()

    async def expire(self) -> None:
        """Deletes expired offsets, and groups without members that have none left."""
        now_ms = self._clock.time_ms()
        retention_ms = self._config.offsets_retention_minutes * MINUTE_MS
        for shard in self._shards:
            for group_id, entry in list(shard.groups.items()):
                if shard.loading:
                    break
                expired = entry.expired_offsets(now_ms, retention_ms)
                await self.delete(shard, group_id, expired)
                if entry.is_unused:
                    await self.remove_group(shard, entry)
