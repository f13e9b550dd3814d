"""Requests that no session of a client makes are answered as Apache Kafka 4.3.1 answered them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.engine_cluster import EngineCluster, layout
from tests.interop.unusual_requests import Script

RECORDED: Final = Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "unusual-requests.json"


def test_answers_are_those_of_kafka(tmp_path: Path) -> None:
    made = replace(layout(tmp_path, brokers=1), log_dirs={1: f"{tmp_path / 'first'},{tmp_path / 'second'}"})
    with EngineCluster(tmp_path, made=made) as cluster:
        result = Script(cluster.layout.ports[1]).run()
    expected = json.loads(RECORDED.read_text())
    assert len(expected) == 150
    assert [[label, answer] for label, answer in result] == expected
