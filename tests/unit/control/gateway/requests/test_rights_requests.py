"""Rights that are missing, by what Apache Kafka answers: operations as bits, and refusals of names that nobody has."""

from __future__ import annotations

from typing import Any

import pytest

from backend.control.gateway.requests.rights_requests import METADATA_TOPIC, NOBODYS_NAME, missing_rights
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

READ, DESCRIBE, DESCRIBE_CONFIGS = 1 << 3, 1 << 8, 1 << 10
ALL = READ | DESCRIBE | DESCRIBE_CONFIGS
UNSAID = -(2**31)
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def topic(name: str, operations: int = ALL, error: int = 0) -> m.MetadataResponse.Topics:
    return m.MetadataResponse.Topics(name=name, topic_authorized_operations=operations, error_code=error)


def missing(
    *, cluster: int = ALL, topics: dict[str, tuple[int, int]] | None = None, group: int = ErrorCode.GROUP_ID_NOT_FOUND
) -> list[str]:
    said = {METADATA_TOPIC: (ALL, 0), NOBODYS_NAME: (UNSAID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "orders": (ALL, 0)}
    described = [topic(name, *answer) for name, answer in (said | (topics or {})).items()]
    groups = [m.DescribeGroupsResponse.Groups(group_id=NOBODYS_NAME, error_code=group)]
    rights = missing_rights(
        m.DescribeClusterResponse(cluster_authorized_operations=cluster),
        m.MetadataResponse(topics=described),
        m.DescribeGroupsResponse(groups=groups),
    )
    return [str(right) for right in rights]


CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"cluster": UNSAID}, []),
    ({"cluster": 0}, ["Describe on Cluster", "DescribeConfigs on Cluster"]),
    ({"cluster": DESCRIBE}, ["DescribeConfigs on Cluster"]),
    ({"topics": {NOBODYS_NAME: (UNSAID, REFUSED)}}, ["Describe on Topic `*`"]),
    ({"topics": {"orders": (DESCRIBE, 0)}}, ["DescribeConfigs on Topic `*`"]),
    ({"topics": {METADATA_TOPIC: (ALL & ~READ, 0)}}, [f"Read on Topic {METADATA_TOPIC}"]),
    ({"topics": {METADATA_TOPIC: (UNSAID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}}, []),
    ({"group": ErrorCode.GROUP_AUTHORIZATION_FAILED}, ["Describe on Group `*`"]),
    ({"group": ErrorCode.NOT_COORDINATOR}, []),
    (
        {
            "cluster": 0,
            "topics": {METADATA_TOPIC: (UNSAID, REFUSED), NOBODYS_NAME: (UNSAID, REFUSED), "orders": (UNSAID, REFUSED)},
            "group": ErrorCode.GROUP_AUTHORIZATION_FAILED,
        },
        [
            "Describe on Cluster",
            "DescribeConfigs on Cluster",
            "Describe on Topic `*`",
            f"Read on Topic {METADATA_TOPIC}",
            "Describe on Group `*`",
        ],
    ),
]


@pytest.mark.parametrize(("answers", "expected"), CASES)
def test_what_brokers_answer_says_which_rights_are_missing(answers: dict[str, Any], expected: list[str]) -> None:
    assert missing(**answers) == expected
