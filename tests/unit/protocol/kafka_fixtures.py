"""Bytes that a real Apache Kafka 4.3.1 wrote or sent (see tests/fixtures/apache-kafka-4.3.1/README.md)."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2] / "fixtures" / "apache-kafka-4.3.1"


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def wire_rows() -> list[dict[str, Any]]:
    """Every recorded request and response."""
    return [row for path in sorted((ROOT / "wire").glob("*.jsonl")) for row in json_lines(path)]


def metadata_rows() -> list[dict[str, Any]]:
    """Every recorded record of `__remote_log_metadata`."""
    return [row for path in sorted(ROOT.glob("metadata-records*.jsonl")) for row in json_lines(path)]


def log_files() -> list[Path]:
    """Segments of local logs and of the remote tier, and snapshots of the metadata log, as producers wrote them.

    Not those of a compacted log: what the cleaner leaves is no batch that anybody sends. It is tested with the cleaner.
    """
    logs = (path for path in ROOT.glob("**/*.log") if "compacted" not in path.parts)
    return sorted([*logs, *ROOT.glob("kraft/*.checkpoint")])
