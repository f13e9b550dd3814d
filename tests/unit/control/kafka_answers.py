"""Answers of a real Kafka 4.3.1 to ListOffsets, as the observer reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).parents[2] / "fixtures" / "apache-kafka-4.3.1" / "list-offsets.json"


def fixture() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FIXTURE.read_text())
    return content


def leader_offsets() -> Iterator[tuple[str, str, dict[int, int]]]:
    """(state, topic, offset by sentinel) as the leader answers replica id -2."""
    for state in fixture()["states"]:
        for row in state["rows"]:
            if (row["to"], row["replica_id"], row["isolation"]) == ("leader", -2, 0):
                yield state["state"], state["topic"], {int(k): a["offset"] for k, a in row["answers"].items()}
