"""Records of consumer groups in `__consumer_offsets` (KIP-848): what changed in a group → records → the group again.

`changes` compares two values of a group and writes what differs, in Kafka's order: what members go, who they are,
expressions, the group's epoch, the target, what members own. Formats as Kafka 4.3.1 writes them
(`GroupCoordinatorRecordHelpers`); 4.3 does not write PartitionMetadata any more, metadata_hash is in its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from backend.engine.coordinator.group.consumer.consumer_group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    Current,
    MemberState,
    ResolvedRegex,
    Subscription,
)
from backend.engine.coordinator.group.record_frames import (
    KEY_VERSION,
    VALUE_OFFSET,
    encode_key,
    encode_value,
    value_version,
)
from backend.engine.coordinator.topics_view import AssignablePartition
from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.record_batches.record_codec import RecordData

VALUE_VERSION: Final = 0
_STATES: Final = frozenset(MemberState)


@dataclass(frozen=True, slots=True)
class ConsumerGroupRecord:
    """One record read back: how it changes its group."""

    group_id: str
    apply: Callable[[ConsumerGroup], ConsumerGroup]


# Writing


def changes(before: ConsumerGroup | None, after: ConsumerGroup | None, now_ms: int) -> list[RecordData]:
    """Records that turn one value of a group into the other; None is a group that does not exist."""
    group = after or before
    if group is None:
        return []
    old, new = before or ConsumerGroup(group.group_id), after or ConsumerGroup(group.group_id)
    write = _Writer(group.group_id, now_ms)
    write.removed(old, new)
    if after is None:
        write.delete_group()
        return write.records
    for name, member in new.members.items():
        known_member = old.members.get(name)
        if known_member is None or known_member.subscription != member.subscription:
            write.subscription(member)
    for text, resolved in new.regexes.items():
        if old.regexes.get(text) != resolved:
            write.regex(text, resolved)
    if before is None or (old.epoch, old.metadata_hash) != (new.epoch, new.metadata_hash):
        write.epoch(new)
    for name, target in new.targets.items():
        if old.targets.get(name) != target:
            write.target(name, target)
    if (old.assignment_epoch, old.assignment_time_ms) != (new.assignment_epoch, new.assignment_time_ms):
        write.target_epoch(new)
    for name, member in new.members.items():
        known_member = old.members.get(name)
        if known_member is None or known_member.current != member.current:
            write.current(name, member.current)
    return write.records


class _Writer:
    """Records of one group."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id, self.now_ms = group_id, now_ms
        self.records: list[RecordData] = []

    def _add(self, key: m.Message, value: m.Message | None) -> None:
        written = None if value is None else encode_value(value, VALUE_VERSION)
        self.records.append(RecordData(self.now_ms, encode_key(key), written))

    def removed(self, old: ConsumerGroup, new: ConsumerGroup) -> None:
        removed = [name for name in old.members if name not in new.members]
        for name in removed:
            self._add(m.ConsumerGroupCurrentMemberAssignmentKey(group_id=self.group_id, member_id=name), None)
        for name in old.targets:
            if name not in new.targets:
                self._add(m.ConsumerGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=name), None)
        for name in removed:
            self._add(m.ConsumerGroupMemberMetadataKey(group_id=self.group_id, member_id=name), None)
        for text in old.regexes:
            if text not in new.regexes:
                self._add(m.ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=text), None)

    def delete_group(self) -> None:
        self._add(m.ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id), None)
        self._add(m.ConsumerGroupMetadataKey(group_id=self.group_id), None)

    def subscription(self, member: ConsumerMember) -> None:
        subscription = member.subscription
        value = m.ConsumerGroupMemberMetadataValue
        classic = None
        if subscription.classic is not None:
            classic = value.ClassicMemberMetadata(
                session_timeout_ms=subscription.classic.session_timeout_ms,
                supported_protocols=[
                    value.ClassicMemberMetadata.SupportedProtocols(name=name, metadata=metadata)
                    for name, metadata in subscription.classic.protocols
                ],
            )
        self._add(
            m.ConsumerGroupMemberMetadataKey(group_id=self.group_id, member_id=member.member_id),
            value(
                instance_id=subscription.instance_id,
                rack_id=subscription.rack_id,
                client_id=subscription.client_id,
                client_host=subscription.client_host,
                subscribed_topic_names=sorted(subscription.topics),
                subscribed_topic_regex=subscription.regex,
                rebalance_timeout_ms=subscription.rebalance_timeout_ms,
                server_assignor=subscription.assignor,
                classic_member_metadata=classic,
            ),
        )

    def regex(self, text: str, resolved: ResolvedRegex) -> None:
        self._add(
            m.ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=text),
            m.ConsumerGroupRegularExpressionValue(
                topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.time_ms
            ),
        )

    def epoch(self, group: ConsumerGroup) -> None:
        self._add(
            m.ConsumerGroupMetadataKey(group_id=self.group_id),
            m.ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash),
        )

    def target(self, name: str, target: frozenset[AssignablePartition]) -> None:
        value = m.ConsumerGroupTargetAssignmentMemberValue
        self._add(
            m.ConsumerGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=name),
            value(
                topic_partitions=[
                    value.TopicPartitions(topic_id=topic, partitions=partitions)
                    for topic, partitions in by_topic(target).items()
                ]
            ),
        )

    def target_epoch(self, group: ConsumerGroup) -> None:
        self._add(
            m.ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id),
            m.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=group.assignment_epoch, assignment_timestamp=group.assignment_time_ms
            ),
        )

    def current(self, name: str, current: Current) -> None:
        value = m.ConsumerGroupCurrentMemberAssignmentValue
        assigned, revoking = value.AssignedPartitions, value.PartitionsPendingRevocation
        self._add(
            m.ConsumerGroupCurrentMemberAssignmentKey(group_id=self.group_id, member_id=name),
            value(
                member_epoch=current.epoch,
                previous_member_epoch=current.previous_epoch,
                state=current.state,
                assigned_partitions=[
                    assigned(topic_id=topic, partitions=at, assignment_epochs=epochs)
                    for topic, at, epochs in _with_epochs(current.assigned)
                ],
                partitions_pending_revocation=[
                    revoking(topic_id=topic, partitions=at, assignment_epochs=epochs)
                    for topic, at, epochs in _with_epochs(current.revoking)
                ],
            ),
        )


