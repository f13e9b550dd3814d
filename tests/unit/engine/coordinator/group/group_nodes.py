"""Brokers with group coordinators on real logs and virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import GeneratorType
from typing import Any, Final, TypeVar

from backend.engine.apis import (
    consumer_groups,
    groups_admin,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from backend.engine.apis.api_declaration import RequestContext
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.coordinator.group.group_records import OFFSETS_TOPIC, coordinator_partition
from backend.engine.coordinator.transaction.transaction_verifier import TransactionVerifier
from backend.protocol import messages as m
from backend.protocol.frames import RequestHeader
from backend.protocol.messages import Message
from tests.unit.engine.replica.nodes import Node, Nodes, Peer, through_codec
from tests.unit.engine.virtual_time import run_virtual

T = TypeVar("T")
PARTITIONS: Final = 3
HANDLERS: Final[dict[int, Callable[..., Any]]] = {
    api.key: api.handler
    for module in (
        consumer_groups, groups_admin, heartbeat, join_group, leave_group, offset_commit, offset_fetch, sync_group,
    )
    for api in module.APIS
}  # fmt: skip


class GroupNode(Node):
    """A broker that coordinates groups."""

    def __init__(self, nodes: Nodes, node_id: int, settings: dict[str, str], *, tiered: bool) -> None:
        super().__init__(nodes, node_id, settings, tiered=tiered)
        self.services.transaction_verifier = TransactionVerifier(
            self.ports.clock, self.send_to_broker, lambda: self.replicas.image
        )
        self.groups = GroupCoordinator(
            config=self.config,
            ports=self.ports,
            replica_manager=self.replicas,
            verifier=self.services.transaction_verifier,
            unreadable_records=self.metrics.unreadable_records,
        )
        self.services.group_coordinator = self.groups

    async def send_to_broker(self, broker_id: int, request: Message, version: int, *, timeout_ms: float) -> Message:
        return await Peer(self.nodes, self.id, broker_id).send(request, version, timeout_ms=timeout_ms)

    async def start(self) -> None:
        await super().start()
        self.groups.start()

    async def stop(self) -> None:
        await self.groups.shutdown()
        await super().stop()

    def publish(self, image: MetadataImage) -> None:
        old = self.metadata.image
        super().publish(image)
        self.groups.on_metadata(old, image)

    async def ask(self, request: Message, version: int, *, client_id: str = "test") -> Any:
        handler = HANDLERS.get(request.API_KEY)
        if handler is None:
            return await super().ask(request, version, client_id=client_id)
        header = RequestHeader(request.API_KEY, version, 1, client_id)
        context = RequestContext(header, 1, "127.0.0.1", "PLAINTEXT", "broker")
        answer = handler(self.services, context, through_codec(request, version))
        if isinstance(answer, GeneratorType):
            answer = await self.services.time_slicer.do(answer)
        if not isinstance(answer, Message):
            answer = await answer
        return through_codec(answer, version)


class GroupNodes(Nodes):
    """Several of them; `__consumer_offsets` has three partitions."""

    def _node(self, node: int) -> Node:
        return GroupNode(self, node, self.settings, tiered=False)

    def prepare(self, replicas: list[int]) -> None:
        """The internal topics."""
        self.create_offsets_topic(*replicas)

    def create_offsets_topic(self, *replicas: int) -> None:
        self.create(OFFSETS_TOPIC, *[list(replicas)] * PARTITIONS, cleanup_policy="compact")

    def node(self, node: int) -> GroupNode:
        group_node = self.nodes[node]
        assert isinstance(group_node, GroupNode)
        return group_node

    def leader_of(self, group: str) -> GroupNode:
        """The broker that coordinates a group as metadata has it."""
        partition = self.play.image.partition(OFFSETS_TOPIC, coordinator_partition(group, PARTITIONS))
        assert partition is not None
        return self.node(partition.leader)

    async def pass_ms(self, delay_ms: float) -> None:
        await asyncio.sleep(delay_ms / 1000.0)


def run(
    folder: Path, work: Callable[[GroupNodes], Coroutine[Any, Any, None]], *, brokers: int = 1, **settings: str
) -> None:
    """Plays with brokers and their offsets topic on all of them."""
    run_nodes(GroupNodes, folder, work, brokers=brokers, **settings)


N = TypeVar("N", bound=GroupNodes)


def run_nodes(
    kind: type[N], folder: Path, work: Callable[[N], Coroutine[Any, Any, None]], *, brokers: int = 1, **settings: str
) -> None:
    """The same with nodes of any kind."""

    async def started() -> None:
        settings.setdefault("group_initial_rebalance_delay_ms", "0")
        async with kind(folder, brokers, tiered=False, **settings) as nodes:
            nodes.prepare(list(range(1, brokers + 1)))
            await nodes.pass_ms(10)
            await work(nodes)

    run_virtual(started())


class Client:
    """One consumer: it keeps the last response and uses it in its next request. Any error code is left to the test."""

    def __init__(self, nodes: GroupNodes, group: str, *, version: int = 9, instance_id: str | None = None,
                 session_ms: int = 10_000, rebalance_ms: int = 30_000,
                 protocols: tuple[tuple[str, bytes], ...] = (("range", b"meta"),)) -> None:  # fmt: skip
        self.nodes, self.group, self.version, self.instance_id = nodes, group, version, instance_id
        self.session_ms, self.rebalance_ms, self.protocols = session_ms, rebalance_ms, protocols
        self.member_id, self.generation, self.assignment = "", -1, b""
        self.last = m.JoinGroupResponse()

    async def ask(self, request: Message, version: int) -> Any:
        return await self.nodes.leader_of(self.group).ask(request, version)

    async def join_once(self) -> int:
        """The error code; remembers the member id and the generation."""
        protocol = m.JoinGroupRequest.Protocols
        request = m.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id if self.version >= 5 else None,
            protocol_type="consumer",
            protocols=[protocol(name=name, metadata=metadata) for name, metadata in self.protocols],
        )
        self.last = await self.ask(request, self.version)
        self.member_id = self.last.member_id
        if self.last.error_code == 0:
            self.generation = self.last.generation_id
        return self.last.error_code

    async def join(self) -> int:
        """Joins as clients do: again with the id from the first response (KIP-394)."""
        code = await self.join_once()
        return await self.join_once() if code == 79 else code

    @property
    def leads(self) -> bool:
        return self.last.leader == self.member_id

    async def sync(self, **assignments: bytes) -> int:
        """The leader sends what each member gets; others nothing."""
        assignment = m.SyncGroupRequest.Assignments
        given = {member.member_id: b"for " + member.member_id.encode() for member in self.last.members}
        request = m.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment(member_id=name, assignment=value) for name, value in (given | assignments).items()],
        )
        answer = await self.ask(request, 5)
        self.assignment = bytes(answer.assignment)
        return int(answer.error_code)

    async def heartbeat(self) -> int:
        request = m.HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        answer = await self.ask(request, 4)
        return int(answer.error_code)

    async def leave(self) -> int:
        member = m.LeaveGroupRequest.Members
        leaving = [member(member_id=self.member_id, group_instance_id=self.instance_id)]
        answer = await self.ask(m.LeaveGroupRequest(group_id=self.group, members=leaving), 5)
        return int(answer.error_code or answer.members[0].error_code)

    async def commit(self, topic: str, offset: int, *, partition: int = 0, metadata: str = "") -> int:
        answer = await self.ask(
            commit_request(self.group, topic, offset, partition, self.generation, self.member_id, self.instance_id,
                           metadata=metadata), 9
        )  # fmt: skip
        return int(answer.topics[0].partitions[0].error_code)

    async def committed(self, topic: str, *, partition: int = 0) -> int:
        group = m.OffsetFetchRequest.Groups
        requested = group(
            group_id=self.group, topics=[group.Topics(name=topic, partition_indexes=[partition])], member_epoch=-1
        )
        answer = await self.ask(m.OffsetFetchRequest(groups=[requested]), 9)
        assert answer.groups[0].error_code == 0, answer
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)

    async def described(self, version: int = 6) -> m.DescribeGroupsResponse.Groups:
        answer = await self.ask(m.DescribeGroupsRequest(groups=[self.group]), version)
        group: m.DescribeGroupsResponse.Groups = answer.groups[0]
        return group


def commit_request(
    group: str,
    topic: str,
    offset: int,
    partition: int = 0,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    *,
    metadata: str = "",
) -> m.OffsetCommitRequest:
    """A commit of one partition."""
    topics = m.OffsetCommitRequest.Topics
    requested = topics.Partitions(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
    return m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[topics(name=topic, partitions=[requested])],
    )


async def stable(*clients: Client) -> None:
    """All join together and get their assignments."""
    assert await asyncio.gather(*(client.join() for client in clients)) == [0] * len(clients)
    if len({client.generation for client in clients}) > 1:
        # Some had to wait for the next generation.
        assert await asyncio.gather(*(client.join() for client in clients)) == [0] * len(clients)
    assert await asyncio.gather(*(client.sync() for client in clients)) == [0] * len(clients)
