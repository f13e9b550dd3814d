"""Members of the consumer protocol for tests: each keeps the last response and acts on it as a client does."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from backend.protocol import codec
from backend.protocol import messages as m
from tests.unit.engine.coordinator.group.group_nodes import Client, GroupNodes, commit_request

Partitions = frozenset[tuple[bytes, int]]
ROUNDS_MAX: Final = 20


class Member:
    """One member. `revokes` False is a client that does not give up what it should. Error codes are the test's."""

    def __init__(
        self,
        nodes: GroupNodes,
        group: str,
        name: str,
        *topics: str,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = 30_000,
    ) -> None:
        self.nodes, self.group, self.member_id = nodes, group, name
        self.topics: list[str] | None = list(topics) if topics or regex is None else None
        self.regex, self.instance_id, self.assignor, self.rebalance_ms = regex, instance_id, assignor, rebalance_ms
        self.epoch = 0
        self.owned: Partitions = frozenset()
        self.revokes = True
        self.last = m.ConsumerGroupHeartbeatResponse()

    async def ask(self, request: m.Message, version: int) -> Any:
        return await self.nodes.leader_of(self.group).ask(request, version)

    async def beat(self, *, full: bool = False, **changed: Any) -> int:
        """One heartbeat; its error code. What comes back is taken over."""
        kind = m.ConsumerGroupHeartbeatRequest
        full = full or self.epoch == 0
        by_topic: dict[bytes, list[int]] = {}
        for topic, index in sorted(self.owned):
            by_topic.setdefault(topic, []).append(index)
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "rebalance_timeout_ms": self.rebalance_ms if full else -1,
            "subscribed_topic_names": self.topics if full else None,
            "subscribed_topic_regex": self.regex if full else None,
            "server_assignor": self.assignor if full else None,
            "topic_partitions": [kind.TopicPartitions(topic_id=id_, partitions=at) for id_, at in by_topic.items()],
        } | changed
        self.last = await self.ask(kind(**fields), 1)
        if self.last.error_code == 0 and self.last.member_epoch >= 0:
            self.epoch = self.last.member_epoch
            if self.last.assignment is not None and self.revokes:
                self.owned = frozenset(
                    (bytes(topic_partition.topic_id), at)
                    for topic_partition in self.last.assignment.topic_partitions
                    for at in topic_partition.partitions
                )
        return int(self.last.error_code)

    async def leave(self, epoch: int = -1) -> int:
        self.epoch, self.owned = epoch, frozenset()
        code = await self.beat(topic_partitions=None)
        self.epoch = 0
        return code

    def indexes(self) -> list[int]:
        return sorted(index for _, index in self.owned)

    async def commit(self, topic: str, offset: int, *, partition: int = 0, epoch: int | None = None) -> int:
        topic_id = self.nodes.play.image.topic_ids[topic]
        request = commit_request(
            self.group, "", offset, partition, self.epoch if epoch is None else epoch, self.member_id
        )
        request.topics[0].topic_id = topic_id
        answer = await self.ask(request, 10)
        return int(answer.topics[0].partitions[0].error_code)

    async def committed(self, topic: str, *, partition: int = 0, epoch: int | None = None) -> tuple[int, int]:
        """(error code, offset) as the member itself asks."""
        group = m.OffsetFetchRequest.Groups
        requested = group(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            topics=[group.Topics(name=topic, partition_indexes=[partition])],
        )
        answer = (await self.ask(m.OffsetFetchRequest(groups=[requested]), 9)).groups[0]
        if answer.error_code:
            return int(answer.error_code), -1
        return 0, int(answer.topics[0].partitions[0].committed_offset)

    async def described(self, version: int = 1) -> m.ConsumerGroupDescribeResponse.Groups:
        answer = await self.ask(m.ConsumerGroupDescribeRequest(group_ids=[self.group]), version)
        group: m.ConsumerGroupDescribeResponse.Groups = answer.groups[0]
        return group


async def settle(*members: Member) -> None:
    """All heartbeat in turns until no response is new, with time for a new target between."""
    for _ in range(ROUNDS_MAX):
        before = [(member.epoch, member.owned) for member in members]
        for member in members:
            assert await member.beat() == 0, member.last
        await members[0].nodes.pass_ms(1001)
        if before == [(member.epoch, member.owned) for member in members]:
            return
    raise AssertionError(f"the group does not settle: {before}")


def classic_client(nodes: GroupNodes, group: str, *topics: str, **more: Any) -> Client:
    """A client of the classic protocol that speaks the consumer's own format inside."""
    said = m.ConsumerProtocolSubscription(topics=sorted(topics))
    metadata = b"\x00\x01" + codec.encode(said, 1)
    return Client(nodes, group, protocols=(("range", metadata),), **more)


async def classic_stable(clients: list[Client], *assignments: bytes) -> None:
    """Clients of a new group join together (it needs an initial delay) and get these assignments."""
    assert await asyncio.gather(*(client.join() for client in clients)) == [0] * len(clients)
    given = {client.member_id: assignment for client, assignment in zip(clients, assignments, strict=True)}
    assert await asyncio.gather(*(client.sync(**given) for client in clients)) == [0] * len(clients)


def assignment_of(*partitions: tuple[str, int]) -> bytes:
    """The assignment that a leader sends to a member, encoded."""
    kind = m.ConsumerProtocolAssignment
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    assigned = [kind.AssignedPartitions(topic=topic, partitions=at) for topic, at in by_topic.items()]
    return b"\x00\x01" + codec.encode(kind(assigned_partitions=assigned), 1)


def partitions_in(assignment: bytes) -> list[tuple[str, int]]:
    """The assignment that a member got, decoded."""
    protocol_assignment, _ = codec.decode(m.ConsumerProtocolAssignment, 1, assignment, 2)
    return sorted(
        (assigned_partition.topic, index)
        for assigned_partition in protocol_assignment.assigned_partitions
        for index in assigned_partition.partitions
    )
