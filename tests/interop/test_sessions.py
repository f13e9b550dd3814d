"""The whole session of each client sees what it saw with Apache Kafka 4.3.1, but for the differences listed here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.effort import effort
from tests.engine_cluster import EngineCluster
from tests.interop.sessions import aio, confluent, java, java_replicas, python, python_admin

ROOT: Final = Path(__file__).parents[2]
RECORDED: Final = ROOT / "tests" / "fixtures" / "apache-kafka-4.3.1" / "client-sessions.json"
# The responses that differ, and the reason; docs/compatibility.md says the same to users.
DIFFERENCES: Final = {
    r"grow cf-no|describe settings of cf-no|too large": "the error has a text where Apache Kafka sends none",
    r"kafka-features describe": "share groups and streams groups are not supported",
}
# The tools start a JVM each, which takes two minutes in all.
# The last one was recorded by itself and leaves a group, which the tools would list.
SESSIONS: Final = [confluent, python, aio, *effort([], [java, java_replicas]), python_admin]


# Responses to clients must not depend on remote.log.storage.system.enable; the long form shows it with the tier too.
@pytest.fixture(scope="module", params=effort([False], [False, True]), ids=lambda on: "with tier" if on else "no tier")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path_factory.mktemp("sessions"), brokers=3, tiering=request.param) as running:
        for node in running.cluster.brokers:
            assert (running.broker(node).services.remote_log_manager is not None) == request.param
        yield running


@pytest.mark.parametrize("session", SESSIONS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_session_sees_what_it_saw_with_apache_kafka(cluster: EngineCluster, session: ModuleType) -> None:
    result = session.run(cluster.bootstrap)
    expected = [tuple(line) for line in json.loads(RECORDED.read_text())[result.client]]
    assert [label for label, _ in result.lines] == [label for label, _ in expected]
    different = [(label, ours, theirs) for (label, ours), (_, theirs) in zip(result.lines, expected, strict=True)
                 if ours != theirs]  # fmt: skip
    unknown = [row for row in different if not any(re.search(pattern, row[0]) for pattern in DIFFERENCES)]
    assert unknown == []


def test_the_differences_are_those_that_users_are_told_of() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text()
    assert len(DIFFERENCES) <= 15
    for reason in DIFFERENCES.values():
        assert reason in text
