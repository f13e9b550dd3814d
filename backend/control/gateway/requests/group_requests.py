"""Consumer groups and what they have committed: ListGroups and OffsetFetch.

Consumers that assign partitions and commit, as those of Flink, are no members: their groups are empty for Kafka.

A broker lists the groups it coordinates, so that broker is also the one to ask for their offsets. The broker leaves out
groups that the principal may not describe; it does not refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from backend.control.gateway.kafka_client import Gateway
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, error_for
from backend.tiering.ids import TopicPartition

# The state of a group without members; only its commits tell whether anybody reads.
EMPTY: Final = "Empty"
STATES: Final = ("Stable", "Assigning", "Reconciling", "PreparingRebalance", "CompletingRebalance", EMPTY)
# An OffsetFetch of 100 groups with 1,000 partitions each is answered with about 4 MB.
GROUPS_A_REQUEST: Final = 100
# More groups of one broker than this are not asked, those without members first: 10 requests.
GROUPS_MAX: Final = 1_000
STATES_FILTER_VERSION: Final = 4
SEVERAL_GROUPS_VERSION: Final = 8
# From version 10 on topics have ids instead of names.
NAMES_VERSION_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class Committed:
    """A group and its committed offsets; `members`: whether it has any now."""

    group: str
    offsets: tuple[tuple[TopicPartition, int], ...]
    members: bool = True


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """The groups of all brokers, and the number of those that were not asked because a broker has too many."""

    groups: Sequence[Committed]
    left_out: int = 0


async def committed_offsets(gateway: Gateway, broker_ids: Iterable[int]) -> CommittedOffsets:
    """Of the groups that these brokers coordinate. Raises GatewayError, KafkaError."""
    result: list[Committed] = []
    left_out = 0
    for broker_id in broker_ids:
        states = await _groups(gateway, broker_id)
        groups = listed_groups(states)
        left_out += len(states) - len(groups)
        names = list(groups)
        for at in range(0, len(names), GROUPS_A_REQUEST):
            committed = await _offsets(gateway, broker_id, names[at : at + GROUPS_A_REQUEST])
            result += [replace(offsets, members=groups.get(offsets.group, False)) for offsets in committed]
    return CommittedOffsets(result, left_out)


async def _groups(gateway: Gateway, broker_id: int) -> list[tuple[str, str]]:
    request = m.ListGroupsRequest(states_filter=list(STATES))
    response, _ = await gateway.ask_node(broker_id, request, m.ListGroupsResponse, at_least=STATES_FILTER_VERSION)
    if response.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        return []
    if response.error_code:
        raise error_for(response.error_code, f"broker {broker_id} does not list its groups")
    return [(group.group_id, group.group_state) for group in response.groups]


def listed_groups(states: Iterable[tuple[str, str]]) -> dict[str, bool]:
    """Whether each group has members, by name; those that have come first, and of too many the others are left out."""
    ordered = sorted((state == EMPTY, group) for group, state in states)
    return {group: not is_empty for is_empty, group in ordered[:GROUPS_MAX]}


async def _offsets(gateway: Gateway, broker_id: int, groups: Sequence[str]) -> list[Committed]:
    group_type = m.OffsetFetchRequest.Groups
    request = m.OffsetFetchRequest(groups=[group_type(group_id=group, topics=None) for group in groups])
    response, _ = await gateway.ask_node(
        broker_id, request, m.OffsetFetchResponse, at_least=SEVERAL_GROUPS_VERSION, at_most=NAMES_VERSION_MAX
    )
    return [
        Committed(
            group.group_id,
            tuple(
                (TopicPartition(topic.name, partition.partition_index), partition.committed_offset)
                for topic in group.topics
                for partition in topic.partitions
                if not partition.error_code and partition.committed_offset >= 0
            ),
        )
        for group in response.groups
        if not group.error_code
    ]
