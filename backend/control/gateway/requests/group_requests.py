"""Consumer groups that are at work, and what they have committed: ListGroups and OffsetFetch.

A broker lists the groups it coordinates, so that broker is also the one to ask for their offsets. The broker leaves out
groups that the principal may not describe; it does not refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from backend.control.gateway.kafka_client import Gateway
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, error_for
from backend.tiering.ids import TopicPartition

# Groups with members; what an empty group has committed reads nothing.
STATES: Final = ("Stable", "Assigning", "Reconciling", "PreparingRebalance", "CompletingRebalance")
# An OffsetFetch of 100 groups with 1,000 partitions each is answered with about 4 MB.
GROUPS_A_REQUEST: Final = 100
# More groups of one broker than this are not asked: 10 requests.
GROUPS_MAX: Final = 1_000
STATES_FILTER_VERSION: Final = 4
SEVERAL_GROUPS_VERSION: Final = 8
# From version 10 on topics have ids instead of names.
NAMES_VERSION_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class Committed:
    """A group with members and its committed offsets."""

    group: str
    offsets: tuple[tuple[TopicPartition, int], ...]


async def committed_offsets(gateway: Gateway, broker_ids: Iterable[int]) -> list[Committed]:
    """Of the groups that these brokers coordinate. Raises GatewayError, KafkaError."""
    result: list[Committed] = []
    for broker_id in broker_ids:
        groups = await _groups(gateway, broker_id)
        for at in range(0, len(groups), GROUPS_A_REQUEST):
            result += await _offsets(gateway, broker_id, groups[at : at + GROUPS_A_REQUEST])
    return result


async def _groups(gateway: Gateway, broker_id: int) -> list[str]:
    request = m.ListGroupsRequest(states_filter=list(STATES))
    response, _ = await gateway.ask_node(broker_id, request, m.ListGroupsResponse, at_least=STATES_FILTER_VERSION)
    if response.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        return []
    if response.error_code:
        raise error_for(response.error_code, f"broker {broker_id} does not list its groups")
    return sorted(group.group_id for group in response.groups)[:GROUPS_MAX]


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
