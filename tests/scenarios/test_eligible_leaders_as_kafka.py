"""ISR, ELR and last known ELR through stops, kills and returns are those of Apache Kafka, step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.effort import effort
from tests.engine_cluster import EngineCluster
from tests.oracle.apache_kafka import DEFAULT_VERSION, Unavailable, resolve_jars
from tests.ports import free_ports
from tests.scenarios.elr_script import SETTINGS, Row, play, play_on_kafka

FIXTURE: Final = Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "eligible-leaders.json"


def recorded() -> list[Row]:
    rows: list[Row] = json.loads(FIXTURE.read_text())
    return rows


# A real one, four JVMs for two minutes, says it again in the long form alone.
@pytest.mark.parametrize("who", effort(["ebbline"], ["ebbline", "Apache Kafka"]))
def test_who_may_lead_is_what_kafka_says(tmp_path: Path, who: str) -> None:
    if who == "ebbline":
        with EngineCluster(tmp_path, brokers=4, settings=SETTINGS, voters=1) as cluster:
            result = play(cluster.layout.ports[1], cluster)
    else:
        try:
            resolve_jars(DEFAULT_VERSION, None)
        except Unavailable as reason:
            pytest.skip(str(reason))
        result = play_on_kafka(tmp_path / "kafka", free_ports(60)[0])
    assert result == recorded()
