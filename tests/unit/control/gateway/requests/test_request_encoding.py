"""Requests to a cluster: two FetchSnapshot requests end the controller of Apache Kafka 4.3.1, so none is sent."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.source_trees import source_nodes

ROOT = Path(__file__).parents[5]
# Everything but the engine, whose own brokers fetch snapshots, and the protocol, which knows every message.
ASKING = ("backend/control", "backend/cli", "backend/supervisor", "spark", "app")


def test_no_request_is_made_that_ends_a_controller_of_kafka() -> None:
    made = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for folder in ASKING
        for path in (ROOT / folder).rglob("*.py")
        for node in source_nodes(path)
        if isinstance(node, ast.Attribute | ast.Name)
    }
    assert {"MetadataRequest", "DescribeQuorumRequest"} <= made
    assert "FetchSnapshotRequest" not in made