def by_topic(partitions: Iterable[AssignablePartition]) -> dict[bytes, list[int]]:
    """Indexes by topic id, both ascending."""
    indexes: dict[bytes, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        indexes[topic].append(index)
    return indexes


def _with_epochs(owned: Mapping[AssignablePartition, int]) -> Iterator[tuple[bytes, list[int], list[int]]]:
    for topic, indexes in by_topic(owned).items():
        yield topic, indexes, [owned[topic, index] for index in indexes]


# Reading


def decode_consumer_record(kind: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord | None:
    """A record of a consumer group; None for other kinds. Raises DecodeError."""
    reader = _READERS.get(kind)
    if reader is None:
        return None
    key_type, value_type, read = reader
    named: Any = codec.decode(key_type, KEY_VERSION, key, VALUE_OFFSET)[0]
    message = None if value is None else codec.decode(value_type, value_version(value), value, VALUE_OFFSET)[0]
    return read(named, message)


def _read_group(key: m.ConsumerGroupMetadataKey, value: m.ConsumerGroupMetadataValue | None) -> ConsumerGroupRecord:
    if value is None:
        return ConsumerGroupRecord(key.group_id, lambda group: ConsumerGroup(group.group_id))
    return ConsumerGroupRecord(
        key.group_id, lambda group: replace(group, epoch=value.epoch, metadata_hash=value.metadata_hash)
    )


def _read_target_epoch(
    key: m.ConsumerGroupTargetAssignmentMetadataKey, value: m.ConsumerGroupTargetAssignmentMetadataValue | None
) -> ConsumerGroupRecord:
    fresh = ConsumerGroup(key.group_id)
    epoch, time_ms = fresh.assignment_epoch, fresh.assignment_time_ms
    if value is not None:
        epoch, time_ms = value.assignment_epoch, value.assignment_timestamp
    return ConsumerGroupRecord(
        key.group_id, lambda group: replace(group, assignment_epoch=epoch, assignment_time_ms=time_ms)
    )


def _read_target(
    key: m.ConsumerGroupTargetAssignmentMemberKey, value: m.ConsumerGroupTargetAssignmentMemberValue | None
) -> ConsumerGroupRecord:
    target = None
    if value is not None:
        target = frozenset(
            (bytes(topic_partition.topic_id), index)
            for topic_partition in value.topic_partitions
            for index in topic_partition.partitions
        )
    return ConsumerGroupRecord(
        key.group_id, lambda group: replace(group, targets=_with(group.targets, key.member_id, target))
    )


def _read_regex(
    key: m.ConsumerGroupRegularExpressionKey, value: m.ConsumerGroupRegularExpressionValue | None
) -> ConsumerGroupRecord:
    resolved = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    return ConsumerGroupRecord(
        key.group_id, lambda group: replace(group, regexes=_with(group.regexes, key.regular_expression, resolved))
    )


def _read_subscription(
    key: m.ConsumerGroupMemberMetadataKey, value: m.ConsumerGroupMemberMetadataValue | None
) -> ConsumerGroupRecord:
    subscription = None if value is None else _subscription(value)

    def apply(group: ConsumerGroup) -> ConsumerGroup:
        if subscription is None:
            return replace(group, members=_with(group.members, key.member_id, None))
        member = replace(group.members.get(key.member_id, ConsumerMember(key.member_id)), subscription=subscription)
        return replace(group, members=_with(group.members, key.member_id, member))

    return ConsumerGroupRecord(key.group_id, apply)


def _subscription(value: m.ConsumerGroupMemberMetadataValue) -> Subscription:
    stored = value.classic_member_metadata
    classic = None
    if stored is not None:
        protocols = tuple(
            (supported_protocol.name, bytes(supported_protocol.metadata))
            for supported_protocol in stored.supported_protocols
        )
        classic = ClassicMember(stored.session_timeout_ms, protocols)
    return Subscription(
        client_id=value.client_id,
        client_host=value.client_host,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=classic,
    )


def _read_current(
    key: m.ConsumerGroupCurrentMemberAssignmentKey, value: m.ConsumerGroupCurrentMemberAssignmentValue | None
) -> ConsumerGroupRecord:
    current = Current()
    if value is not None:
        current = Current(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if value.state in _STATES else MemberState.UNKNOWN,
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
        )

    def apply(group: ConsumerGroup) -> ConsumerGroup:
        member = group.members.get(key.member_id)
        if member is None:
            if value is None:
                return group
            # The log may have been compacted so that its subscription comes later.
            member = ConsumerMember(key.member_id)
        return replace(group, members=_with(group.members, key.member_id, replace(member, current=current)))

    return ConsumerGroupRecord(key.group_id, apply)


def _owned(
    stored: Iterable[
        m.ConsumerGroupCurrentMemberAssignmentValue.AssignedPartitions
        | m.ConsumerGroupCurrentMemberAssignmentValue.PartitionsPendingRevocation
    ],
    epoch: int,
) -> dict[AssignablePartition, int]:
    """Partitions with their epochs; versions before 4.3 stored none, then the member's own counts."""
    owned: dict[AssignablePartition, int] = {}
    for topic in stored:
        epochs = topic.assignment_epochs or [epoch] * len(topic.partitions)
        owned.update(((bytes(topic.topic_id), at), since) for at, since in zip(topic.partitions, epochs, strict=False))
    return owned


def _with(mapping: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """The mapping with a name set, or without it when the value is None."""
    changed = dict(mapping)
    if value is None:
        changed.pop(name, None)
    else:
        changed[name] = value
    return changed


_READERS: Final[dict[int, tuple[type[m.Message], type[m.Message], Callable[[Any, Any], ConsumerGroupRecord]]]] = {
    m.ConsumerGroupMetadataKey.KEY: (m.ConsumerGroupMetadataKey, m.ConsumerGroupMetadataValue, _read_group),
    m.ConsumerGroupMemberMetadataKey.KEY: (
        m.ConsumerGroupMemberMetadataKey, m.ConsumerGroupMemberMetadataValue, _read_subscription,
    ),
    m.ConsumerGroupTargetAssignmentMetadataKey.KEY: (
        m.ConsumerGroupTargetAssignmentMetadataKey, m.ConsumerGroupTargetAssignmentMetadataValue, _read_target_epoch,
    ),
    m.ConsumerGroupTargetAssignmentMemberKey.KEY: (
        m.ConsumerGroupTargetAssignmentMemberKey, m.ConsumerGroupTargetAssignmentMemberValue, _read_target,
    ),
    m.ConsumerGroupCurrentMemberAssignmentKey.KEY: (
        m.ConsumerGroupCurrentMemberAssignmentKey, m.ConsumerGroupCurrentMemberAssignmentValue, _read_current,
    ),
    m.ConsumerGroupRegularExpressionKey.KEY: (
        m.ConsumerGroupRegularExpressionKey, m.ConsumerGroupRegularExpressionValue, _read_regex,
    ),
}  # fmt: skip
