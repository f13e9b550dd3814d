"""Groups of the consumer protocol on real logs: heartbeats, time-outs, offsets, restarts, and both protocols in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.unit.engine.coordinator.group.consumer.consumer_clients import (
    Member,
    assignment_of,
    classic_client,
    classic_stable,
    partitions_in,
    settle,
)
from tests.unit.engine.coordinator.group.group_nodes import GroupNodes, run, stable

SESSION_MS = 45_000


def test_members_share_and_the_one_that_stays_takes_over(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", *[[1]] * 6)
        first, second = Member(nodes, "g", "m1", "orders"), Member(nodes, "g", "m2", "orders")
        assert await first.beat() == 0
        assert (first.epoch, first.indexes()) == (2, [0, 1, 2, 3, 4, 5])
        assert first.last.heartbeat_interval_ms == 5000
        await settle(first, second)
        assert sorted(first.indexes() + second.indexes()) == [0, 1, 2, 3, 4, 5]
        assert len(first.indexes()) == 3
        described = await first.described()
        assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 3, 3)
        assert [member.member_type for member in described.members] == [1, 1]
        assert await second.leave() == 0
        await settle(first)
        assert first.indexes() == [0, 1, 2, 3, 4, 5]

    run(tmp_path, play)


def test_a_groups_own_settings_count_from_the_next_heartbeat_and_after_a_restart(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        member = Member(nodes, "g", "m1", "orders")
        assert await member.beat() == 0
        nodes.config(32, "g", consumer_session_timeout_ms="60000", consumer_heartbeat_interval_ms="15000")
        assert await member.beat() == 0
        assert member.last.heartbeat_interval_ms == 15_000
        await nodes.pass_ms(SESSION_MS + 1)
        assert await member.beat() == 0
        await nodes.pass_ms(60_001)
        assert await member.beat() == ErrorCode.UNKNOWN_MEMBER_ID

    run(tmp_path, play)


def test_a_partition_is_handed_over_only_once_it_has_been_given_up(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", *[[1]] * 2)
        first, second = Member(nodes, "g", "m1", "orders"), Member(nodes, "g", "m2", "orders")
        assert await first.beat() == 0
        await nodes.pass_ms(1001)
        assert await second.beat() == 0
        assert second.owned == frozenset()
        first.revokes = False
        assert await first.beat() == 0
        # The response lets it keep one, and it still has both: its epoch stays.
        assert (first.epoch, len(first.owned)) == (2, 2)
        assert await second.beat() == 0
        assert second.owned == frozenset()
        assert (await first.described()).group_state == "Reconciling"
        first.owned = frozenset(sorted(first.owned)[:1])
        first.revokes = True
        await settle(first, second)
        assert (len(first.owned), len(second.owned)) == (1, 1)

    run(tmp_path, play)


def test_who_does_not_give_up_a_partition_in_time_is_fenced(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", *[[1]] * 2)
        stubborn = Member(nodes, "g", "m1", "orders", rebalance_ms=20_000)
        second = Member(nodes, "g", "m2", "orders")
        assert await stubborn.beat() == 0
        await nodes.pass_ms(1001)
        assert await second.beat() == 0
        stubborn.revokes = False
        assert await stubborn.beat() == 0
        await nodes.pass_ms(19_999)
        assert await stubborn.beat() == 0
        await nodes.pass_ms(2)
        assert await stubborn.beat() == ErrorCode.UNKNOWN_MEMBER_ID
        await settle(second)
        assert second.indexes() == [0, 1]

    run(tmp_path, play)


def test_a_silent_member_is_dropped_when_its_session_ends(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", *[[1]] * 2)
        silent, alive = Member(nodes, "g", "m1", "orders"), Member(nodes, "g", "m2", "orders")
        await settle(silent, alive)
        for _ in range(5):
            await nodes.pass_ms(9_500)
            assert await alive.beat() == 0
        assert await silent.beat() == ErrorCode.UNKNOWN_MEMBER_ID
        await settle(alive)
        assert alive.indexes() == [0, 1]
        await nodes.pass_ms(SESSION_MS + 1)
        assert (await alive.described()).group_state == "Empty"

    run(tmp_path, play)


def test_epochs_decide_who_is_fenced(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", *[[1]] * 2)
        member, other = Member(nodes, "g", "m1", "orders"), Member(nodes, "g", "m2", "orders")
        await settle(member, other)
        epoch = member.epoch
        assert await member.beat(member_epoch=epoch + 1) == ErrorCode.FENCED_MEMBER_EPOCH
        assert "greater member epoch" in (member.last.error_message or "")
        # An answer that got lost: the epoch before is taken when the member has nothing that it should not have.
        assert await member.beat(member_epoch=2, topic_partitions=[]) == 0
        assert await member.beat(member_epoch=2, topic_partitions=None) == ErrorCode.FENCED_MEMBER_EPOCH
        assert await member.beat(group_id="nothing") == ErrorCode.GROUP_ID_NOT_FOUND
        assert await member.beat(member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
        # Joining again with the same id brings everything back.
        member.epoch, member.owned = 0, frozenset()
        assert await member.beat() == 0
        assert len(member.owned) == 1

    run(tmp_path, play)


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided"),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining."),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST, "must be non-null when (re-)joining."),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR, "Supported assignors: uniform, range."),
        ({"subscribed_topic_regex": "(a"}, ErrorCode.INVALID_REGULAR_EXPRESSION, "`(a` is not a valid"),
    ],
)  # fmt: skip
def test_heartbeats_that_kafka_refuses_are_refused(
    tmp_path: Path, changed: dict[str, Any], code: ErrorCode, text: str
) -> None:
    async def play(nodes: GroupNodes) -> None:
        member = Member(nodes, "g", "m1", "orders")
        assert await member.beat(**changed) == code
        assert text in (member.last.error_message or "")
        member.group = "g"
        assert (await member.described()).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(tmp_path, play)


def test_a_full_group_takes_no_more(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        assert await Member(nodes, "g", "m1", "orders").beat() == 0
        assert await Member(nodes, "g", "m2", "orders").beat() == ErrorCode.GROUP_MAX_SIZE_REACHED

    run(tmp_path, play, group_consumer_max_size="1")


def test_new_partitions_and_topics_reach_the_members(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders-1", *[[1]] * 2)
        by_name = Member(nodes, "g", "m1", "orders-1", "later")
        by_regex = Member(nodes, "g", "m2", regex="orders-.*")
        await settle(by_name, by_regex)
        nodes.create("later", [1])
        nodes.create("orders-2", *[[1]] * 2)
        nodes.create("other", [1])
        # Expressions are matched with new topics every ten seconds at most.
        await nodes.pass_ms(10_001)
        await settle(by_name, by_regex)
        names = {topic_id: name for name, topic_id in nodes.play.image.topic_ids.items()}
        assert {names[topic] for topic, _ in by_regex.owned} >= {"orders-2"}
        everything = sorted((names[topic], at) for topic, at in by_name.owned | by_regex.owned)
        assert everything == [("later", 0), ("orders-1", 0), ("orders-1", 1), ("orders-2", 0), ("orders-2", 1)]
        nodes.delete("orders-1")
        await settle(by_name, by_regex)
        assert {names[topic] for topic, _ in by_name.owned | by_regex.owned} == {"later", "orders-2"}

    run(tmp_path, play)


def test_the_assignor_that_most_ask_for_is_used(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("a", *[[1]] * 2)
        nodes.create("b", *[[1]] * 2)
        members = [Member(nodes, "g", f"m{at}", "a", "b", assignor="range") for at in (1, 2)]
        await settle(*members)
        assert (await members[0].described()).assignor_name == "range"
        assert [member.indexes() for member in members] == [[0, 0], [1, 1]]

    run(tmp_path, play)


def test_a_static_member_that_restarts_gets_its_partitions_back(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", *[[1]] * 4)
        stays = Member(nodes, "g", "m1", "orders")
        static = Member(nodes, "g", "m2", "orders", instance_id="one")
        await settle(stays, static)
        before, epoch = static.owned, stays.epoch
        rival = Member(nodes, "g", "m3", "orders", instance_id="one")
        assert await rival.beat() == ErrorCode.UNRELEASED_INSTANCE_ID
        assert await static.leave(-2) == 0
        assert await stays.beat() == 0
        again = Member(nodes, "g", "m4", "orders", instance_id="one")
        assert await again.beat() == 0
        assert again.owned == before
        assert (stays.epoch, len(stays.owned)) == (epoch, 2)
        static.epoch = epoch
        assert await static.beat() == ErrorCode.FENCED_INSTANCE_ID
        # One that does not come back loses its place when its session ends.
        assert await again.leave(-2) == 0
        for _ in range(5):
            await nodes.pass_ms(9_500)
            assert await stays.beat() == 0
        await settle(stays)
        assert len(stays.owned) == 4

    run(tmp_path, play)


def test_the_member_epoch_decides_who_may_commit_and_fetch(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", *[[1]] * 2)
        member, other = Member(nodes, "g", "m1", "orders"), Member(nodes, "g", "m2", "orders")
        assert await member.beat() == 0
        assert await member.commit("orders", 5) == 0
        await settle(member, other)
        kept, lost = member.indexes()[0], other.indexes()[0]
        # An epoch that has passed is good for what the member has had since then (KIP-1251).
        assert await member.commit("orders", 6, partition=kept, epoch=2) == 0
        assert await member.commit("orders", 6, partition=lost, epoch=2) == ErrorCode.STALE_MEMBER_EPOCH
        assert await member.commit("orders", 6, partition=kept, epoch=99) == ErrorCode.STALE_MEMBER_EPOCH
        assert await member.commit("orders", 7, partition=kept) == 0
        assert await member.committed("orders", partition=kept) == (0, 7)
        assert await member.committed("orders", partition=kept, epoch=2) == (ErrorCode.STALE_MEMBER_EPOCH, -1)
        member.member_id = "stranger"
        assert await member.commit("orders", 8) == ErrorCode.UNKNOWN_MEMBER_ID
        assert await member.committed("orders") == (ErrorCode.UNKNOWN_MEMBER_ID, -1)
        # Nobody commits from outside while there are members.
        member.member_id = ""
        assert await member.commit("orders", 8, epoch=-1) == ErrorCode.UNKNOWN_MEMBER_ID

    run(tmp_path, play)


def test_a_restart_loses_nothing(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", *[[1]] * 4)
        members = [
            Member(nodes, "g", "m1", "orders", assignor="range"),
            Member(nodes, "g", "m2", regex="ord.*", instance_id="one"),
        ]
        await settle(*members)
        assert await members[0].commit("orders", 42, partition=members[0].indexes()[0]) == 0
        before = [await members[0].described(), members[0].owned, members[1].owned]
        await nodes.stop(1)
        await nodes.restart(1)
        await nodes.pass_ms(100)
        after = await members[0].described()
        # The order of members is the log's.
        after.members.sort(key=lambda member: member.member_id)
        assert [after, members[0].owned, members[1].owned] == before
        await nodes.pass_ms(SESSION_MS - 1000)
        await settle(*members)
        assert [members[0].owned, members[1].owned] == before[1:]
        assert await members[0].committed("orders", partition=members[0].indexes()[0]) == (0, 42)
        await nodes.pass_ms(SESSION_MS + 1)
        assert (await members[0].described()).group_state == "Empty"

    run(tmp_path, play)


def test_a_handover_that_has_begun_goes_on_with_the_next_coordinator(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1, 2, 3], [2, 3, 1])
        first, second = Member(nodes, "g", "m1", "orders"), Member(nodes, "g", "m2", "orders")
        assert await first.beat() == 0
        await nodes.pass_ms(1001)
        assert await second.beat() == 0
        first.revokes = False
        assert await first.beat() == 0
        old = nodes.leader_of("g")
        await nodes.stop(old.id)
        await nodes.pass_ms(200)
        assert nodes.leader_of("g") is not old
        # The new one knows that the partition is not free yet.
        assert await second.beat() == 0
        assert second.owned == frozenset()
        first.owned, first.revokes = frozenset(sorted(first.owned)[:1]), True
        await settle(first, second)
        assert (len(first.owned), len(second.owned)) == (1, 1)

    run(tmp_path, play, brokers=3)


def test_groups_are_listed_described_and_deleted_by_their_type(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        member = Member(nodes, "g", "m1", "orders")
        await settle(member)
        await stable(old := classic_client(nodes, "old", "orders"))

        async def listed(**filters: list[str]) -> dict[str, tuple[str, str, str]]:
            answer = await nodes.node(1).ask(m.ListGroupsRequest(**filters), 5)
            return {
                group.group_id: (group.group_type, group.protocol_type, group.group_state) for group in answer.groups
            }

        consumer, classic = ("consumer", "consumer", "Stable"), ("classic", "consumer", "Stable")
        assert await listed() == {"g": consumer, "old": classic}
        assert await listed(types_filter=["Consumer"]) == {"g": consumer}
        assert await listed(types_filter=["classic"]) == {"old": classic}
        assert await listed(states_filter=["empty"]) == {}
        # Each description knows only its own kind, and answers for every group.
        assert (await old.described()).group_state == "Stable"
        old.group = "g"
        described = await old.described()
        assert (described.group_state, described.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
        assert described.error_message == "Group g is not a classic group."
        member.group = "old"
        assert (await member.described()).error_message == "Group old is not a consumer group."
        member.group = "g"
        deleting = m.DeleteGroupsRequest(groups_names=["g"])
        assert (await nodes.node(1).ask(deleting, 2)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        assert await member.leave() == 0
        assert (await nodes.node(1).ask(deleting, 2)).results[0].error_code == 0
        assert "g" not in await listed()
        await nodes.stop(1)
        await nodes.restart(1)
        await nodes.pass_ms(100)
        assert "g" not in await listed()

    run(tmp_path, play)


def test_offsets_of_subscribed_topics_stay_and_others_expire(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("kept", [1])
        nodes.create("gone", [1])
        member = Member(nodes, "g", "m1", "kept", "gone")
        await settle(member)
        assert [await member.commit(topic, 1) for topic in ("kept", "gone")] == [0, 0]
        member.topics = ["kept"]
        assert await member.beat(full=True) == 0
        await settle(member)
        for _ in range(10):
            await nodes.pass_ms(30_000)
            assert await member.beat() == 0
        assert await member.committed("kept") == (0, 1)
        assert await member.committed("gone") == (0, -1)
        assert await member.leave() == 0
        await nodes.pass_ms(240_000)
        assert (await member.described()).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(tmp_path, play, offsets_retention_minutes="2", offsets_retention_check_interval_ms="30000")


def test_without_the_feature_or_the_protocol_heartbeats_are_refused(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        member = Member(nodes, "g", "m1", "orders")
        assert await member.beat() == ErrorCode.UNSUPPORTED_VERSION
        assert (await member.described()).error_code == ErrorCode.UNSUPPORTED_VERSION

    run(tmp_path, play, group_coordinator_rebalance_protocols="classic")


# Both protocols


def test_a_classic_group_is_upgraded_member_by_member_and_back(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", *[[1]] * 4)
        old = [classic_client(nodes, "g", "orders", session_ms=60_000) for _ in range(2)]
        await classic_stable(
            old, assignment_of(("orders", 0), ("orders", 1)), assignment_of(("orders", 2), ("orders", 3))
        )
        assert await old[0].commit("orders", 42) == 0
        # The first member of the new protocol turns the group; nobody loses what it has before it has given it up.
        fresh = Member(nodes, "g", "m1", "orders")
        assert await fresh.beat() == 0
        assert fresh.owned == frozenset()
        described = await fresh.described()
        assert sorted(member.member_type for member in described.members) == [0, 0, 1]
        assert await old[0].committed("orders") == 42
        await share(nodes, old, fresh)
        assert len(fresh.owned) >= 1
        # A classic member leaves, the other is replaced: the group is one of the new protocol alone.
        assert await old[0].leave() == 0
        assert await old[1].leave() == 0
        await nodes.pass_ms(1001)
        await settle(fresh)
        assert fresh.indexes() == [0, 1, 2, 3]
        # And back: a classic member joins, the last new one leaves.
        back = classic_client(nodes, "g", "orders", session_ms=60_000)
        assert await back.join() == 0
        await share(nodes, [back], fresh)
        assert await fresh.leave() == 0
        assert await back.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert await back.join() == 0
        assert back.leads
        assert await back.sync() == 0
        assert (await back.described()).group_state == "Stable"
        await nodes.stop(1)
        await nodes.restart(1)
        await nodes.pass_ms(100)
        assert await back.heartbeat() == 0
        assert await back.committed("orders") == 42
        assert (await fresh.described()).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    async def share(nodes: GroupNodes, old: list[Any], fresh: Member) -> None:
        """Classic members follow their responses until each has its share."""
        for _ in range(10):
            for client in old:
                if await client.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                    assert await client.join() == 0
                    assert await client.sync() in (0, ErrorCode.REBALANCE_IN_PROGRESS)
            assert await fresh.beat() == 0
            await nodes.pass_ms(1001)
        shares = [set(partitions_in(client.assignment)) for client in old]
        shares.append({("orders", index) for index in fresh.indexes()})
        assert sum(len(share) for share in shares) == len(set().union(*shares)) == 4
        assert [await client.heartbeat() for client in old] == [0] * len(old)

    run(tmp_path, play, group_initial_rebalance_delay_ms="100")


@pytest.mark.parametrize(("policy", "upgrades"), [("disabled", False), ("downgrade", False), ("upgrade", True)])
def test_the_policy_decides_whether_a_living_group_changes(tmp_path: Path, policy: str, upgrades: bool) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        old = classic_client(nodes, "g", "orders", session_ms=60_000)
        await classic_stable([old], assignment_of(("orders", 0)))
        fresh = Member(nodes, "g", "m1", "orders")
        assert await fresh.beat() == (0 if upgrades else ErrorCode.GROUP_ID_NOT_FOUND)
        if not upgrades:
            # An empty group may change whatever the policy.
            assert await old.leave() == 0
            assert await fresh.beat() == 0
            return
        # The way back is closed: the group stays, with a classic member alone.
        assert await fresh.leave() == 0
        assert [member.member_type for member in (await fresh.described()).members] == [0]

    run(tmp_path, play, group_consumer_migration_policy=policy)


def test_an_empty_consumer_group_makes_room_for_a_classic_one(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        member = Member(nodes, "g", "m1", "orders")
        await settle(member)
        assert await member.commit("orders", 7) == 0
        assert await member.leave() == 0
        old = classic_client(nodes, "g", "orders")
        await stable(old)
        assert (await old.described()).group_state == "Stable"
        assert await old.committed("orders") == 7

    run(tmp_path, play)


def test_classic_requests_of_others_are_refused_in_a_consumer_group(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        member = Member(nodes, "g", "m1", "orders")
        await settle(member)
        old = classic_client(nodes, "g", "orders", session_ms=60_000)
        assert await old.join() == 0
        old.member_id, own_member_id = "m1", old.member_id
        assert await old.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        old.member_id = own_member_id
        old.generation += 7
        assert await old.heartbeat() == ErrorCode.ILLEGAL_GENERATION
        assert await old.sync() == ErrorCode.ILLEGAL_GENERATION
        strange = classic_client(nodes, "g", "orders")
        strange.protocols = (("other", strange.protocols[0][1]),)
        assert await strange.join() == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        late = classic_client(nodes, "g", "orders", session_ms=1)
        assert await late.join() == ErrorCode.INVALID_SESSION_TIMEOUT

    run(tmp_path, play)
