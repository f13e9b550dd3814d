"""A group while one event is applied to it: its members, and its rebalances from the first join to the assignments.

`joining` and `classic_step` say what each event changes; they call the methods here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

from backend.engine.coordinator.group.classic.classic_group import (
    LEGAL,
    Group,
    GroupEffect,
    GroupLimits,
    GroupState,
    JoinResult,
    Member,
    ReplyJoin,
    ReplySync,
    StoreGroup,
    SyncResult,
    static_member,
)
from backend.protocol.errors import ErrorCode

# A rebalance without a joined member is checked again after the rebalance time-out, which a client may set to 0.
POSTPONED_MS_MIN: Final = 1000


def check_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Whether a request may speak for a member (`validateMember`)."""
    static = group.static_member(instance_id)
    if instance_id is not None:
        if static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if static.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def select_protocol(members: Sequence[Member]) -> str:
    """The protocol that all speak and most prefer."""
    common = set.intersection(*({name for name, _ in member.protocols} for member in members))
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members)
    return votes.most_common(1)[0][0]


class GroupUpdate:
    """The fields of a `Group`, open to changes, and the effects that the changes have so far.

    Made from a group, changed by one event, read as `result`; the group itself stays as it was.
    """

    def __init__(self, group: Group, limits: GroupLimits) -> None:
        self.limits = limits
        self.group_id = group.group_id
        self.state = group.state
        self.generation = group.generation
        self.protocol_type = group.protocol_type
        self.protocol_name = group.protocol_name
        self.leader = group.leader
        self.members = dict(group.members)
        self.pending = dict(group.pending)
        self.join_deadline_ms = group.join_deadline_ms
        self.initial_delay_left_ms = group.initial_delay_left_ms
        self.new_member_added = group.new_member_added
        self.sync_deadline_ms = group.sync_deadline_ms
        self.to_sync = set(group.to_sync)
        self.storing = group.storing
        self.effects: list[GroupEffect] = []

    def result(self) -> tuple[Group, list[GroupEffect]]:
        return self.value(), self.effects

    def value(self) -> Group:
        values = {field.name: getattr(self, field.name) for field in fields(Group)}
        values["members"], values["pending"] = dict(self.members), dict(self.pending)
        values["to_sync"] = frozenset(self.to_sync)
        return Group(**values)

    def move_to(self, state: GroupState) -> None:
        if state not in LEGAL[self.state]:
            raise AssertionError(f"group {self.group_id} cannot go from {self.state} to {state}")
        self.state = state
        if state is not GroupState.PREPARING_REBALANCE:
            self.join_deadline_ms = self.initial_delay_left_ms = None
        if state is not GroupState.COMPLETING_REBALANCE:
            self.storing = None
        if state is not GroupState.STABLE:
            self.to_sync.clear()
            self.sync_deadline_ms = None

    def change(self, member: Member) -> Member:
        self.members[member.member_id] = member
        return member

    # Members

    def static(self, instance_id: str | None) -> Member | None:
        return static_member(self.members, instance_id)

    def refuse_waiting_join(self, member: Member, error: ErrorCode) -> None:
        if member.join_token is not None:
            named = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
            self.effects.append(ReplyJoin(member.join_token, JoinResult(error, named)))

    def refuse_waiting_sync(self, member: Member, error: ErrorCode) -> None:
        if member.sync_token is not None:
            self.effects.append(ReplySync(member.sync_token, SyncResult(error)))

    def rename(self, member_id: str, member: Member) -> None:
        """Puts a member in another's place, so that the order of the members stays."""
        self.members = {
            (member.member_id if key == member_id else key): (member if key == member_id else former)
            for key, former in self.members.items()
        }
        if self.leader == member_id:
            self.leader = member.member_id
        if member_id in self.to_sync:
            self.to_sync.remove(member_id)
            self.to_sync.add(member.member_id)

    def has_synced(self, member_id: str) -> None:
        self.to_sync.discard(member_id)
        if not self.to_sync:
            self.sync_deadline_ms = None

    def remove(self, member: Member) -> None:
        self.refuse_waiting_join(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.refuse_waiting_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        del self.members[member.member_id]
        self.has_synced(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    # Rebalance

    def prepare_or_complete(self, now_ms: float) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self.complete_join_when_all_came(now_ms)
        else:
            self.prepare_rebalance(now_ms)

    def prepare_rebalance(self, now_ms: float) -> None:
        was_empty = self.state is GroupState.EMPTY
        for member in list(self.members.values()):
            self.refuse_waiting_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
            if member.sync_token is not None:
                self.renew(replace(member, sync_token=None), now_ms)
        self.move_to(GroupState.PREPARING_REBALANCE)
        timeout_ms = self.rebalance_timeout_ms()
        delay_ms = self.limits.initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            self.join_deadline_ms = now_ms + delay_ms
            self.initial_delay_left_ms = max(0, timeout_ms - delay_ms)
            self.new_member_added = False
        else:
            self.join_deadline_ms = now_ms + timeout_ms
            self.complete_join_when_all_came(now_ms)

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def complete_join_when_all_came(self, now_ms: float) -> None:
        if self.initial_delay_left_ms is not None or self.pending:
            return
        if all(member.join_token is not None for member in self.members.values()):
            self._complete_join(now_ms)

    def join_time_is_up(self, now_ms: float) -> None:
        left_ms = self.initial_delay_left_ms
        if left_ms is not None and self.new_member_added and left_ms > 0:
            self.new_member_added = False
            delay_ms = min(self.limits.initial_rebalance_delay_ms, left_ms)
            self.join_deadline_ms = now_ms + delay_ms
            self.initial_delay_left_ms = left_ms - delay_ms
            return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: float) -> None:
        self.initial_delay_left_ms = None
        for member in list(self.members.values()):
            if member.join_token is None and not member.is_static:
                self.remove(member)
        if not self.members:
            self._become_empty()
            return
        if not self._elect_leader():
            # Only static members are left, none of which has joined: wait on for one of them.
            self.join_deadline_ms = now_ms + max(self.rebalance_timeout_ms(), POSTPONED_MS_MIN)
            return
        self.generation = _next(self.generation)
        self.protocol_name = select_protocol(list(self.members.values()))
        self.move_to(GroupState.COMPLETING_REBALANCE)
        self.to_sync = set(self.members)
        self.sync_deadline_ms = now_ms + self.rebalance_timeout_ms()
        for member in list(self.members.values()):
            token = member.join_token
            joined = self.renew(replace(member, join_token=None, is_new=False), now_ms)
            if token is not None:
                self.answer_join(token, joined)

    def _become_empty(self) -> None:
        self.generation = _next(self.generation)
        self.protocol_name = None
        self.move_to(GroupState.EMPTY)
        self.effects.append(StoreGroup(self.value(), report=False))

    def _elect_leader(self) -> bool:
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_token is not None:
            return True
        for member in self.members.values():
            if member.join_token is not None:
                self.leader = member.member_id
                return True
        return False

    def answer_join(self, token: int, member: Member) -> None:
        leads = member.member_id == self.leader
        result = JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader or "",
            members=self.member_list() if leads else (),
        )
        self.effects.append(ReplyJoin(token, result))

    def member_list(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple(
            (member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def renew(self, member: Member, now_ms: float) -> Member:
        return self.change(replace(member, session_deadline_ms=now_ms + member.session_timeout_ms))


def _next(generation: int) -> int:
    """The generation after this one; it starts again at 1 where an int32 ends."""
    return 1 if generation >= 2**31 - 1 else generation + 1
