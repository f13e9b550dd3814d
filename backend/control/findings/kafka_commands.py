"""Commands of Kafka's own tools as the actions of findings print them, with an address that answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from backend.control.findings.finding_context import FindingContext
from backend.store.writes.samples import PartitionSample

NO_ADDRESS: Final = "HOST:PORT"
MOVE_FILE: Final = "move.json"


def bootstrap_server(context: FindingContext, broker_id: int | None = None) -> str:
    """The address of that broker, else of one that answers, else of one that did."""
    brokers = sorted(context.brokers, key=lambda b: (b.broker_id != broker_id, not b.reachable, b.fenced, b.broker_id))
    return f"{brokers[0].host}:{brokers[0].port}" if brokers else NO_ADDRESS


def command(context: FindingContext, tool: str, arguments: str, broker_id: int | None = None) -> str:
    """`kafka-topics.sh --bootstrap-server 10.0.0.1:9092 --list`."""
    return f"{tool} --bootstrap-server {bootstrap_server(context, broker_id)} {arguments}"


def cancel_moves(context: FindingContext, rows: Iterable[PartitionSample]) -> str:
    """The command that ends the moves of these partitions, and the file that it reads: the replicas of now, as the tool
    removes the throttles of those that it names.
    """
    moves = [{"topic": row.topic, "partition": row.partition, "replicas": list(row.replicas)} for row in rows]
    content = json.dumps({"version": 1, "partitions": moves}, separators=(",", ":"))
    cancel = command(context, "kafka-reassign-partitions.sh", f"--reassignment-json-file {MOVE_FILE} --cancel")
    return f"{cancel}, where {MOVE_FILE} is {content}"
