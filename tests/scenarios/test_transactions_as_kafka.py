"""Every answer of a long session of transaction requests is the one that Apache Kafka gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.engine_cluster import EngineCluster
from tests.scenarios.transaction_script import play

FIXTURE: Final = Path(__file__).parents[1] / "fixtures" / "apache-kafka-4.3.1" / "transactions.json"
# A commit that meets the coordinator's abort: what later versions of Kafka answer (KAFKA-20785), so that its producer
# begins again instead of giving up.
MEANT: Final = {"z commit by the fenced one": ["PRODUCER_FENCED", "none", -1]}


def test_transaction_requests_are_answered_as_kafka_answers_them(tmp_path: Path) -> None:
    with EngineCluster(tmp_path, brokers=1) as cluster:
        ours = json.loads(json.dumps(play(cluster.layout.ports[1])))
    theirs = json.loads(FIXTURE.read_text())
    assert [row[0] for row in ours] == [row[0] for row in theirs]
    different = [
        (mine, kafkas)
        for mine, kafkas in zip(ours, theirs, strict=True)
        if mine[1:] != MEANT.get(kafkas[0], kafkas[1:])
    ]
    assert not different
