"""The group state machine under random clients, lost stores and time: it stays whole and answers everybody once."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

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
    Reply,
    ReplyJoin,
    ReplyLeave,
    ReplySync,
    StaticStored,
    StoreGroup,
    StoreStatic,
    Sync,
    SyncResult,
)
from backend.engine.coordinator.group.classic.classic_step import step
from backend.protocol.errors import ErrorCode
from tests.effort import effort

PROTOCOLS = st.sampled_from(
    [(("range", b"r"),), (("range", b"r2"),), (("range", b"r"), ("sticky", b"s")), (("sticky", b"s"), ("range", b"r"))]
)
KINDS = st.sampled_from(["consumer"] * 9 + ["connect"])
NAMES = st.sampled_from([None, None, "one", "two"])
ROUNDS_MAX = 200


class GroupModel(RuleBasedStateMachine):
    """Clients know the responses they got; some are stale."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = GroupLimits(initial_rebalance_delay_ms=3000, session_timeout_ms_min=1, members_max=4)
        self.group = Group("g")
        self.now_ms = 0.0
        self.token = 0
        self.waiting: dict[int, type[GroupEvent]] = {}
        # Stores on their way to the log.
        self.storing: list[StoreGroup | StoreStatic] = []
        self.ids: list[str] = []
        # Of each sync.
        self.generation_of: dict[int, int] = {}

    def apply(self, event: GroupEvent) -> None:
        before = self.group
        if isinstance(event, Join | Sync | GroupHeartbeat | Leave):
            self.waiting[event.token] = type(event)
        self.group, effects = step(before, event, self.limits)
        self.group.check()
        assert self.group.generation - before.generation in (0, 1)
        for effect in effects:
            self.take(effect)

    def take(self, effect: GroupEffect) -> None:
        match effect:
            case ReplyJoin(token, result):
                assert self.waiting.pop(token) is Join
                if result.error is ErrorCode.NONE:
                    assert result.generation == self.group.generation
                    assert bool(result.members) <= (result.leader == result.member_id or result.skip_assignment)
                if result.member_id not in self.ids:
                    self.ids.append(result.member_id)
            case ReplySync(token, result):
                assert self.waiting.pop(token) is Sync
                self.note_assignment(token, result)
            case Reply(token):
                assert self.waiting.pop(token) is GroupHeartbeat
            case ReplyLeave(token):
                assert self.waiting.pop(token) is Leave
            case StoreGroup(group, _) | StoreStatic(group):
                assert group.generation == self.group.generation
                self.storing.append(effect)

    def note_assignment(self, token: int, result: SyncResult) -> None:
        if result.error is ErrorCode.NONE:
            assert self.group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)
            # Every member of a generation gets the assignment that its leader sent, however often it asks.
            assert result.assignment in (b"", b"%d" % self.generation_of[token])

    def next_token(self) -> int:
        self.token += 1
        return self.token

    def member(self, at: int) -> str:
        """A member, an id given out, or one that was ever heard of."""
        member_ids = [*self.group.members, *self.group.pending] * 3 + self.ids[-6:] + ["", "stranger"]
        return member_ids[at % len(member_ids)]

    @rule(
        at=st.integers(0, 60),
        name=NAMES,
        protocols=PROTOCOLS,
        session=st.sampled_from([0, 5000, 20000]),
        rebalance=st.sampled_from([1, 4000, 30000]),
        knows=st.booleans(),
        kind=KINDS,
    )
    def join(
        self,
        at: int,
        name: str | None,
        protocols: tuple[tuple[str, bytes], ...],
        session: int,
        rebalance: int,
        knows: bool,
        kind: str,
        as_member: str | None = None,
    ) -> None:
        token = self.next_token()
        member_id = self.member(at) if as_member is None else as_member
        member = self.group.members.get(member_id)
        if member is not None and knows:
            name = member.instance_id
        self.apply(
            Join(
                token=token, now_ms=self.now_ms, member_id=member_id, instance_id=name, client_id="c",
                client_host="/h", session_timeout_ms=session, rebalance_timeout_ms=rebalance, protocol_type=kind,
                protocols=protocols, fresh_id=f"m{token}", requires_known_member=knows, may_skip_assignment=knows,
            )
        )  # fmt: skip

    @rule(at=st.integers(0, 60), stale=st.booleans())
    def sync(self, at: int, stale: bool) -> None:
        self.sync_as(self.member(at), self.group.generation - stale)

    def sync_as(self, member_id: str, generation: int) -> None:
        member, token = self.group.members.get(member_id), self.next_token()
        self.generation_of[token] = generation
        leads = member_id == self.group.leader
        assignments = dict.fromkeys(self.group.members, b"%d" % generation) if leads else {}
        instance_id = None if member is None else member.instance_id
        self.apply(Sync(token, self.now_ms, member_id, instance_id, generation, None, None, assignments))

    @rule(late=st.booleans(), fails=st.booleans())
    def everybody_syncs(self, late: bool, fails: bool) -> None:
        for member_id in list(self.group.members)[late:]:
            self.sync_as(member_id, self.group.generation)
        if fails and self.storing:
            self.end_store(self.storing.pop(), fails=True)

    @rule(comes_back=st.booleans())
    def newcomer_asks_for_an_id(self, comes_back: bool) -> None:
        self.join(0, None, (("range", b"r"),), 5000, 5000, True, "consumer", "")
        if comes_back:
            self.join(0, None, (("range", b"r"),), 5000, 5000, True, "consumer", self.ids[-1])

    @rule(newcomers=st.lists(NAMES, max_size=2), late=st.integers(0, 1), synced=st.booleans())
    def all_goes_well(self, newcomers: list[str | None], late: int, synced: bool) -> None:
        """A rebalance as it should be, but for a member that may not come in time."""
        for name in newcomers:
            self.join(0, name, (("range", b"r"),), 20000, 5000, False, "consumer", "")
        for member in list(self.group.members.values())[late:]:
            self.join(0, member.instance_id, (("range", b"r"),), 20000, 5000, False, "consumer", member.member_id)
        self.time_passes(6000.0)
        if synced:
            self.everybody_syncs(False, False)
            while self.storing:
                self.end_store(self.storing.pop(0), False)

    @rule(name=st.sampled_from(["one", "two"]), skips=st.booleans())
    def static_member_restarts(self, name: str, skips: bool) -> None:
        self.join(0, name, (("range", b"r"),), 20000, 5000, skips, "consumer", "")

    @rule(at=st.integers(0, 60), stale=st.booleans())
    def heartbeat(self, at: int, stale: bool) -> None:
        member_id, generation = self.member(at), self.group.generation - stale
        member = self.group.members.get(member_id)
        instance_id = None if member is None else member.instance_id
        self.apply(GroupHeartbeat(self.next_token(), self.now_ms, member_id, instance_id, generation))

    @rule(at=st.integers(0, 60), name=NAMES)
    def leave(self, at: int, name: str | None) -> None:
        leaving = ((self.member(at), None), ("", name), (self.member(at + 1), name))
        self.apply(Leave(self.next_token(), self.now_ms, leaving[at % 2 : 1 + at % 3]))

    @rule(passed=st.sampled_from([1.0, 1000.0, 3000.0, 6000.0, 40000.0]))
    def time_passes(self, passed: float) -> None:
        """Timers run on time, as the coordinator's do."""
        until = self.now_ms + passed
        for _ in range(ROUNDS_MAX):
            due = self.group.deadline_ms
            if due is None or due > until:
                break
            self.now_ms = max(self.now_ms, due)
            self.apply(GroupTick(self.now_ms))
        else:
            raise AssertionError(f"time does not pass: {self.group}")
        self.now_ms = until

    @rule(at=st.integers(0, 5), fails=st.booleans())
    def a_store_ends(self, at: int, fails: bool) -> None:
        if self.storing:
            self.end_store(self.storing.pop(at % len(self.storing)), fails)

    def end_store(self, effect: StoreGroup | StoreStatic, fails: bool) -> None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else ErrorCode.NONE
        if isinstance(effect, StoreStatic):
            self.apply(StaticStored(self.now_ms, effect, error))
        elif effect.report:
            self.apply(GroupStored(self.now_ms, effect.group.generation, error))

    @invariant()
    def whoever_waits_is_known_to_the_group(self) -> None:
        tokens = {member.join_token for member in self.group.members.values()}
        tokens |= {member.sync_token for member in self.group.members.values()}
        assert self.waiting.keys() == tokens - {None}

    def teardown(self) -> None:
        """When the clients fall silent, everybody is answered and the group ends empty."""
        for _ in range(20):
            while self.storing:
                self.end_store(self.storing.pop(0), False)
            self.time_passes(400_000)
        assert self.waiting == {}
        assert self.group.state is GroupState.EMPTY
        assert self.group.deadline_ms is None


TestGroupModel = GroupModel.TestCase
TestGroupModel.settings = settings(max_examples=effort(60, 1_500, check=15), stateful_step_count=40, deadline=None)
