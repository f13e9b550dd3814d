"""Records of `__consumer_offsets`: groups and committed offsets ↔ keys and values (`GroupCoordinatorRecordHelpers` of
Kafka).

A key begins with an int16 that says what the record is; a value begins with the int16 version of its message. A record
without a value deletes what its key names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from backend.engine.coordinator.group.classic.classic_group import Group, GroupState, Member
from backend.engine.coordinator.group.consumer.consumer_group_records import ConsumerGroupRecord, decode_consumer_record
from backend.engine.coordinator.group.record_frames import (
    KEY_VERSION,
    VALUE_OFFSET,
    encode_key,
    encode_value,
    key_kind,
    value_version,
)
from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.record_codec import RecordData
from backend.tiering.ids import ZERO_UUID, TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"
# Key types: both are offsets, 0 in the form of clients older than 0.9.
_OFFSET_KEYS: Final = (m.LegacyOffsetCommitKey.KEY, m.OffsetCommitKey.KEY)
# The versions that 4.3.1 writes. Only version 1 of an offset has an expiry that the client chose.
GROUP_VALUE_VERSION: Final = 3
OFFSET_VALUE_VERSION: Final = 4
EXPIRING_OFFSET_VALUE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's committed offset of a partition. Times are ms since 1970; expire -1 means by the broker's retention."""

    offset: int
    leader_epoch: int  # -1 when the client gave none
    metadata: str
    commit_time_ms: int
    expire_time_ms: int = -1
    topic_id: bytes = ZERO_UUID

    def expires_ms(self, since_ms: int, retention_ms: int) -> int:
        """The time of its expiry: the client's, else the retention after `since_ms`, or after the commit if -1."""
        if self.expire_time_ms >= 0:
            return self.expire_time_ms
        return (self.commit_time_ms if since_ms < 0 else since_ms) + retention_ms


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A commit, or its deletion."""

    group_id: str
    partition: TopicPartition
    committed: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A group as it was stored, or its deletion. `changed_time_ms` is when it got its state."""

    group_id: str
    group: Group | None
    changed_time_ms: int = -1


StoredRecord = OffsetRecord | GroupRecord | ConsumerGroupRecord


def coordinator_partition(group_id: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that holds a group: `Utils.abs(groupId.hashCode()) % partitions`."""
    code = 0
    units = group_id.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFF_FFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    # Kafka's abs maps the smallest int to 0.
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def encode_offset(record: OffsetRecord, now_ms: int) -> RecordData:
    """A commit or its tombstone."""
    partition, committed = record.partition, record.committed
    key = encode_key(m.OffsetCommitKey(group=record.group_id, topic=partition.topic, partition=partition.partition))
    if committed is None:
        return RecordData(now_ms, key, None)
    value = m.OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_time_ms,
        expire_timestamp=committed.expire_time_ms,
        topic_id=committed.topic_id,
    )
    version = EXPIRING_OFFSET_VALUE_VERSION if committed.expire_time_ms >= 0 else OFFSET_VALUE_VERSION
    return RecordData(now_ms, key, encode_value(value, version))


def encode_group(group: Group, now_ms: int) -> RecordData:
    """A group with its members and their assignments, at `now_ms` of the wall clock."""
    value = m.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=now_ms,
        members=[
            m.GroupMetadataValue.Members(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return RecordData(
        now_ms, encode_key(m.GroupMetadataKey(group=group.group_id)), encode_value(value, GROUP_VALUE_VERSION)
    )


def encode_group_tombstone(group_id: str, now_ms: int) -> RecordData:
    """The deletion of a group."""
    return RecordData(now_ms, encode_key(m.GroupMetadataKey(group=group_id)), None)


def decode_record(key: bytes | None, value: bytes | None) -> StoredRecord | None:
    """A decoded record; None for kinds that this coordinator does not keep (share and streams groups).

    Sessions of members have no end yet: they begin when the whole log has been read. Raises DecodeError.
    """
    if key is None:
        raise DecodeError("a record of __consumer_offsets has no key")
    kind = key_kind(key)
    if kind in _OFFSET_KEYS:
        # Both key kinds have the same fields.
        message, _ = codec.decode(m.OffsetCommitKey, KEY_VERSION, key, VALUE_OFFSET)
        return OffsetRecord(message.group, TopicPartition(message.topic, message.partition), _decode_offset(value))
    if kind == m.GroupMetadataKey.KEY:
        named, _ = codec.decode(m.GroupMetadataKey, KEY_VERSION, key, VALUE_OFFSET)
        return _decode_group(named.group, value)
    return decode_consumer_record(kind, key, value)


def _decode_offset(value: bytes | None) -> CommittedOffset | None:
    if value is None:
        return None
    message, _ = codec.decode(m.OffsetCommitValue, value_version(value), value, VALUE_OFFSET)
    return CommittedOffset(
        message.offset,
        message.leader_epoch,
        message.metadata,
        message.commit_timestamp,
        message.expire_timestamp,
        bytes(message.topic_id),
    )


def _decode_group(group_id: str, value: bytes | None) -> GroupRecord:
    if value is None:
        return GroupRecord(group_id, None)
    message, _ = codec.decode(m.GroupMetadataValue, value_version(value), value, VALUE_OFFSET)
    members = {
        stored.member_id: Member(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout,
            rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
            protocols=((message.protocol or "", bytes(stored.subscription)),),
            assignment=bytes(stored.assignment),
        )
        for stored in message.members
    }
    group = Group(
        group_id,
        state=GroupState.STABLE if members else GroupState.EMPTY,
        generation=message.generation,
        protocol_type=message.protocol_type or None,
        protocol_name=message.protocol if members else None,
        leader=(message.leader if message.leader in members else next(iter(members), None)) if members else None,
        members=members,
    )
    return GroupRecord(group_id, group, message.current_state_timestamp)
