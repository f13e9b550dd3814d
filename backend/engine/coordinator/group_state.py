"""The classic group protocol as a function: (group, event) → (group, effects).

Join gathers members until all have come or time is up and begins a generation; the leader's Sync brings the
assignments, which are stored before anybody learns them; heartbeats keep members; whoever leaves or falls silent causes
the next join. Facts: Kafka's `GroupMetadataManager.classicGroup*`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import assert_never

from backend.engine.coordinator.group import (
    LEGAL,
    Effect,
    Event,
    Group,
    GroupState,
    Heartbeat,
    Join,
    JoinResult,
    Leave,
    Limits,
    Member,
    Reply,
    ReplyJoin,
    ReplyLeave,
    ReplySync,
    Store,
    Stored,
    Sync,
    SyncResult,
    Tick,
)
from backend.protocol.errors import ErrorCode


def step(group: Group, event: Event, limits: Limits) -> tuple[Group, list[Effect]]:
    """The group after the event, and what to do, in order."""
    turn = _Turn(group, limits)
    match event:
        case Join():
            turn.join(event)
        case Sync():
            turn.sync(event)
        case Heartbeat():
            turn.heartbeat(event)
        case Leave():
            turn.leave(event)
        case Tick():
            turn.tick(event.now_ms)
        case Stored():
            turn.stored(event)
        case _:
            assert_never(event)
    return turn.result()


def check_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Whether a request may speak for a member (`validateMember`)."""
    static = group.static_member(instance_id)
    if instance_id is not None:
        if static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if static.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


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


