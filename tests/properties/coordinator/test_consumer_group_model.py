"""A consumer group under random members of both protocols, lost answers, changing topics and time.

No partition is ever owned twice, the records rebuild the group, and once the clients are left in peace everything is
assigned, evenly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backend.engine.coordinator.group.classic.classic_group import GroupHeartbeat, Join, Sync
from backend.engine.coordinator.group.consumer import classic_members as classic
from backend.engine.coordinator.group.consumer import consumer_heartbeat as state
from backend.engine.coordinator.group.consumer.consumer_group import (
    NO_PARTITIONS,
    ConsumerGroup,
    ConsumerGroupState,
    ConsumerMember,
)
from backend.engine.coordinator.group.consumer.consumer_group_records import ConsumerGroupRecord, changes
from backend.engine.coordinator.group.consumer.consumer_group_update import ConsumerLimits
from backend.engine.coordinator.group.consumer.consumer_heartbeat import ConsumerHeartbeat
from backend.engine.coordinator.group.consumer_protocol import read_assignment
from backend.engine.coordinator.group.group_records import decode_record
from backend.engine.coordinator.topics_view import AssignablePartition, TopicInfo, TopicsView
from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from tests.effort import effort

TOPICS = {"a": TopicInfo(b"a" * 16, 3), "b": TopicInfo(b"b" * 16, 4), "c": TopicInfo(b"c" * 16, 1)}
SUBSCRIPTIONS = st.sampled_from([frozenset("a"), frozenset("ab"), frozenset("bc"), frozenset("abc"), frozenset("x")])
START_ERRORS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}
SESSION_MS, REBALANCE_MS = 10_000, 6_000


@dataclass
class Client:
    """The state of one process. `owned` are the partitions on which it works."""

    member_id: str
    topics: frozenset[str]
    regex: str | None = None
    instance_id: str | None = None
    speaks_classic: bool = False
    epoch: int = 0
    owned: frozenset[AssignablePartition] = NO_PARTITIONS
    # Tells everything with its next heartbeat: it has joined, or an answer got lost.
    full: bool = True
    must_sync: bool = False
    # The topics that a classic client has joined with; it joins again when they change, as the Java consumer does.
    topics_version: int = -1
    # The group had dropped it when it joined again, which it learns when it syncs: Kafka admits a classic member whose
    # id it does not know (classicGroupJoinToConsumerGroup), and such a member still works on what it had.
    was_dropped: bool = False

    def reset(self) -> None:
        self.epoch, self.owned, self.full, self.must_sync = 0, NO_PARTITIONS, True, False
        self.was_dropped = False


def subscription(client: Client, topics: TopicsView) -> bytes:
    kind = m.ConsumerProtocolSubscription
    owned: dict[str, list[int]] = {}
    for topic_id, index in sorted(client.owned):
        if topic_id in topics.names:
            owned.setdefault(topics.names[topic_id], []).append(index)
    said = kind(
        topics=sorted(client.topics),
        owned_partitions=[kind.OwnedPartitions(topic=name, partitions=at) for name, at in owned.items()],
    )
    return b"\x00\x01" + codec.encode(said, 1)


@dataclass
class Log:
    """The group as its records have it."""

    group: ConsumerGroup = field(default_factory=lambda: ConsumerGroup("g"))

    def append(self, before: ConsumerGroup, after: ConsumerGroup) -> None:
        for record in changes(before, after, 0):
            read = decode_record(record.key, record.value)
            assert isinstance(read, ConsumerGroupRecord)
            self.group = read.apply(self.group)


def stored(group: ConsumerGroup) -> ConsumerGroup:
    """The group without what is not stored."""
    members = {
        name: ConsumerMember(name, member.subscription, member.current) for name, member in group.members.items()
    }
    return replace(group, members=dict(sorted(members.items())), topics_version=-1)


class ConsumerGroupModel(RuleBasedStateMachine):
    """Clients heartbeat when they like; answers may get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = ConsumerLimits(session_timeout_ms=SESSION_MS, members_max=5, assignment_interval_ms=500)
        self.group = ConsumerGroup("g")
        self.log = Log()
        self.topics = TopicsView.of(TOPICS, version=1, names_version=1)
        self.now_ms = 1000.0
        self.clients: list[Client] = []
        self.count = 0

    def take(self, after: ConsumerGroup) -> None:
        self.log.append(self.group, after)
        assert after.epoch >= self.group.epoch
        self.group = after
        self.group.check()

    # Clients

    def beat(self, client: Client, lost: bool = False) -> None:
        if client.speaks_classic:
            self.beat_classic(client, lost)
            return
        event = ConsumerHeartbeat(
            now_ms=self.now_ms,
            time_ms=round(self.now_ms),
            member_id=client.member_id,
            epoch=client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if client.full else -1,
            topics=client.topics if client.full else None,
            regex=client.regex if client.full else None,
            owned=client.owned,
        )
        try:
            after, result = state.heartbeat(self.group, event, self.topics, self.limits)
        except KafkaError as refused:
            self.refused(client, refused.code)
            return
        self.take(after)
        client.full = lost
        if lost:
            return
        assert result.epoch > 0
        client.epoch = result.epoch
        if result.assignment is not None:
            client.owned = result.assignment

    def beat_classic(self, client: Client, lost: bool) -> None:
        try:
            if client.epoch == 0 or client.topics_version != self.topics.version:
                self.join_classic(client, lost)
            elif client.must_sync:
                self.sync_classic(client)
            else:
                beat = GroupHeartbeat(0, self.now_ms, client.member_id, client.instance_id, client.epoch)
                after, error = classic.heartbeat(self.group, beat)
                self.take(after)
                if error is ErrorCode.REBALANCE_IN_PROGRESS:
                    self.join_classic(client, lost)
        except KafkaError as refused:
            self.refused(client, refused.code)

    def refused(self, client: Client, code: ErrorCode) -> None:
        """A member that lost its instance id to another gives up; others start again."""
        stale = ErrorCode.ILLEGAL_GENERATION if client.speaks_classic else ErrorCode.FENCED_MEMBER_EPOCH
        assert code in START_ERRORS | {stale}
        if code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
            self.clients.remove(client)
        client.reset()

    def join_classic(self, client: Client, lost: bool) -> None:
        event = Join(
            token=0, now_ms=self.now_ms, member_id="" if client.instance_id and client.epoch == 0 else client.member_id,
            instance_id=client.instance_id, client_id="c", client_host="/h", session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS, protocol_type="consumer",
            protocols=(("range", subscription(client, self.topics)),), fresh_id=f"fresh-{self.next()}",
            requires_known_member=False, may_skip_assignment=True,
        )  # fmt: skip
        dropped = client.member_id not in self.group.members
        joined = classic.join(self.group, event, self.topics, self.limits, round(self.now_ms))
        self.take(joined.group)
        if not lost:
            client.member_id, client.epoch, client.must_sync = joined.result.member_id, joined.result.generation, True
            client.topics_version = self.topics.version
            client.was_dropped |= dropped and bool(client.owned)

    def sync_classic(self, client: Client) -> None:
        event = Sync(0, self.now_ms, client.member_id, client.instance_id, client.epoch, "consumer", "range", {})
        after, result = classic.sync(self.group, event, self.topics)
        self.take(after)
        if result.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join_classic(client, False)
        else:
            client.must_sync = client.was_dropped = False
            client.owned = read_assignment(result.assignment, self.topics)

    def next(self) -> int:
        self.count += 1
        return self.count

    # Events

    @rule(
        topics=SUBSCRIPTIONS,
        regex=st.sampled_from([None, None, "[ab]", ".*"]),
        instance=st.sampled_from([None, None, None, "one", "two"]),
        speaks_classic=st.booleans(),
    )
    def somebody_comes(
        self, topics: frozenset[str], regex: str | None, instance: str | None, speaks_classic: bool
    ) -> None:
        if len(self.clients) < 7:
            regex = None if speaks_classic else regex
            client = Client(f"m{self.next()}", topics, regex, instance, speaks_classic)
            self.clients.append(client)
            self.beat(client)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 6), lost=st.booleans())
    def one_beats(self, at: int, lost: bool) -> None:
        self.beat(self.clients[at % len(self.clients)], lost)

    @rule(passes=st.integers(1, 3))
    def all_beat(self, passes: int) -> None:
        for _ in range(passes):
            for client in list(self.clients):
                self.beat(client)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 6), topics=SUBSCRIPTIONS)
    def one_subscribes_anew(self, at: int, topics: frozenset[str]) -> None:
        client = self.clients[at % len(self.clients)]
        client.topics, client.full = topics, True
        self.beat(client)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 6), for_a_while=st.booleans())
    def one_leaves(self, at: int, for_a_while: bool) -> None:
        client = self.clients.pop(at % len(self.clients))
        member = self.group.members.get(client.member_id)
        if member is None:
            return
        if for_a_while and client.instance_id is not None and not member.is_classic:
            self.take(state.leave_for_a_while(self.group, member))
        else:
            self.take(state.without(self.group, [client.member_id], self.topics, self.limits))

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 6))
    def one_restarts_with_the_other_protocol(self, at: int) -> None:
        client = self.clients[at % len(self.clients)]
        if client.member_id in self.group.members:
            self.take(state.without(self.group, [client.member_id], self.topics, self.limits))
        client.reset()
        client.speaks_classic, client.member_id = not client.speaks_classic, f"m{self.next()}"
        client.regex = None
        self.beat(client)

    @rule(change=st.sampled_from([("b", 4), ("b", 6), ("c", 0), ("c", 1), ("d", 2)]))
    def topics_change(self, change: tuple[str, int]) -> None:
        name, partitions = change
        topics = dict(self.topics.by_name)
        if partitions:
            partitions = max(partitions, topics[name].partitions if name in topics else 0)
            topics[name] = TopicInfo(name.encode() * 16, partitions)
        else:
            topics.pop(name, None)
        version = self.topics.version + 1
        self.topics = TopicsView.of(topics, version=version, names_version=version)

    @rule(passed=st.sampled_from([1.0, 600.0, 3000.0, 7000.0, 20_000.0]))
    def time_passes(self, passed: float) -> None:
        self.now_ms += passed
        gone = state.expired(self.group, self.now_ms)
        self.take(state.without(self.group, gone, self.topics, self.limits))

    @rule()
    def the_coordinator_moves(self) -> None:
        self.group = state.resumed(self.log.group, self.now_ms, SESSION_MS)

    # Invariants

    @invariant()
    def the_records_rebuild_the_group(self) -> None:
        assert stored(self.log.group) == stored(self.group)

    @invariant()
    def no_partition_is_worked_on_twice(self) -> None:
        """Clients that the group has dropped do not know yet, and are left out."""
        members = [
            client
            for client in self.clients
            if client.member_id in self.group.members and client.epoch > 0 and not client.was_dropped
        ]
        for client in members:
            assert client.owned <= frozenset(self.group.members[client.member_id].owns()), client
        owned = [partition for client in members for partition in client.owned]
        assert len(owned) == len(set(owned))

    def teardown(self) -> None:
        """Left in peace, the members share everything they subscribe to, and evenly."""
        # Longer than a session, and than new topics may go unnoticed by regular expressions.
        for _ in range(20):
            self.time_passes(1000.0)
            for client in list(self.clients):
                self.beat(client)
        # Static members that have left for a while, and clients that lost their place to another, are gone by now.
        members = {client.member_id for client in self.clients} & self.group.members.keys()
        assert members == self.group.members.keys()
        if not members:
            return
        assert self.group.state is ConsumerGroupState.STABLE, self.group
        ids = self.topics.ids(self.group.subscribed_topics())
        counts = self.topics.counts()
        everything = {(topic, index) for topic in ids for index in range(counts[topic])}
        shares = {name: frozenset(member.owns()) for name, member in self.group.members.items()}
        assert {partition for share in shares.values() for partition in share} == everything
        if len({self.group.subscribed(member) for member in self.group.members.values()}) == 1:
            sizes = [len(share) for share in shares.values()]
            assert max(sizes) - min(sizes) <= 1
        for client in self.clients:
            if client.member_id in members:
                assert client.owned == shares[client.member_id]


TestConsumerGroupModel = ConsumerGroupModel.TestCase
TestConsumerGroupModel.settings = settings(max_examples=effort(80, 2_000), stateful_step_count=30, deadline=None)
