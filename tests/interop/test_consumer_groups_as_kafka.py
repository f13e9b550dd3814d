"""Every answer about groups of both protocols is the one that Apache Kafka 4.3.1 gave, error texts included."""

from __future__ import annotations

import json
from pathlib import Path

from tests.engine_cluster import EngineCluster
from tests.interop.consumer_group_script import Script

RECORDED = Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "consumer-groups.json"


def test_answers_are_those_of_kafka(tmp_path: Path) -> None:
    with EngineCluster(tmp_path, brokers=1, settings={"group.consumer.assignment.interval.ms": "0"}) as cluster:
        result = Script(cluster.layout.ports[1]).run()
    expected = [(label, answer) for label, answer in json.loads(RECORDED.read_text())]
    assert len(expected) > 80
    assert result == expected
