"""Groups through their APIs on real logs: rebalances, sessions, commits, restarts, a coordinator that moves."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from backend.engine.apis.support import response_budget
from backend.engine.controller.commands.topic_commands import delete_topics
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.unit.engine.coordinator.group.group_nodes import Client, GroupNodes, commit_request, run, stable


def test_members_get_what_their_leader_assigns(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        clients = [Client(nodes, "g") for _ in range(3)]
        await stable(*clients)
        assert {client.assignment for client in clients} == {b"for " + c.member_id.encode() for c in clients}
        assert sum(client.leads for client in clients) == 1
        described = await clients[0].described()
        assert (described.group_state, described.protocol_type, described.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        assert {member.member_id for member in described.members} == {client.member_id for client in clients}
        assert all(member.client_host == "/127.0.0.1" and member.client_id == "test" for member in described.members)

    run(tmp_path, play, group_initial_rebalance_delay_ms="3000")


def test_a_group_whose_members_say_more_than_clients_read_is_described_as_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(nodes: GroupNodes) -> None:
        large, small = [Client(nodes, "large") for _ in range(3)], Client(nodes, "small")
        await stable(*large)
        await stable(small)
        both = m.DescribeGroupsRequest(groups=["large", "small"])
        answer = await small.ask(both, 6)
        assert [group.error_code for group in answer.groups] == [ErrorCode.NONE, ErrorCode.NONE]
        size = max(len(member.member_metadata) + len(member.member_assignment) for member in answer.groups[0].members)
        monkeypatch.setattr(response_budget, "RESPONSE_BYTES_MAX", size + 1)
        answer = await small.ask(both, 6)
        assert [group.error_code for group in answer.groups] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
        assert "ask for less at a time" in (answer.groups[0].error_message or "")
        assert [len(group.members) for group in answer.groups] == [0, 1]

    run(tmp_path, play, group_initial_rebalance_delay_ms="3000")


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_group_leads_into_the_group(tmp_path: Path, version: int) -> None:
    async def play(nodes: GroupNodes) -> None:
        client = Client(nodes, "g", version=version)
        code = await client.join_once()
        if version >= 4:
            assert code == ErrorCode.MEMBER_ID_REQUIRED
            assert client.member_id.startswith("test-")
            code = await client.join_once()
        assert (code, client.generation, client.leads) == (0, 1, True)
        assert [bytes(member.metadata) for member in client.last.members] == [b"meta"]
        assert await client.sync() == 0

    run(tmp_path, play)


def test_a_silent_member_is_dropped_when_its_session_ends_and_the_others_share_again(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        silent, alive = Client(nodes, "g", session_ms=10_000), Client(nodes, "g", session_ms=60_000)
        await stable(silent, alive)
        await nodes.pass_ms(9_999)
        assert await alive.heartbeat() == 0
        await nodes.pass_ms(2)
        assert await alive.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert await alive.join() == 0
        assert (alive.generation, len(alive.last.members)) == (silent.generation + 1, 1)
        assert await silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    run(tmp_path, play, group_initial_rebalance_delay_ms="3000")


def test_heartbeats_and_commits_keep_a_session(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        client = Client(nodes, "g")
        await stable(client)
        for number in range(4):
            await nodes.pass_ms(9_000)
            assert await (client.heartbeat() if number % 2 else client.commit("orders", number)) == 0
        await nodes.pass_ms(10_001)
        assert await client.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await client.described()).group_state == "Empty"

    run(tmp_path, play)


def test_a_rebalance_waits_for_the_slowest_member_but_no_longer_than_its_time_out(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        slow = Client(nodes, "g", session_ms=60_000, rebalance_ms=20_000)
        await stable(slow)
        fresh = Client(nodes, "g", session_ms=60_000, rebalance_ms=5_000)
        started_s = asyncio.get_running_loop().time()
        assert await fresh.join() == 0
        assert asyncio.get_running_loop().time() - started_s == pytest.approx(20.0, abs=0.01)
        assert [member.member_id for member in fresh.last.members] == [fresh.member_id]
        assert await slow.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    run(tmp_path, play)


def test_a_first_rebalance_is_put_off_while_members_come(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()

        async def later(client: Client, delay_ms: float) -> float:
            await nodes.pass_ms(delay_ms)
            assert await client.join() == 0
            return loop.time() - started_s

        clients = [Client(nodes, "g") for _ in range(3)]
        ends = await asyncio.gather(*(later(client, 2000 * at) for at, client in enumerate(clients)))
        # 3 s, and 3 s more for the second, and again for the third.
        assert ends == pytest.approx([9.0] * 3, abs=0.01)
        assert {client.generation for client in clients} == {1}

    run(tmp_path, play, group_initial_rebalance_delay_ms="3000")


def test_a_member_that_does_not_fetch_its_assignment_in_time_is_dropped(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        first = Client(nodes, "g", session_ms=60_000, rebalance_ms=8_000)
        late = Client(nodes, "g", session_ms=60_000, rebalance_ms=8_000)
        assert list(await asyncio.gather(first.join(), late.join())) == [0, 0]
        leader, other = (first, late) if first.leads else (late, first)
        assert await leader.sync() == 0
        await nodes.pass_ms(7_000)
        assert await leader.heartbeat() == 0
        await nodes.pass_ms(1_001)
        assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert await other.sync() == ErrorCode.UNKNOWN_MEMBER_ID

    run(tmp_path, play, group_initial_rebalance_delay_ms="100")


def test_an_id_that_is_never_used_does_not_hold_up_the_group(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        member, lost = Client(nodes, "g", session_ms=60_000), Client(nodes, "g")
        await stable(member)
        assert await lost.join_once() == ErrorCode.MEMBER_ID_REQUIRED
        await nodes.pass_ms(10_001)
        # Nobody has come or gone: no rebalance.
        assert await member.heartbeat() == 0
        assert await lost.join_once() == ErrorCode.UNKNOWN_MEMBER_ID

    run(tmp_path, play)


def test_a_pending_member_that_leaves_lets_the_rebalance_end(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        member, lost = Client(nodes, "g", session_ms=60_000), Client(nodes, "g", session_ms=60_000)
        await stable(member)
        assert await lost.join_once() == ErrorCode.MEMBER_ID_REQUIRED
        joining = asyncio.ensure_future(member.join())
        await asyncio.sleep(0)
        assert not joining.done()
        started_s = asyncio.get_running_loop().time()
        assert await lost.leave() == 0
        assert await joining == 0
        assert asyncio.get_running_loop().time() == started_s

    run(tmp_path, play)


def test_a_static_member_that_restarts_gets_its_place_back_without_a_rebalance(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        first, second = Client(nodes, "g", instance_id="one"), Client(nodes, "g", instance_id="two")
        await stable(first, second)
        generation, assignment, fenced_id = first.generation, first.assignment, first.member_id
        again = Client(nodes, "g", instance_id="one")
        assert await again.join() == 0
        assert again.generation == generation
        assert again.member_id != fenced_id
        assert await second.heartbeat() == 0
        assert await first.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
        # The leader gets the members, with skip_assignment (KIP-814).
        assert again.last.skip_assignment == again.leads
        await again.sync()
        assert again.assignment == assignment

    run(tmp_path, play, group_initial_rebalance_delay_ms="100")


def test_before_kip_814_a_static_leader_is_told_of_its_old_self(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        first = Client(nodes, "g", instance_id="one", version=8)
        await stable(first)
        again = Client(nodes, "g", instance_id="one", version=8)
        assert await again.join() == 0
        assert (again.last.leader, again.last.members) == (first.member_id, [])

    run(tmp_path, play)


def test_static_members_are_removed_by_name(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        client = Client(nodes, "g", instance_id="one")
        await stable(client)
        member = m.LeaveGroupRequest.Members
        members = [
            member(member_id="", group_instance_id="one"),
            member(member_id="", group_instance_id="none"),
            member(member_id="nobody", group_instance_id=None),
        ]
        answer = await client.ask(m.LeaveGroupRequest(group_id="g", members=members), 3)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert [response.error_code for response in answer.members] == [0, unknown, unknown]
        assert (await client.described()).group_state == "Empty"

    run(tmp_path, play)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"protocols": (("sticky", b""),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "none", "member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "one", "member_id": "stranger"}, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_joins_that_kafka_refuses_are_refused(tmp_path: Path, change: dict[str, object], code: ErrorCode) -> None:
    async def play(nodes: GroupNodes) -> None:
        await stable(Client(nodes, "g", instance_id="one"))
        client = Client(nodes, "g")
        for name, value in change.items():
            setattr(client, name, value)
        assert await client.join_once() == code

    run(tmp_path, play)


def test_a_full_group_takes_no_more(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        first, second, third = (Client(nodes, "g", session_ms=60_000) for _ in range(3))
        await stable(first, second)
        assert await third.join() == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert third.member_id == ""

    run(tmp_path, play, group_max_size="2", group_initial_rebalance_delay_ms="100")


def test_the_generation_decides_who_may_commit(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        client = Client(nodes, "g")
        await stable(client)
        leader = nodes.leader_of("g")

        async def code(*request: object, version: int = 9, group: str = "g") -> int:
            answer = await leader.ask(commit_request(group, "orders", 1, 0, *request), version)  # type: ignore[arg-type] # a shorthand
            return int(answer.topics[0].partitions[0].error_code)

        assert await client.commit("orders", 5) == 0
        assert await code(client.generation + 1, client.member_id) == ErrorCode.ILLEGAL_GENERATION
        assert await code(client.generation, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await code() == ErrorCode.UNKNOWN_MEMBER_ID
        assert await code(3, "x", group="none") == ErrorCode.GROUP_ID_NOT_FOUND
        assert await code(3, "x", group="none", version=8) == ErrorCode.ILLEGAL_GENERATION
        assert await client.commit("nothing", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await client.commit("orders", 5, partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await client.commit("orders", 6, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await client.committed("orders") == 5
        assert await client.join() == 0
        assert await client.commit("orders", 6) == ErrorCode.REBALANCE_IN_PROGRESS

    run(tmp_path, play)


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_of_offset_commit_and_fetch_agrees(tmp_path: Path, version: int) -> None:
    async def play(nodes: GroupNodes) -> None:
        topic_id = nodes.create("orders", [1], [1])
        leader = nodes.leader_of("simple")
        commit_topics = m.OffsetCommitRequest.Topics
        partitions = [commit_topics.Partitions(partition_index=1, committed_offset=7, committed_leader_epoch=3,
                                               committed_metadata="note")]  # fmt: skip
        topic = commit_topics(name="orders" if version < 10 else "", topic_id=topic_id if version >= 10 else bytes(16),
                              partitions=partitions)  # fmt: skip
        request = m.OffsetCommitRequest(
            group_id="simple", topics=[topic], generation_id_or_member_epoch=-1, member_id=""
        )
        committed = await leader.ask(request, version)
        assert [partition.error_code for partition in committed.topics[0].partitions] == [0]
        epoch = 3 if version >= 6 else -1
        for reading in range(1, 11):
            for everything in (False, True):
                if everything and reading < 2:
                    continue
                rows = await fetched(nodes, "simple", topic_id, reading, everything)
                expected = {1: (7, epoch if reading >= 5 else -1, "note", 0)}
                assert rows == (expected if everything else {0: (-1, -1, "", 0), **expected}), reading

    async def fetched(
        nodes: GroupNodes, group_id: str, topic_id: bytes, version: int, everything: bool
    ) -> dict[int, tuple[int, int, str, int]]:
        group, topic = m.OffsetFetchRequest.Groups, m.OffsetFetchRequest.Topics
        by_id = version >= 10
        if version >= 8:
            requested_topic = group.Topics(name="" if by_id else "orders", topic_id=topic_id if by_id else bytes(16),
                                           partition_indexes=[0, 1])  # fmt: skip
            requested_group = group(
                group_id=group_id, topics=None if everything else [requested_topic], member_epoch=-1
            )
            answer = await nodes.leader_of(group_id).ask(m.OffsetFetchRequest(groups=[requested_group]), version)
            topics = answer.groups[0].topics
        else:
            topics_asked = None if everything else [topic(name="orders", partition_indexes=[0, 1])]
            request = m.OffsetFetchRequest(group_id=group_id, topics=topics_asked)
            topics = (await nodes.leader_of(group_id).ask(request, version)).topics
        return {
            row.partition_index: (row.committed_offset, row.committed_leader_epoch, row.metadata, row.error_code)
            for topic in topics
            for row in topic.partitions
        }

    run(tmp_path, play)


def test_a_restart_loses_neither_members_nor_offsets(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        clients = [Client(nodes, "g"), Client(nodes, "g", instance_id="one")]
        await stable(*clients)
        assert await clients[0].commit("orders", 42, metadata="here") == 0
        await nodes.stop(1)
        await nodes.restart(1)
        await nodes.pass_ms(100)
        # The members go on with their ids and generation, and their sessions begin again.
        await nodes.pass_ms(9_000)
        assert [await client.heartbeat() for client in clients] == [0, 0]
        assert await clients[0].committed("orders") == 42
        assert await clients[0].commit("orders", 43) == 0
        described = await clients[0].described()
        assert (described.group_state, len(described.members)) == ("Stable", 2)
        await nodes.pass_ms(10_001)
        assert (await clients[0].described()).group_state == "Empty"

    run(tmp_path, play, group_initial_rebalance_delay_ms="100")


def test_a_group_moves_to_the_new_leader_of_its_partition(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1, 2, 3])
        client, other = Client(nodes, "g"), Client(nodes, "g")
        await stable(client, other)
        assert await client.commit("orders", 42) == 0
        old = nodes.leader_of("g")
        # One member waits in a rebalance when its coordinator goes away.
        waiting = asyncio.ensure_future(client.join())
        await nodes.pass_ms(1)
        assert not waiting.done()
        await nodes.stop(old.id)
        assert await waiting == ErrorCode.COORDINATOR_NOT_AVAILABLE or waiting.result() == ErrorCode.NOT_COORDINATOR
        await nodes.pass_ms(100)
        assert nodes.leader_of("g") is not old
        assert await other.committed("orders") == 42
        assert await other.heartbeat() == 0
        stranger = next(
            node for node in (1, 2, 3) if nodes.node(node).up and nodes.node(node) is not nodes.leader_of("g")
        )
        request = m.HeartbeatRequest(group_id="g", member_id=other.member_id, generation_id=other.generation)
        answer = await nodes.node(stranger).ask(request, 4)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR

    run(tmp_path, play, brokers=3, group_initial_rebalance_delay_ms="100")


def test_a_coordinator_that_stays_leader_keeps_waiting_members(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        client, fresh = Client(nodes, "g", session_ms=60_000), Client(nodes, "g", session_ms=60_000)
        leader = nodes.leader_of("g").id
        await stable(client)
        waiting = asyncio.ensure_future(fresh.join())
        await nodes.pass_ms(1)
        # A follower goes away: the leader's epoch may rise, its groups stay.
        await nodes.stop(next(node for node in (1, 2, 3) if node != leader))
        await nodes.pass_ms(100)
        assert not waiting.done()
        assert await client.join() == 0
        assert await waiting == 0

    run(tmp_path, play, brokers=3)


def test_offsets_expire_and_the_group_with_them(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        client = Client(nodes, "g")
        await stable(client)
        assert await client.commit("orders", 1) == 0
        simple = Client(nodes, "simple")
        assert await simple.commit("orders", 2) == 0
        assert await client.leave() == 0
        await nodes.pass_ms(59 * 60_000)
        assert (await client.committed("orders"), await simple.committed("orders")) == (1, 2)
        await nodes.pass_ms(12 * 60_000)
        assert (await client.committed("orders"), await simple.committed("orders")) == (-1, -1)
        assert (await client.described(5)).group_state == "Dead"
        assert (await client.described()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await nodes.stop(1)
        await nodes.restart(1)
        await nodes.pass_ms(100)
        assert (await nodes.node(1).ask(m.ListGroupsRequest(), 5)).groups == []

    run(tmp_path, play, offsets_retention_minutes="60")


def test_offsets_of_a_living_group_stay(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        client = Client(nodes, "g", session_ms=1_800_000)
        await stable(client)
        assert await client.commit("orders", 1) == 0
        for _ in range(8):
            await nodes.pass_ms(20 * 60_000)
            assert await client.heartbeat() == 0
        assert await client.committed("orders") == 1

    run(tmp_path, play, offsets_retention_minutes="60")


def test_deleting_a_topic_deletes_what_groups_committed_for_it(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        nodes.create("clicks", [1])
        simple = Client(nodes, "simple")
        assert [await simple.commit(topic, 2) for topic in ("orders", "clicks")] == [0, 0]
        request = m.DeleteTopicsRequest(topic_names=["orders"])
        nodes.apply(partial(delete_topics, request=request, config=nodes.play.config, version=5))
        await nodes.pass_ms(10)
        nodes.create("orders", [1])
        assert (await simple.committed("orders"), await simple.committed("clicks")) == (-1, 2)

    run(tmp_path, play)


def test_groups_are_listed_by_state_and_deleted_when_empty(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        client, simple = Client(nodes, "living"), Client(nodes, "simple")
        await stable(client)
        assert await simple.commit("orders", 2) == 0

        async def listed(**filters: list[str]) -> list[tuple[str, str, str, str]]:
            answer = await nodes.node(1).ask(m.ListGroupsRequest(**filters), 5)
            return sorted((g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups)

        living, empty = ("living", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")
        assert await listed() == [living, empty]
        assert await listed(states_filter=["stable"]) == [living]
        assert await listed(types_filter=["consumer"]) == []
        answer = await nodes.node(1).ask(m.DeleteGroupsRequest(groups_names=["living", "simple", "none"]), 2)
        assert {result.group_id: result.error_code for result in answer.results} == {
            "living": ErrorCode.NON_EMPTY_GROUP, "simple": 0, "none": ErrorCode.GROUP_ID_NOT_FOUND,
        }  # fmt: skip
        assert await listed() == [living]
        assert await simple.committed("orders") == -1

    run(tmp_path, play)


def test_offsets_of_subscribed_topics_are_not_deleted(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        nodes.create("orders", [1])
        nodes.create("clicks", [1])
        subscription = b"\x00\x00" + b"\x00\x00\x00\x01\x00\x06orders" + b"\xff\xff\xff\xff"
        client = Client(nodes, "g", protocols=(("range", subscription),))
        await stable(client)
        assert [await client.commit(topic, 2) for topic in ("orders", "clicks")] == [0, 0]
        topic, topics = m.OffsetDeleteRequest.Topics, ("orders", "clicks", "none")
        request = m.OffsetDeleteRequest(
            group_id="g",
            topics=[topic(name=name, partitions=[topic.Partitions(partition_index=0)]) for name in topics],
        )
        answer = await nodes.node(1).ask(request, 0)
        assert {row.name: row.partitions[0].error_code for row in answer.topics} == {
            "orders": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "clicks": 0, "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }  # fmt: skip
        assert (await client.committed("orders"), await client.committed("clicks")) == (2, -1)
        request.group_id = "none"
        assert (await nodes.node(1).ask(request, 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(tmp_path, play)


def test_assignments_that_cannot_be_stored_are_not_given_out(tmp_path: Path) -> None:
    async def play(nodes: GroupNodes) -> None:
        client = Client(nodes, "g")
        assert await client.join() == 0
        # Only the leader is left of the two that acks=all needs.
        await nodes.stop(2)
        await nodes.pass_ms(10)
        if nodes.leader_of("g").id != 1:
            pytest.fail("broker 1 leads what broker 2 followed")
        assert await client.sync() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert client.assignment == b""
        assert (await client.described()).group_state == "PreparingRebalance"

    run(tmp_path, play, brokers=2, min_insync_replicas="2")
