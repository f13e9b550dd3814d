"""A plan's text on leaders that an election did not move."""

from __future__ import annotations

from dataclasses import replace

from backend.control.gateway.requests.metadata_requests import PartitionMetadata
from backend.control.operations.reassign.preferred_election import not_moved
from backend.protocol.errors import ErrorCode

STAYED = PartitionMetadata("orders", bytes(16), 3, 2, 7, (1, 2), (2,), (), ErrorCode.NONE)


def test_why_a_leader_stayed_and_what_to_do_is_told() -> None:
    assert not_moved([STAYED, replace(STAYED, partition=4)], 9) == (
        "2 of 9 leaders were not moved, first orders-3: broker 1 is not in sync. Wait for it, then elect again."
    )
    assert "Kafka left it" in not_moved([replace(STAYED, isr=(2, 1))], 1)