class _Turn:
    """A group while one event is applied to it."""

    def __init__(self, group: Group, limits: Limits) -> None:
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
        self.newcomer = group.newcomer
        self.sync_deadline_ms = group.sync_deadline_ms
        self.synced = set(group.synced)
        self.storing = group.storing
        self.effects: list[Effect] = []

    def result(self) -> tuple[Group, list[Effect]]:
        return self.group(), self.effects

    def group(self) -> Group:
        values = {one.name: getattr(self, one.name) for one in fields(Group)}
        values["members"], values["pending"] = dict(self.members), dict(self.pending)
        values["synced"] = frozenset(self.synced)
        return Group(**values)

    def move_to(self, state: GroupState) -> None:
        if state not in LEGAL[self.state]:
            raise AssertionError(f"group {self.group_id} cannot go from {self.state} to {state}")
        self.state = state
        if state is not GroupState.PREPARING_REBALANCE:
            self.join_deadline_ms = self.initial_delay_left_ms = None
        if state is not GroupState.COMPLETING_REBALANCE:
            self.sync_deadline_ms = self.storing = None
            self.synced.clear()

    def change(self, member: Member) -> Member:
        self.members[member.member_id] = member
        return member

    # Join

    def join(self, event: Join) -> None:
        error = self._check_join(event)
        if error is not ErrorCode.NONE:
            self._refuse_join(event, error)
        elif not event.member_id:
            self._join_unknown(event)
        elif event.member_id in self.pending:
            if event.instance_id is not None:
                self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)
                return
            del self.pending[event.member_id]
            self._add(event, event.member_id)
        else:
            self._rejoin(event)

    def _check_join(self, event: Join) -> ErrorCode:
        limits = self.limits
        if not limits.session_timeout_ms_min <= event.session_timeout_ms <= limits.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        known = event.member_id in self.members or self._static(event.instance_id) is not None
        if not known and len(self.members) >= limits.members_max:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if event.member_id and event.member_id not in self.pending:
            error = check_member(self.group(), event.member_id, event.instance_id)
            if error is not ErrorCode.NONE:
                return error
        return ErrorCode.NONE if self._speaks(event) else ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def _speaks(self, event: Join) -> bool:
        names = {name for name, _ in event.protocols}
        if not self.members:
            return bool(event.protocol_type) and bool(names)
        # A member that joins again must fit the others, not its own earlier self.
        own = self._static(event.instance_id)
        others = [m for m in self.members.values() if m.member_id != event.member_id and (own is None or m is not own)]
        if not others:
            return bool(event.protocol_type) and bool(names)
        common = set.intersection(*({name for name, _ in member.protocols} for member in others))
        return event.protocol_type == self.protocol_type and bool(common & names)

    def _refuse_join(self, event: Join, error: ErrorCode, member_id: str | None = None) -> None:
        named = event.member_id if member_id is None else member_id
        self.effects.append(ReplyJoin(event.token, JoinResult(error, named)))

    def _static(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def _join_unknown(self, event: Join) -> None:
        static = self._static(event.instance_id)
        if static is not None:
            self._replace_static(event, static)
        elif event.instance_id is None and event.requires_known_member:
            # KIP-394: a client that does not come back with its id leaves no member behind.
            self.pending[event.fresh_id] = event.now_ms + event.session_timeout_ms
            self._refuse_join(event, ErrorCode.MEMBER_ID_REQUIRED, event.fresh_id)
        else:
            self._add(event, event.fresh_id)

    def _add(self, event: Join, member_id: str) -> None:
        self.protocol_type = event.protocol_type
        if self.leader is None:
            self.leader = member_id
        self.change(self._member_of(event, member_id))
        self.newcomer = True
        self._prepare_or_complete(event.now_ms)

    def _member_of(self, event: Join, member_id: str, assignment: bytes = b"") -> Member:
        return Member(
            member_id=member_id,
            instance_id=event.instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            session_timeout_ms=event.session_timeout_ms,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            protocols=event.protocols,
            assignment=assignment,
            session_deadline_ms=event.now_ms + event.session_timeout_ms,
            join_token=event.token,
        )

    def _rejoin(self, event: Join) -> None:
        member = self.members[event.member_id]
        same = member.protocols == event.protocols
        match self.state:
            case GroupState.PREPARING_REBALANCE:
                self._update(event, member)
            case GroupState.COMPLETING_REBALANCE if same:
                # The answer got lost, or the member asks twice: the generation is still being assigned.
                self._answer_join(event.token, member)
            case GroupState.STABLE if same and event.member_id != self.leader:
                self._answer_join(event.token, member)
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                self._update(event, member)
            case _:
                self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)

    def _update(self, event: Join, member: Member) -> None:
        if member.join_token is not None:
            self._refuse_waiting_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.change(
            replace(self._member_of(event, member.member_id, member.assignment), instance_id=member.instance_id)
        )
        self._prepare_or_complete(event.now_ms)

    def _refuse_waiting_join(self, member: Member, error: ErrorCode) -> None:
        if member.join_token is not None:
            self.effects.append(ReplyJoin(member.join_token, JoinResult(error, member.member_id)))

    def _refuse_waiting_sync(self, member: Member, error: ErrorCode) -> None:
        if member.sync_token is not None:
            self.effects.append(ReplySync(member.sync_token, SyncResult(error)))

    def _replace_static(self, event: Join, old: Member) -> None:
        """A static member comes back without its id (KIP-345): a new id in its old place."""
        self._refuse_waiting_join(old, ErrorCode.FENCED_INSTANCE_ID)
        self._refuse_waiting_sync(old, ErrorCode.FENCED_INSTANCE_ID)
        fresh = self._member_of(event, event.fresh_id, old.assignment)
        # In the old one's place, so that the order of the members stays.
        self.members = {
            (fresh.member_id if key == old.member_id else key): (fresh if key == old.member_id else member)
            for key, member in self.members.items()
        }
        was_leader = self.leader == old.member_id
        if was_leader:
            self.leader = fresh.member_id
        if self.state is GroupState.STABLE and self._select_protocol() == self.protocol_name:
            member = self.change(replace(fresh, join_token=None))
            self.effects.append(Store(self.group(), report=False))
            self._answer_static(event, member, old, was_leader)
            return
        self._prepare_or_complete(event.now_ms)

    def _answer_static(self, event: Join, member: Member, old: Member, was_leader: bool) -> None:
        """No rebalance: the member learns its generation.

        Before KIP-814 a leader was told of its old self, to keep it from assigning.
        """
        skips = was_leader and event.may_skip_assignment
        leader = self.leader or ""
        result = JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            old.member_id if was_leader and not skips else leader,
            skip_assignment=skips,
            members=self._member_list() if skips else (),
        )
        self.effects.append(ReplyJoin(event.token, result))

    # Rebalance

    def _prepare_or_complete(self, now_ms: float) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_when_all_came(now_ms)
        else:
            self._prepare_rebalance(now_ms)

    def _prepare_rebalance(self, now_ms: float) -> None:
        was_empty = self.state is GroupState.EMPTY
        for member in list(self.members.values()):
            self._refuse_waiting_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
            if member.sync_token is not None:
                self._renew(replace(member, sync_token=None), now_ms)
        self.move_to(GroupState.PREPARING_REBALANCE)
        timeout_ms = self._rebalance_timeout_ms()
        delay_ms = self.limits.initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            self.join_deadline_ms = now_ms + delay_ms
            self.initial_delay_left_ms = max(0, timeout_ms - delay_ms)
            self.newcomer = False
        else:
            self.join_deadline_ms = now_ms + timeout_ms
            self._complete_join_when_all_came(now_ms)

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _complete_join_when_all_came(self, now_ms: float) -> None:
        if self.initial_delay_left_ms is not None or self.pending:
            return
        if all(member.join_token is not None for member in self.members.values()):
            self._complete_join(now_ms)

    def _join_time_is_up(self, now_ms: float) -> None:
        left_ms = self.initial_delay_left_ms
        if left_ms is not None and self.newcomer and left_ms > 0:
            self.newcomer = False
            delay_ms = min(self.limits.initial_rebalance_delay_ms, left_ms)
            self.join_deadline_ms = now_ms + delay_ms
            self.initial_delay_left_ms = left_ms - delay_ms
            return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: float) -> None:
        self.initial_delay_left_ms = None
        for member in list(self.members.values()):
            if member.join_token is None and not member.is_static:
                del self.members[member.member_id]
        if not self.members:
            self._become_empty()
            return
        if not self._elect_leader():
            # Only static members are left, none of which has joined: wait on for one of them.
            self.join_deadline_ms = now_ms + self._rebalance_timeout_ms()
            return
        self.generation = _next(self.generation)
        self.protocol_name = self._select_protocol()
        self.move_to(GroupState.COMPLETING_REBALANCE)
        self.sync_deadline_ms = now_ms + self._rebalance_timeout_ms()
        for member in list(self.members.values()):
            token = member.join_token
            joined = self._renew(replace(member, join_token=None), now_ms)
            if token is not None:
                self._answer_join(token, joined)

    def _become_empty(self) -> None:
        self.generation = _next(self.generation)
        self.protocol_name = self.leader = None
        self.move_to(GroupState.EMPTY)
        self.effects.append(Store(self.group(), report=False))

    def _elect_leader(self) -> bool:
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_token is not None:
            return True
        for member in self.members.values():
            if member.join_token is not None:
                self.leader = member.member_id
                return True
        return False

    def _select_protocol(self) -> str:
        """The protocol that all speak and most prefer."""
        members = list(self.members.values())
        common = set.intersection(*({name for name, _ in member.protocols} for member in members))
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members)
        return votes.most_common(1)[0][0]

    def _answer_join(self, token: int, member: Member) -> None:
        leads = member.member_id == self.leader
        result = JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader or "",
            members=self._member_list() if leads else (),
        )
        self.effects.append(ReplyJoin(token, result))

    def _member_list(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple(
            (member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def _renew(self, member: Member, now_ms: float) -> Member:
        return self.change(replace(member, session_deadline_ms=now_ms + member.session_timeout_ms))

    # Sync

    def sync(self, event: Sync) -> None:
        error = self._check_sync(event)
        if error is not ErrorCode.NONE:
            self.effects.append(ReplySync(event.token, SyncResult(error)))
            return
        member = self.members[event.member_id]
        if self.state is GroupState.STABLE:
            self._answer_sync(event.token, self._renew(member, event.now_ms))
            return
        self._refuse_waiting_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.synced.add(member.member_id)
        self.change(replace(member, sync_token=event.token))
        if member.member_id == self.leader and self.storing is None:
            self.storing = {name: bytes(event.assignments.get(name, b"")) for name in self.members}
            self.effects.append(Store(self._assigned(self.storing), report=True))

    def _check_sync(self, event: Sync) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
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

    def stored(self, event: Stored) -> None:
        storing = self.storing
        if self.state is not GroupState.COMPLETING_REBALANCE or storing is None or event.generation != self.generation:
            return
        if event.error is not ErrorCode.NONE:
            for member in list(self.members.values()):
                self._refuse_waiting_sync(member, event.error)
                self._renew(replace(member, sync_token=None, assignment=b""), event.now_ms)
            self._prepare_rebalance(event.now_ms)
            return
        # A member that synced within this time needs no deadline; the others may fetch their assignment later.
        late = [name for name in self.members if name not in self.synced]
        self.move_to(GroupState.STABLE)
        for member in list(self.members.values()):
            token = member.sync_token
            assigned = replace(member, assignment=storing.get(member.member_id, b""), sync_token=None)
            if member.member_id not in late:
                assigned = self._renew(assigned, event.now_ms)
            self.change(assigned)
            if token is not None:
                self._answer_sync(token, assigned)

    # Heartbeat, leave, time

    def heartbeat(self, event: Heartbeat) -> None:
        self.effects.append(Reply(event.token, self._heartbeat_error(event)))

    def _heartbeat_error(self, event: Heartbeat) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = check_member(self.group(), event.member_id, event.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if event.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._renew(self.members[event.member_id], event.now_ms)
        preparing = self.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE

    def leave(self, event: Leave) -> None:
        errors: list[ErrorCode] = []
        left = False
        for member_id, instance_id in event.members:
            error, gone = self._leaving(member_id, instance_id)
            errors.append(error)
            if gone is not None:
                self._remove(gone)
                left = True
        self.effects.append(ReplyLeave(event.token, tuple(errors)))
        if left:
            self._after_removal(event.now_ms)

    def _leaving(self, member_id: str, instance_id: str | None) -> tuple[ErrorCode, Member | None]:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        if instance_id is None and member_id in self.pending:
            del self.pending[member_id]
            return ErrorCode.NONE, None
        static = self._static(instance_id)
        if instance_id is not None:
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID, None
            if member_id not in ("", static.member_id):
                return ErrorCode.FENCED_INSTANCE_ID, None
            return ErrorCode.NONE, static
        member = self.members.get(member_id)
        return (ErrorCode.UNKNOWN_MEMBER_ID if member is None else ErrorCode.NONE), member

    def _remove(self, member: Member) -> None:
        self._refuse_waiting_join(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._refuse_waiting_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _after_removal(self, now_ms: float) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(now_ms)
        elif self.state is GroupState.PREPARING_REBALANCE:
            self._complete_join_when_all_came(now_ms)

    def tick(self, now_ms: float) -> None:
        expired = [name for name, deadline_ms in self.pending.items() if deadline_ms <= now_ms]
        for name in expired:
            del self.pending[name]
        silent = [m for m in self.members.values() if not m.waits and m.session_deadline_ms <= now_ms]
        for member in silent:
            self._remove(member)
        if expired or silent:
            self._after_removal(now_ms)
        if self.sync_deadline_ms is not None and self.sync_deadline_ms <= now_ms:
            self._drop_unsynced(now_ms)
        if self.join_deadline_ms is not None and self.join_deadline_ms <= now_ms:
            self._join_time_is_up(now_ms)

    def _drop_unsynced(self, now_ms: float) -> None:
        late = [member for name, member in self.members.items() if name not in self.synced]
        self.sync_deadline_ms = now_ms + self._rebalance_timeout_ms()
        for member in late:
            self._remove(member)
        if late:
            self._after_removal(now_ms)


def _next(generation: int) -> int:
    """The generation after this one; it starts again at 1 where an int32 ends."""
    return 1 if generation >= 2**31 - 1 else generation + 1
