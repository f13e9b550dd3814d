"""Members of the classic protocol in a consumer group, and groups that change from one protocol to the other (KIP-848).

While a deployment is upgraded, some of its members still join and sync. In a consumer group no member waits for others:
a join is answered at once with what its member may have now, and a heartbeat sends it to join again until it has its
target. Kafka: `GroupMetadataManager.classicGroup*ToConsumerGroup`, `ConsumerGroup.fromClassicGroup`,
`ClassicGroup.fromConsumerGroup`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from backend.engine.coordinator.group.classic.classic_group import (
    Group,
    GroupEffect,
    GroupHeartbeat,
    GroupState,
    Join,
    JoinResult,
    Leave,
    Member,
    ReplyJoin,
    ReplySync,
    Sync,
    SyncResult,
)
from backend.engine.coordinator.group.classic.rebalance import select_protocol
from backend.engine.coordinator.group.consumer.consumer_group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    Current,
    MemberState,
    Subscription,
)
from backend.engine.coordinator.group.consumer.consumer_group_update import ConsumerGroupUpdate, ConsumerLimits
from backend.engine.coordinator.group.consumer.consumer_heartbeat import stale
from backend.engine.coordinator.group.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_assignment,
)
from backend.engine.coordinator.topics_view import AssignablePartition, TopicsView
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError

# Members


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of a join: the group, the response, and the member that a static member replaced."""

    group: ConsumerGroup
    result: JoinResult
    replaced: str | None = None


def join(group: ConsumerGroup, event: Join, topics: TopicsView, limits: ConsumerLimits, time_ms: int) -> Joined:
    """A member of the classic protocol joins or joins again. Raises KafkaError."""
    update = ConsumerGroupUpdate(group, topics, limits, event.now_ms, time_ms)
    member_id = event.member_id or event.fresh_id
    update.refuse_when_full(member_id)
    if not supports_protocol(group, event):
        text = f"Member {member_id}'s protocols are not supported."
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)
    if not event.member_id and event.instance_id is None and event.requires_known_member:
        # KIP-394; the id is not stored: any member that comes with an id is admitted.
        return Joined(group, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    old = group.static_member(event.instance_id)
    if event.instance_id is None:
        member = update.members.get(member_id, ConsumerMember(member_id))
    elif event.member_id:
        member = update.find_static(event.instance_id, member_id)
    else:
        member = update.join_static(event.instance_id, member_id, by_classic=True)
    name, metadata = event.protocols[0]
    try:
        member_subscription = read_subscription(metadata, topics)
    except DecodeError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Protocol {name} cannot be read: {error}.") from error
    before = member.subscription
    subscription = Subscription(
        client_id=event.client_id,
        client_host=event.client_host,
        instance_id=before.instance_id if event.instance_id is None else event.instance_id,
        rack_id=member_subscription.rack_id or before.rack_id,
        topics=member_subscription.topics,
        regex="",
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        assignor=before.assignor,
        classic=ClassicMember(event.session_timeout_ms, event.protocols),
    )
    member, changed = update.subscribe(member, subscription)
    update.assign()
    member = update.advance(member, subscription_changed=changed, owned=member_subscription.owned)
    update.members[member_id] = replace(
        member,
        session_deadline_ms=event.now_ms + event.session_timeout_ms,
        sync_deadline_ms=event.now_ms + event.rebalance_timeout_ms,
        join_deadline_ms=None,
        rebalance_deadline_ms=None,
    )
    # No leader is named, as no member has to assign anything.
    result = JoinResult(ErrorCode.NONE, member_id, member.current.epoch, PROTOCOL_TYPE, name)
    replaced = old.member_id if old is not None and old.member_id != member_id else None
    return Joined(update.group(), result, replaced)


def supports_protocol(group: ConsumerGroup, event: Join) -> bool:
    """Whether the joiner speaks a protocol that all classic members speak."""
    names = {name for name, _ in event.protocols}
    protocols_of_members = [
        {name for name, _ in member.subscription.classic.protocols}
        for member in group.members.values()
        if member.subscription.classic is not None
    ]
    return event.protocol_type == PROTOCOL_TYPE and bool(
        names.intersection(*protocols_of_members) if protocols_of_members else names
    )


def sync(group: ConsumerGroup, event: Sync, topics: TopicsView) -> tuple[ConsumerGroup, SyncResult]:
    """The member's assignment as it stands. Raises KafkaError."""
    member, classic = _checked(group, event.member_id, event.instance_id, event.generation)
    name, metadata = classic.protocols[0]
    if event.protocol_type not in (None, PROTOCOL_TYPE) or event.protocol_name not in (None, name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"member {member.member_id} joined with {name}")
    if group.epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        return _must_join(group, member, event.now_ms), SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    assignment = write_assignment(member.current.assigned, topics, metadata)
    deadline_ms = event.now_ms + classic.session_timeout_ms
    synced = replace(member, sync_deadline_ms=None, session_deadline_ms=deadline_ms)
    return _put(group, synced), SyncResult(ErrorCode.NONE, event.protocol_type, event.protocol_name, assignment)


def heartbeat(group: ConsumerGroup, event: GroupHeartbeat) -> tuple[ConsumerGroup, ErrorCode]:
    """Keeps a member; REBALANCE_IN_PROGRESS when it could go on. Raises KafkaError."""
    member, classic = _checked(group, event.member_id, event.instance_id, event.generation)
    member = replace(member, session_deadline_ms=event.now_ms + classic.session_timeout_ms)
    group = _put(group, member)
    current = member.current
    released = current.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member)
    if current.epoch < group.epoch or current.state is MemberState.UNREVOKED_PARTITIONS or released:
        return _must_join(group, member, event.now_ms), ErrorCode.REBALANCE_IN_PROGRESS
    return group, ErrorCode.NONE


