"""The rights of our principal, as brokers report them: authorized operations (KIP-430), and two names that nobody has.

A broker refuses a topic or a group that our principal may not describe also where there is none of that name, so that
nobody learns the names of others: a right on `*` shows in the response about a name that nobody has.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from backend.control.gateway.connection_pool import Lane
from backend.control.gateway.kafka_client import Gateway
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

METADATA_TOPIC: Final = "__remote_log_metadata"
# Resources as docs/attach.md names them.
CLUSTER, TOPICS, GROUPS = "Cluster", "Topic `*`", "Group `*`"
NOBODYS_NAME: Final = "ebbline-rights-probe"
# Kafka's value for operations that were not asked for.
_OMITTED: Final = -(2**31)


class AclOperation(IntEnum):
    """Operations of Kafka's class of this name that the product needs."""

    READ = 3
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A line of docs/attach.md that our principal lacks, in its words."""

    operation: str
    resource: str

    @property
    def hides_tiers(self) -> bool:
        """Without those on groups the product sees less of readers, and all of the tiers."""
        return self.resource != GROUPS

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource}"


async def fetch_missing_rights(gateway: Gateway, a_topic: str | None) -> tuple[MissingRight, ...]:
    """The rights of docs/attach.md that are missing, in its order; `a_topic`: any that exists. Raises GatewayError."""
    cluster, topics, groups = await asyncio.gather(
        gateway.ask_any(
            m.DescribeClusterRequest(include_cluster_authorized_operations=True),
            m.DescribeClusterResponse,
            lane=Lane.LIVENESS,
        ),
        gateway.ask_any(_topics_request(a_topic), m.MetadataResponse, at_least=10, lane=Lane.LIVENESS),
        gateway.ask_any(m.DescribeGroupsRequest(groups=[NOBODYS_NAME]), m.DescribeGroupsResponse, lane=Lane.LIVENESS),
    )
    return missing_rights(cluster, topics, groups)


def _topics_request(a_topic: str | None) -> m.MetadataRequest:
    names = dict.fromkeys([METADATA_TOPIC, NOBODYS_NAME, *([] if a_topic is None else [a_topic])])
    return m.MetadataRequest(
        topics=[m.MetadataRequest.Topics(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


def missing_rights(
    cluster: m.DescribeClusterResponse, topics: m.MetadataResponse, groups: m.DescribeGroupsResponse
) -> tuple[MissingRight, ...]:
    """Reads the responses; a broker that does not tell what it allows is taken to allow it."""
    missing = [
        MissingRight(name, CLUSTER)
        for operation, name in ((AclOperation.DESCRIBE, "Describe"), (AclOperation.DESCRIBE_CONFIGS, "DescribeConfigs"))
        if _lacks(cluster.cluster_authorized_operations, operation)
    ]
    by_name = {topic.name: topic for topic in topics.topics}
    refused = {name for name, t in by_name.items() if t.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    if NOBODYS_NAME in refused:
        missing.append(MissingRight("Describe", TOPICS))
    described = [t for name, t in by_name.items() if name not in refused and not t.error_code]
    if any(_lacks(t.topic_authorized_operations, AclOperation.DESCRIBE_CONFIGS) for t in described):
        missing.append(MissingRight("DescribeConfigs", TOPICS))
    metadata = by_name.get(METADATA_TOPIC)
    if METADATA_TOPIC in refused or (
        metadata is not None
        and not metadata.error_code
        and _lacks(metadata.topic_authorized_operations, AclOperation.READ)
    ):
        missing.append(MissingRight("Read", f"Topic {METADATA_TOPIC}"))
    if any(group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED for group in groups.groups):
        missing.append(MissingRight("Describe", GROUPS))
    return tuple(missing)


def _lacks(operations: int, operation: AclOperation) -> bool:
    return operations != _OMITTED and not operations >> operation & 1
