"""The classic group protocol as a function: (group, event) → (group, effects).

Join gathers members until all have come or time is up and begins a generation; the leader's Sync brings the
assignments, which are stored before anybody learns them; heartbeats keep members; whoever leaves or falls silent causes
the next join. Facts: Kafka's `GroupMetadataManager.classicGroup*`.
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
from backend.engine.coordinator.group.classic.rebalance import check_member
from backend.protocol.errors import ErrorCode


def step(group: Group, event: GroupEvent, limits: GroupLimits) -> tuple[Group, list[GroupEffect]]:
    """The group after the event, and what to do, in order."""
    turn = _Turn(group, limits)
    match event:
        case Join():
            turn.join(event)
        case Sync():
            turn.sync(event)
        case GroupHeartbeat():
            turn.heartbeat(event)
        case Leave():
            turn.leave(event)
        case GroupTick():
            turn.tick(event.now_ms)
        case GroupStored():
            turn.stored(event)
        case StaticStored():
            turn.static_stored(event)
        case Takeover():
            turn.prepare_rebalance(event.now_ms)
        case _:
            assert_never(event)
    return turn.result()


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


class _Turn(Joining):
    """All events."""

    # Sync

    def sync(self, event: Sync) -> None:
        error = self._check_sync(event)
        if error is not ErrorCode.NONE:
            self.effects.append(ReplySync(event.token, SyncResult(error)))
            return
        member = self.members[event.member_id]
        self.has_synced(member.member_id)
        if self.state is GroupState.STABLE:
            self._answer_sync(event.token, self.renew(member, event.now_ms))
            return
        self.refuse_waiting_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.change(replace(member, sync_token=event.token))
        if member.member_id == self.leader and self.storing is None:
            self.storing = {name: bytes(event.assignments.get(name, b"")) for name in self.members}
            self.effects.append(StoreGroup(self._assigned(self.storing), report=True))

    def _check_sync(self, event: Sync) -> ErrorCode:
        error = check_member(self.group(), event.member_id, event.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if event.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if event.protocol_type not in (None, self.protocol_type) or event.protocol_name not in (
            None,
            self.protocol_name,
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE

    def _assigned(self, assignments: Mapping[str, bytes]) -> Group:
        group = self.group()
        members = {
            name: replace(member, assignment=assignments.get(name, b"")) for name, member in group.members.items()
        }
        return replace(group, members=members)

    def _answer_sync(self, token: int, member: Member) -> None:
        result = SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)
        self.effects.append(ReplySync(token, result))

    def stored(self, event: GroupStored) -> None:
        storing = self.storing
        if self.state is not GroupState.COMPLETING_REBALANCE or storing is None or event.generation != self.generation:
            return
        if event.error is not ErrorCode.NONE:
            for member in list(self.members.values()):
                self.refuse_waiting_sync(member, event.error)
                self.renew(replace(member, sync_token=None, assignment=b""), event.now_ms)
            self.prepare_rebalance(event.now_ms)
            return
        self.move_to(GroupState.STABLE)
        for member in list(self.members.values()):
            token = member.sync_token
            assigned = self.change(replace(member, assignment=storing.get(member.member_id, b""), sync_token=None))
            if token is not None:
                # The others' sessions go on: they may fetch their assignment later.
                self._answer_sync(token, self.renew(assigned, event.now_ms))

    # Heartbeat, leave, time

    def heartbeat(self, event: GroupHeartbeat) -> None:
        self.effects.append(Reply(event.token, self._heartbeat_error(event)))

    def _heartbeat_error(self, event: GroupHeartbeat) -> ErrorCode:
        error = check_member(self.group(), event.member_id, event.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if event.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self.renew(self.members[event.member_id], event.now_ms)
        preparing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(self, event: Leave) -> None:
        errors: list[ErrorCode] = []
        members, pending = len(self.members), len(self.pending)
        for member_id, instance_id in event.members:
            error, gone = self._leaving(member_id, instance_id)
            errors.append(error)
            if gone is not None:
                self.remove(gone)
        self.effects.append(ReplyLeave(event.token, tuple(errors)))
        self._after_removal(members, pending, event.now_ms)

    def _leaving(self, member_id: str, instance_id: str | None) -> tuple[ErrorCode, Member | None]:
        if instance_id is None and member_id in self.pending:
            del self.pending[member_id]
            return ErrorCode.NONE, None
        static = self.static(instance_id)
        if instance_id is not None:
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID, None
            if member_id not in ("", static.member_id):
                return ErrorCode.FENCED_INSTANCE_ID, None
            return ErrorCode.NONE, static
        member = self.members.get(member_id)
        return (ErrorCode.UNKNOWN_MEMBER_ID if member is None else ErrorCode.NONE), member

    def _after_removal(self, members: int, pending: int, now_ms: float) -> None:
        """Goes on if there are fewer members, or fewer who may become one, than there were."""
        if self.state is GroupState.PREPARING_REBALANCE:
            if len(self.members) < members or len(self.pending) < pending:
                self.complete_join_when_all_came(now_ms)
        elif len(self.members) < members:
            self.prepare_rebalance(now_ms)

    def tick(self, now_ms: float) -> None:
        members, pending = len(self.members), len(self.pending)
        self.pending = {name: deadline_ms for name, deadline_ms in self.pending.items() if deadline_ms > now_ms}
        for member in list(self.members.values()):
            if member.expires_ms is not None and member.expires_ms <= now_ms:
                self.remove(member)
        if self.sync_deadline_ms is not None and self.sync_deadline_ms <= now_ms:
            for name in list(self.to_sync):
                self.remove(self.members[name])
        self._after_removal(members, pending, now_ms)
        if self.join_deadline_ms is not None and self.join_deadline_ms <= now_ms:
            self.join_time_is_up(now_ms)
