"""Requests about groups of both protocols, one after the other, to any broker: what it answers, as text.

Run against a real broker it makes the fixture that ours is compared with::

    PYTHONPATH=. python tests/interop/consumer_group_script.py PORT > consumer-groups.json

The broker must be fresh, alone, and run with group.consumer.assignment.interval.ms=0 and
group.initial.rebalance.delay.ms=0.
"""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import Message
from tests.waiting import wait_until
from tests.wire import ask

R = TypeVar("R", bound=Message)
TOPICS: Final = {"orders": 4, "extra": 2}
GROUPS: Final = ("g", "s", "h", "h2", "c", "none", "fresh", "fresh2")

_Join = m.JoinGroupRequest
_Beat = m.ConsumerGroupHeartbeatRequest
_Commit = m.OffsetCommitRequest
_Fetch = m.OffsetFetchRequest


class Script:
    """The conversation; `told` has the pairs (request, response)."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers: list[tuple[str, str]] = []
        self.names: dict[bytes, str] = {}
        self.ids: dict[str, bytes] = {}
        # Ids that the broker gave out, which are random.
        self.member = ""

    def prepare(self) -> None:
        """Topics, and a coordinator that has read its groups."""
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}"})
        for name, partitions in TOPICS.items():
            admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        for group in GROUPS:
            wait_until(f"group {group} has a coordinator", partial(self._is_ready, group))
        answer = ask(self.port, m.MetadataRequest(topics=None), 12, m.MetadataResponse)
        self.names = {bytes(topic.topic_id): topic.name or "" for topic in answer.topics}
        self.ids = {name: topic_id for topic_id, name in self.names.items()}

    def _is_ready(self, group: str) -> bool:
        find = m.FindCoordinatorRequest(coordinator_keys=[group], key_type=0)
        if ask(self.port, find, 4, m.FindCoordinatorResponse).coordinators[0].error_code:
            return False
        beat = _Beat(group_id=group, member_id="nobody", member_epoch=5)
        answer = ask(self.port, beat, 1, m.ConsumerGroupHeartbeatResponse)
        return answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    def ask(self, label: str, request: Message, version: int, response: type[R]) -> R:
        answer = ask(self.port, request, version, response)
        text = repr(answer)
        for topic_id, name in self.names.items():
            text = text.replace(repr(topic_id), name)
        if self.member:
            text = text.replace(self.member, "MEMBER")
        self.answers.append((label, text))
        return answer

    # Requests

    def beat(self, label: str, group: str = "g", **fields: Any) -> None:
        """As a member that joins, unless said otherwise."""
        requested: dict[str, Any] = {
            "group_id": group, "member_id": "m1", "member_epoch": 0, "rebalance_timeout_ms": 300_000,
            "subscribed_topic_names": ["orders"], "topic_partitions": [],
        } | fields  # fmt: skip
        self.ask(label, _Beat(**requested), 1, m.ConsumerGroupHeartbeatResponse)

    def short(self, label: str, member: str, epoch: int, *owned: int, group: str = "g") -> None:
        """As a member that says only what it owns."""
        partitions = [_Beat.TopicPartitions(topic_id=self.ids["orders"], partitions=list(owned))] if owned else []
        fields: dict[str, Any] = {"subscribed_topic_names": None, "rebalance_timeout_ms": -1}
        self.beat(label, group, member_id=member, member_epoch=epoch, topic_partitions=partitions, **fields)

    def describe(self, label: str, group: str, version: int = 1) -> None:
        request = m.ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
        answer = ask(self.port, request, version, m.ConsumerGroupDescribeResponse)
        # Members come in any order.
        answer.groups[0].members.sort(key=lambda member: (member.member_id == self.member, member.member_id))
        text = repr(answer).replace(self.member or "no member", "MEMBER")
        for topic_id, name in self.names.items():
            text = text.replace(repr(topic_id), name)
        self.answers.append((label, re.sub(r"client_host='[^']*'", "client_host=''", text)))

    def listed(self, label: str, **filters: list[str]) -> None:
        answer = ask(self.port, m.ListGroupsRequest(**filters), 5, m.ListGroupsResponse)
        answer.groups.sort(key=lambda group: group.group_id)
        self.answers.append((label, repr(answer)))

    def join(self, label: str) -> int:
        """A classic member joins group c; its generation."""
        said = b"\x00\x01" + codec.encode(m.ConsumerProtocolSubscription(topics=["orders"]), 1)
        request = _Join(
            group_id="c", member_id=self.member, session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
            protocol_type="consumer", protocols=[_Join.Protocols(name="range", metadata=said)],
        )  # fmt: skip
        answer = ask(self.port, request, 9, m.JoinGroupResponse)
        self.member = answer.member_id
        self.answers.append((label, repr(answer).replace(self.member, "MEMBER")))
        return answer.generation_id

    def sync(self, label: str, generation: int, assignment: bytes | None = None) -> None:
        member_assignment = m.SyncGroupRequest.Assignments
        request = m.SyncGroupRequest(
            group_id="c", member_id=self.member, generation_id=generation, protocol_type="consumer",
            protocol_name="range",
            assignments=[] if assignment is None else [member_assignment(member_id=self.member, assignment=assignment)],
        )  # fmt: skip
        self.ask(label, request, 5, m.SyncGroupResponse)

    def classic_beat(self, label: str, generation: int, member: str | None = None) -> None:
        member_id = self.member if member is None else member
        request = m.HeartbeatRequest(group_id="c", member_id=member_id, generation_id=generation)
        self.ask(label, request, 4, m.HeartbeatResponse)

    def commit(self, label: str, group: str, member: str, epoch: int, *, version: int = 10, partition: int = 0) -> None:
        partition_entry = _Commit.Topics.Partitions(partition_index=partition, committed_offset=5)
        topic = _Commit.Topics(topic_id=self.ids["orders"], name="orders", partitions=[partition_entry])
        request = _Commit(group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=[topic])
        self.ask(label, request, version, m.OffsetCommitResponse)

    def fetch(self, label: str, group: str, member: str | None, epoch: int) -> None:
        topic = _Fetch.Groups.Topics(name="orders", partition_indexes=[0])
        requested = _Fetch.Groups(group_id=group, member_id=member, member_epoch=epoch, topics=[topic])
        self.ask(label, _Fetch(groups=[requested], require_stable=True), 9, m.OffsetFetchResponse)

    # The conversation

    def run(self) -> list[tuple[str, str]]:
        self.prepare()
        self.members()
        self.refusals()
        self.static_members()
        self.both_protocols()
        self.offsets()
        self.the_end()
        return self.answers

    def members(self) -> None:
        self.beat("the first joins")
        self.short("it goes on", "m1", 2, 0, 1, 2, 3)
        self.beat("another joins", member_id="m2")
        self.short("the first has to give up", "m1", 2, 0, 1, 2, 3)
        self.short("the other waits", "m2", 3)
        self.describe("on the way", "g")
        self.short("a greater epoch", "m1", 9, 0)
        self.short("an epoch of nobody", "m1", -5)
        self.short("a stranger", "stranger", 3)
        self.short("a group that is not there", "m1", 3, group="none")

    def refusals(self) -> None:
        self.beat("leave of a group that is not there", "none", member_epoch=-1)
        self.beat("leave of a stranger", member_id="stranger", member_epoch=-1)
        self.beat("leave for a while of a dynamic member", member_epoch=-2)
        self.beat("leave for a while of a stranger", member_epoch=-2, instance_id="i")
        self.beat("no group", "")
        self.beat("a blank group", " ")
        self.beat("no member", member_id="")
        self.beat("an unknown assignor", server_assignor="x")
        self.beat("an empty expression", member_id="m3", subscribed_topic_names=None, subscribed_topic_regex="")
        self.beat("an open group", member_id="m4", subscribed_topic_names=None, subscribed_topic_regex="(a")
        self.beat("look-ahead", member_id="m4", subscribed_topic_names=None, subscribed_topic_regex="(?=a)")
        self.beat("no subscription", member_id="m4", subscribed_topic_names=None)
        self.beat("an empty subscription", "h", member_id="m4", subscribed_topic_names=[])
        self.beat("a topic that is not there", "h2", member_id="m4", subscribed_topic_names=["nothing"])

    def static_members(self) -> None:
        self.beat("static", "s", member_id="s1", instance_id="i")
        self.beat("a rival", "s", member_id="s2", instance_id="i")
        self.beat("it leaves for a while", "s", member_id="s1", instance_id="i", member_epoch=-2)
        self.describe("while it is away", "s")
        self.beat("it comes back", "s", member_id="s2", instance_id="i")
        self.beat("its old self", "s", member_id="s1", instance_id="i", member_epoch=2)
        self.beat("a wrong epoch", "s", member_id="s2", instance_id="i", member_epoch=7)
        self.beat("it leaves for good", "s", member_id="s2", instance_id="i", member_epoch=-1)
        self.describe("an empty group", "s")
        self.describe("no group", "none")
        self.describe("no group, version 0", "none", 0)

    def both_protocols(self) -> None:
        self.join("a classic member asks for an id")
        self.join("and joins")
        kind = m.ConsumerProtocolAssignment
        assigned = kind(assigned_partitions=[kind.AssignedPartitions(topic="orders", partitions=[0, 1, 2, 3])])
        self.sync("and syncs", 1, b"\x00\x01" + codec.encode(assigned, 1))
        self.describe("a classic group described as the other kind", "c")
        for version in (5, 6):
            request = m.DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=True)
            self.ask(f"and the other way round, version {version}", request, version, m.DescribeGroupsResponse)
        self.listed("all groups")
        self.listed("by type", types_filter=["consumer"])
        self.listed("by type and state", types_filter=["Consumer"], states_filter=["Empty"])
        self.listed("by a type that is none", types_filter=["nothing"])
        self.beat("the upgrade", "c", member_id="n1")
        self.classic_beat("the classic member learns of it", 1)
        self.describe("both in one group", "c")
        generation = self.join("it joins again")
        self.sync("and syncs to give up", generation)
        self.short("the new one waits", "n1", 2, group="c")
        self.classic_beat("it has to join once more", generation)
        generation = self.join("having given up")
        self.sync("it has its share", generation)
        self.classic_beat("and rest", generation)
        self.classic_beat("a generation of nobody", 99)
        self.classic_beat("in the name of the other protocol", 2, "n1")

    def offsets(self) -> None:
        for partition in range(4):
            self.commit(f"an epoch that has passed, {partition}", "g", "m1", 1, partition=partition)
        self.commit("the epoch", "g", "m1", 2)
        self.commit("an old version", "g", "m1", 2, version=8)
        self.commit("an epoch to come", "g", "m1", 9)
        self.commit("of a stranger", "g", "stranger", 1)
        self.commit("from outside", "g", "", -1)
        self.commit("from outside, empty", "s", "", -1)
        self.commit("from outside, new", "fresh", "", -1)
        self.commit("of a member, new", "fresh2", "m", 4)
        self.commit("of a member, new, old version", "fresh2", "m", 4, version=8)
        self.fetch("its own offsets", "g", "m1", 2)
        self.fetch("with an old epoch", "g", "m1", 0)
        self.fetch("as a stranger", "g", "stranger", 1)
        self.fetch("as anybody", "g", None, -1)
        self.fetch("of no group", "none", "m", 1)
        delete = m.OffsetDeleteRequest
        topics = [delete.Topics(name=name, partitions=[delete.Topics.Partitions(partition_index=0)]) for name in TOPICS]
        self.ask("delete offsets", delete(group_id="g", topics=topics), 0, m.OffsetDeleteResponse)

    def the_end(self) -> None:
        for group in ("g", "s", "none"):
            request = m.DeleteGroupsRequest(groups_names=[group])
            self.ask(f"delete {group}", request, 2, m.DeleteGroupsResponse)
        kind = m.LeaveGroupRequest.Members
        leaving = m.LeaveGroupRequest(group_id="c", members=[kind(member_id="n1"), kind(member_id="stranger")])
        self.ask("the new one is removed", leaving, 5, m.LeaveGroupResponse)
        self.short("it is not there any more", "n1", 2, group="c")
        self.listed("the group is classic again")


def main() -> None:
    print(json.dumps(Script(int(sys.argv[1])).run(), indent=1))


if __name__ == "__main__":
    main()
