"""The classic group protocol as a function: (group, event) → (group, effects).

Join gathers members until all have come or time is up and begins a generation; the leader's Sync brings the
assignments, which are stored before any member gets them; heartbeats keep members; a member that leaves or falls silent
causes the next join. Kafka: `GroupMetadataManager.classicGroup*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from backend.engine.coordinator.group.classic.classic_group import (
    Group,
    GroupEffect,
    GroupEvent,
    GroupHeartbeat,
    GroupLimits,
    GroupState,
    GroupStored,
    GroupTick,
    Join,
    Leave,
    Member,
    Reply,
    ReplyLeave,
    ReplySync,
    StaticStored,
    StoreGroup,
    Sync,
    SyncResult,
    Takeover,
)
from backend.engine.coordinator.group.classic.joining import Joining
from backend.engine.coordinator.group.classic.rebalance import GroupUpdate, check_member
from backend.protocol.errors import ErrorCode


def step(group: Group, event: GroupEvent, limits: GroupLimits) -> tuple[Group, list[GroupEffect]]:
    """The group after the event, and what to do, in order."""
    update = GroupUpdate(group, limits)
    joining, members = Joining(update), _MemberEvents(update)
    match event:
        case Join():
            joining.join(event)
        case StaticStored():
            joining.static_stored(event)
        case Sync():
            members.sync(event)
        case GroupHeartbeat():
            members.heartbeat(event)
        case Leave():
            members.leave(event)
        case GroupTick():
            members.tick(event.now_ms)
        case GroupStored():
            members.stored(event)
        case Takeover():
            update.prepare_rebalance(event.now_ms)
        case _:
            assert_never(event)
    return update.result()


def check_commit(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Whether offsets may be committed; without a generation only while the group has no members."""
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation >= 0 or member_id or instance_id is not None:
        error = check_member(group, member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
    else:
        # An admin client or a consumer without group management: the members' offsets are not theirs.
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def check_transactional_commit(group: Group, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """The same for offsets in a transaction, whose older producers do not say for which member they commit."""
    if generation < 0 and not member_id and instance_id is None:
        return ErrorCode.NONE
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    error = check_member(group, member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION


class _MemberEvents:
    """SyncGroup, Heartbeat, LeaveGroup and time; changes the `GroupUpdate` that it gets."""

    def __init__(self, group: GroupUpdate) -> None:
        self._group = group

    # Sync

    def sync(self, event: Sync) -> None:
        error = self._check_sync(event)
        if error is not ErrorCode.NONE:
            self._group.effects.append(ReplySync(event.token, SyncResult(error)))
            return
        member = self._group.members[event.member_id]
        self._group.has_synced(member.member_id)
        if self._group.state is GroupState.STABLE:
            self._answer_sync(event.token, self._group.renew(member, event.now_ms))
            return
        self._group.refuse_waiting_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._group.change(replace(member, sync_token=event.token))
        if member.member_id == self._group.leader and self._group.storing is None:
            self._group.storing = {name: bytes(event.assignments.get(name, b"")) for name in self._group.members}
            self._group.effects.append(StoreGroup(self._assigned(self._group.storing), report=True))

    def _check_sync(self, event: Sync) -> ErrorCode:
        error = check_member(self._group.value(), event.member_id, event.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if event.generation != self._group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if event.protocol_type not in (None, self._group.protocol_type) or event.protocol_name not in (
            None,
            self._group.protocol_name,
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self._group.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return (
            ErrorCode.REBALANCE_IN_PROGRESS if self._group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE
        )

    def _assigned(self, assignments: Mapping[str, bytes]) -> Group:
        group = self._group.value()
        members = {
            name: replace(member, assignment=assignments.get(name, b"")) for name, member in group.members.items()
        }
        return replace(group, members=members)

    def _answer_sync(self, token: int, member: Member) -> None:
        result = SyncResult(ErrorCode.NONE, self._group.protocol_type, self._group.protocol_name, member.assignment)
        self._group.effects.append(ReplySync(token, result))

    def stored(self, event: GroupStored) -> None:
        storing = self._group.storing
        if (
            self._group.state is not GroupState.COMPLETING_REBALANCE
            or storing is None
            or event.generation != self._group.generation
        ):
            return
        if event.error is not ErrorCode.NONE:
            for member in list(self._group.members.values()):
                self._group.refuse_waiting_sync(member, event.error)
                self._group.renew(replace(member, sync_token=None, assignment=b""), event.now_ms)
            self._group.prepare_rebalance(event.now_ms)
            return
        self._group.move_to(GroupState.STABLE)
        for member in list(self._group.members.values()):
            token = member.sync_token
            assigned = self._group.change(
                replace(member, assignment=storing.get(member.member_id, b""), sync_token=None)
            )
            if token is not None:
                # The others' sessions go on: they may fetch their assignment later.
                self._answer_sync(token, self._group.renew(assigned, event.now_ms))

    # Heartbeat, leave, time

    def heartbeat(self, event: GroupHeartbeat) -> None:
        self._group.effects.append(Reply(event.token, self._heartbeat_error(event)))

    def _heartbeat_error(self, event: GroupHeartbeat) -> ErrorCode:
        error = check_member(self._group.value(), event.member_id, event.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if event.generation != self._group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._group.renew(self._group.members[event.member_id], event.now_ms)
        preparing = self._group.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(self, event: Leave) -> None:
        errors: list[ErrorCode] = []
        members, pending = len(self._group.members), len(self._group.pending)
        for member_id, instance_id in event.members:
            error, leaving = self._leaving(member_id, instance_id)
            errors.append(error)
            if leaving is not None:
                self._group.remove(leaving)
        self._group.effects.append(ReplyLeave(event.token, tuple(errors)))
        self._after_removal(members, pending, event.now_ms)

    def _leaving(self, member_id: str, instance_id: str | None) -> tuple[ErrorCode, Member | None]:
        if instance_id is None and member_id in self._group.pending:
            del self._group.pending[member_id]
            return ErrorCode.NONE, None
        static = self._group.static(instance_id)
        if instance_id is not None:
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID, None
            if member_id not in ("", static.member_id):
                return ErrorCode.FENCED_INSTANCE_ID, None
            return ErrorCode.NONE, static
        member = self._group.members.get(member_id)
        return (ErrorCode.UNKNOWN_MEMBER_ID if member is None else ErrorCode.NONE), member

    def _after_removal(self, members: int, pending: int, now_ms: float) -> None:
        """Goes on if there are fewer members, or fewer who may become one, than there were."""
        if self._group.state is GroupState.PREPARING_REBALANCE:
            if len(self._group.members) < members or len(self._group.pending) < pending:
                self._group.complete_join_when_all_came(now_ms)
        elif len(self._group.members) < members:
            self._group.prepare_rebalance(now_ms)

    def tick(self, now_ms: float) -> None:
        members, pending = len(self._group.members), len(self._group.pending)
        self._group.pending = {
            name: deadline_ms for name, deadline_ms in self._group.pending.items() if deadline_ms > now_ms
        }
        for member in list(self._group.members.values()):
            if member.expires_ms is not None and member.expires_ms <= now_ms:
                self._group.remove(member)
        if self._group.sync_deadline_ms is not None and self._group.sync_deadline_ms <= now_ms:
            for name in list(self._group.to_sync):
                self._group.remove(self._group.members[name])
        self._after_removal(members, pending, now_ms)
        if self._group.join_deadline_ms is not None and self._group.join_deadline_ms <= now_ms:
            self._group.join_time_is_up(now_ms)
