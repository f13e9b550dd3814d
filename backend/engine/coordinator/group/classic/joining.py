"""JoinGroup of the classic group protocol: admission, member ids, and the rebalance that a join starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from backend.engine.coordinator.group.classic.classic_group import (
    GroupState,
    Join,
    JoinResult,
    Member,
    ReplyJoin,
    StaticStored,
    StoreStatic,
)
from backend.engine.coordinator.group.classic.rebalance import GroupUpdate, check_member, select_protocol
from backend.protocol.errors import ErrorCode

# group.new.member.join.timeout.ms of Kafka: a new member's client may be gone while its join waits.
NEW_MEMBER_TIMEOUT_MS: Final = 300_000


class Joining:
    """Joins of new, pending, known and static members; changes the `GroupUpdate` that it gets."""

    def __init__(self, group: GroupUpdate) -> None:
        self._group = group

    def join(self, event: Join) -> None:
        limits = self._group.limits
        if not limits.session_timeout_ms_min <= event.session_timeout_ms <= limits.session_timeout_ms_max:
            self._refuse_join(event, ErrorCode.INVALID_SESSION_TIMEOUT)
        elif not self._accepts(event.member_id):
            self._expel(event.member_id)
            self._refuse_join(event, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        elif not self._supports_protocol(event):
            self._refuse_join(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not event.member_id:
            self._join_unknown(event)
        elif event.member_id in self._group.pending:
            self._join_pending(event)
        else:
            self._join_known(event)

    def _accepts(self, member_id: str) -> bool:
        """Whether the group has a place (group.max.size); during a rebalance those who came first have it."""
        most, member = self._group.limits.members_max, self._group.members.get(member_id)
        match self._group.state:
            case GroupState.EMPTY:
                return True
            case GroupState.PREPARING_REBALANCE:
                waiting = sum(joined.join_token is not None for joined in self._group.members.values())
                return (member is not None and member.join_token is not None) or waiting < most
        return member is not None or len(self._group.members) < most

    def _expel(self, member_id: str) -> None:
        self._group.pending.pop(member_id, None)
        if member_id in self._group.members:
            self._group.remove(self._group.members[member_id])

    def _supports_protocol(self, event: Join) -> bool:
        """Whether the joiner speaks a protocol that all members speak, its own former self among them."""
        names = {name for name, _ in event.protocols}
        if self._group.state is GroupState.EMPTY:
            return bool(event.protocol_type) and bool(names)
        return event.protocol_type == self._group.protocol_type and any(
            all(any(name == supported for supported, _ in member.protocols) for member in self._group.members.values())
            for name in names
        )

    def _join_pending(self, event: Join) -> None:
        if event.instance_id is not None:
            # Ids are given out beforehand to dynamic members only.
            self._refuse_join(event, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        del self._group.pending[event.member_id]
        self._add(event, event.member_id)

    def _join_known(self, event: Join) -> None:
        error = check_member(self._group.value(), event.member_id, event.instance_id)
        if error is ErrorCode.NONE:
            self._rejoin(event)
        else:
            self._refuse_join(event, error)

    def _refuse_join(self, event: Join, error: ErrorCode, member_id: str | None = None) -> None:
        named = event.member_id if member_id is None else member_id
        self._group.effects.append(ReplyJoin(event.token, JoinResult(error, named)))

    def _join_unknown(self, event: Join) -> None:
        static = self._group.static(event.instance_id)
        if static is not None:
            self._replace_static(event, static)
        elif event.instance_id is None and event.requires_known_member:
            # KIP-394: a client that does not come back with its id leaves no member behind.
            self._group.pending[event.fresh_id] = event.now_ms + event.session_timeout_ms
            self._refuse_join(event, ErrorCode.MEMBER_ID_REQUIRED, event.fresh_id)
        else:
            self._add(event, event.fresh_id)

    def _add(self, event: Join, member_id: str) -> None:
        self._group.protocol_type = event.protocol_type
        if self._group.leader is None:
            self._group.leader = member_id
        deadline_ms = event.now_ms + NEW_MEMBER_TIMEOUT_MS
        self._group.change(replace(self._member_of(event, member_id), is_new=True, session_deadline_ms=deadline_ms))
        self._group.new_member_added = True
        self._group.prepare_or_complete(event.now_ms)

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
        member = self._group.members[event.member_id]
        same = member.protocols == event.protocols
        if same and self._group.state is GroupState.COMPLETING_REBALANCE:
            # The answer got lost, or the member asks twice: the generation is still being assigned.
            self._group.answer_join(event.token, member)
        elif same and self._group.state is GroupState.STABLE and event.member_id != self._group.leader:
            self._group.answer_join(event.token, member)
        else:
            # A leader that comes back has seen something that its members cannot know, like new partitions.
            self._rejoin_changed(event, member)

    def _rejoin_changed(self, event: Join, member: Member) -> None:
        # Its earlier requests are answered; only the latest waits.
        self._group.refuse_waiting_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._group.refuse_waiting_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        updated = self._member_of(event, member.member_id, member.assignment)
        self._group.change(replace(updated, instance_id=member.instance_id, is_new=member.is_new))
        self._group.prepare_or_complete(event.now_ms)

    def _replace_static(self, event: Join, old: Member) -> None:
        """A static member comes back without its id (KIP-345): a new id in its old place."""
        self._group.refuse_waiting_join(old, ErrorCode.FENCED_INSTANCE_ID)
        self._group.refuse_waiting_sync(old, ErrorCode.FENCED_INSTANCE_ID)
        fresh = self._member_of(event, event.fresh_id, old.assignment)
        self._group.rename(old.member_id, fresh)
        if (
            self._group.state is GroupState.STABLE
            and select_protocol(list(self._group.members.values())) == self._group.protocol_name
        ):
            # No rebalance; but an id that is not stored would be fenced after a restart.
            self._group.effects.append(StoreStatic(self._group.value(), fresh.member_id, event, old))
        else:
            self._group.prepare_or_complete(event.now_ms)

    def static_stored(self, event: StaticStored) -> None:
        member_id, join, old = event.replacement.member_id, event.replacement.join, event.replacement.old
        member = self._group.members.get(member_id)
        if self._group.state is not GroupState.STABLE or member is None or member.join_token != join.token:
            # A rebalance has begun, which answers it, or another member has taken its place.
            return
        if event.error is ErrorCode.NONE:
            self._answer_static(join, self._group.renew(replace(member, join_token=None), event.now_ms), old.member_id)
            return
        self._group.rename(member_id, replace(old, join_token=None, sync_token=None))
        self._group.renew(self._group.members[old.member_id], event.now_ms)
        self._refuse_join(join, event.error, "")

    def _answer_static(self, join: Join, member: Member, old_id: str) -> None:
        """No rebalance: the member learns its generation.

        Before KIP-814 a leader got its old member id as the leader's, to keep it from assigning.
        """
        leads = member.member_id == self._group.leader
        skips = leads and join.may_skip_assignment
        result = JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self._group.generation,
            self._group.protocol_type,
            self._group.protocol_name,
            old_id if leads and not skips else self._group.leader or "",
            skip_assignment=skips,
            members=self._group.member_list() if skips else (),
        )
        self._group.effects.append(ReplyJoin(join.token, result))