def leave(group: ConsumerGroup, event: Leave) -> tuple[list[str], tuple[ErrorCode, ...]]:
    """The members to remove, and a code for each in the request; members of the consumer protocol may be among them."""
    leaving: list[str] = []
    errors: list[ErrorCode] = []
    for member_id, instance_id in event.members:
        member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
        error = ErrorCode.NONE
        if member is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif instance_id is not None and member_id not in ("", member.member_id):
            error = ErrorCode.FENCED_INSTANCE_ID
        elif member.member_id in leaving:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            leaving.append(member.member_id)
        errors.append(error)
    return leaving, tuple(errors)


def _checked(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMember]:
    member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id} has no member {member_id}")
    if member.member_id != member_id:
        text = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, text)
    classic = member.subscription.classic
    if classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation != member.current.epoch:
        text = f"The generation {generation} is not the epoch {member.current.epoch} of member {member_id}."
        raise KafkaError(stale(member), text)
    return member, classic


def _put(group: ConsumerGroup, member: ConsumerMember) -> ConsumerGroup:
    return replace(group, members={**group.members, member.member_id: member})


def _must_join(group: ConsumerGroup, member: ConsumerMember, now_ms: float) -> ConsumerGroup:
    """The member has to join within this time after the first response that asked it to."""
    if member.join_deadline_ms is not None:
        return group
    return _put(group, replace(member, join_deadline_ms=now_ms + member.subscription.rebalance_timeout_ms))


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether others still own something of its target."""
    missing = group.target(member.member_id) - member.current.assigned.keys()
    return not missing.isdisjoint(group.owned_by_others(member.member_id))


# Groups


def can_upgrade(group: Group, limits: ConsumerLimits) -> bool:
    """Whether a classic group may become a consumer group: its members are consumers, and not too many."""
    return group.protocol_type == PROTOCOL_TYPE and len(group.members) <= limits.members_max


def refusals(group: Group) -> list[GroupEffect]:
    """Responses to members that wait in a classic group that changes its protocol: join again."""
    effects: list[GroupEffect] = []
    for member in group.members.values():
        if member.join_token is not None:
            result = JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            effects.append(ReplyJoin(member.join_token, result))
        if member.sync_token is not None:
            effects.append(ReplySync(member.sync_token, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)))
    return effects


def upgraded(group: Group, topics: TopicsView, now_ms: float) -> ConsumerGroup:
    """The classic group as a consumer group. Raises DecodeError when members' metadata cannot be read."""
    members: dict[str, ConsumerMember] = {}
    owned_by_others: set[AssignablePartition] = set()
    for member in group.members.values():
        # A group that has not settled has no protocol yet; members list theirs, preferred first.
        metadata = member.metadata(group.protocol_name) or member.protocols[0][1]
        member_subscription = read_subscription(metadata, topics)
        # A leader may have assigned a partition twice; it stays with one.
        assigned = read_assignment(member.assignment, topics) - owned_by_others
        owned_by_others |= assigned
        members[member.member_id] = ConsumerMember(
            member.member_id,
            Subscription(
                client_id=member.client_id,
                client_host=member.client_host,
                instance_id=member.instance_id,
                rack_id=member_subscription.rack_id,
                topics=member_subscription.topics,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                classic=ClassicMember(member.session_timeout_ms, member.protocols),
            ),
            Current(group.generation, group.generation, assigned=dict.fromkeys(assigned, group.generation)),
            session_deadline_ms=now_ms + member.session_timeout_ms,
        )
    return ConsumerGroup(
        group.group_id,
        epoch=group.generation,
        assignment_epoch=group.generation,
        members=members,
        targets={name: frozenset(member.current.assigned) for name, member in members.items()},
    )


def can_downgrade(group: ConsumerGroup, leaving: Collection[str], classic_members_max: int) -> bool:
    """Whether, without these, only members of the classic protocol are left, at least one of them."""
    left = [member for member in group.members.values() if member.member_id not in leaving]
    last = any(not group.members[member_id].is_classic for member_id in leaving if member_id in group.members)
    return last and 0 < len(left) <= classic_members_max and all(member.is_classic for member in left)


def downgraded(group: ConsumerGroup, topics: TopicsView, now_ms: float) -> Group:
    """The consumer group, all of whose members are classic, as a classic group. Raises DecodeError."""
    members: dict[str, Member] = {}
    for member in group.members.values():
        member_subscription, classic = member.subscription, member.subscription.classic
        assert classic is not None, member
        members[member.member_id] = Member(
            member_id=member.member_id,
            instance_id=member_subscription.instance_id,
            client_id=member_subscription.client_id,
            client_host=member_subscription.client_host,
            session_timeout_ms=classic.session_timeout_ms,
            rebalance_timeout_ms=member_subscription.rebalance_timeout_ms,
            protocols=classic.protocols,
            session_deadline_ms=now_ms + classic.session_timeout_ms,
        )
    protocol = select_protocol(list(members.values()))
    return Group(
        group.group_id,
        state=GroupState.STABLE,
        generation=group.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        leader=next(iter(members)),
        members=_with_assignments(members, group, topics, protocol),
    )


def _with_assignments(
    members: Mapping[str, Member], group: ConsumerGroup, topics: TopicsView, protocol: str
) -> dict[str, Member]:
    return {
        name: replace(member, assignment=write_assignment(group.target(name), topics, member.metadata(protocol)))
        for name, member in members.items()
    }
