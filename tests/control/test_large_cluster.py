"""The cost of watching a large cluster: a process per broker, in `make soak` 10,000 partitions with 3 replicas.

A full sample takes at most 5 s, the observer at most a quarter of a core; what the brokers spend on it is measured, as
the difference of their processor time with and without the control plane.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.up_process import UpProcess
from tests.effort import effort
from tests.waiting import wait_until

TOPICS: Final = effort(20, 500)
PARTITIONS: Final = 20
# Of 10,000 partitions a round begins every 20 s, and every 150 s one that lists all offsets.
WATCH_ROUNDS: Final = effort(6, 8)
WATCH_S_MAX: Final = 600.0
# `ebbline up` starts a backend again that does not answer for a minute.
ALONE_S: Final = effort(10.0, 40.0)
SAMPLE_S_MAX: Final = 5.0
OBSERVER_CORES_MAX: Final = 0.25
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
OPTIONS: Final = ("--no-ui", "--no-pipeline", "--no-demo", "--process-per-broker")


def cpu_s(*pids: int) -> float:
    """Processor time that these processes have used."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_S


def make_topics(up: UpProcess) -> None:
    admin = AdminClient({"bootstrap.servers": up.bootstrap, "log_level": 0})
    for first in range(0, TOPICS, 10):
        config = {"remote.storage.enable": "true"}
        requested = [NewTopic(f"t-{n}", PARTITIONS, 3, config=config) for n in range(first, min(first + 10, TOPICS))]
        for future in admin.create_topics(requested, request_timeout=300).values():
            try:
                future.result(300)
            except KafkaException as error:
                # The client asks again when the answer was lost, as it is with the controller's leader.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def led() -> bool:
        try:
            topics = admin.list_topics(timeout=60).topics
        except KafkaException:
            return False
        own = [part for name, topic in topics.items() if name.startswith("t-") for part in topic.partitions.values()]
        return len(own) == TOPICS * PARTITIONS and all(len(part.isrs) == 3 for part in own)

    wait_until("every partition has its replicas in sync", led, timeout_s=900)


def rounds(up: UpProcess) -> dict[str, Any]:
    """The observer's own account of its rounds."""
    headers = {"Authorization": f"Bearer {up.operator_token}"}
    processes = httpx.get(f"{up.api_url}/v1/cluster", headers=headers, timeout=60).json()["processes"]
    detail: dict[str, Any] = next(p["detail"] for p in processes if p["process"] == "observer")
    return detail


def wait_for_rounds(up: UpProcess, count: int) -> None:
    """Until that many rounds have ended from now on."""
    before = rounds(up)["rounds"]
    wait_until("they are sampled", lambda: rounds(up)["rounds"] >= before + count, timeout_s=WATCH_S_MAX)


@pytest.mark.timeout(effort(300, 1_800))
def test_watching_a_large_cluster_costs_a_quarter_of_a_core_and_a_sample_takes_five_seconds(
    tmp_path: Path, record_property: Any
) -> None:
    with UpProcess(tmp_path / "data", options=OPTIONS) as up:
        make_topics(up)
        brokers = [up.pid(f"broker-{n}") for n in (1, 2, 3)]
        backend = up.pid("backend")
        wait_for_rounds(up, 2)
        began = time.monotonic(), cpu_s(backend), cpu_s(*brokers), rounds(up)["rounds"]
        wait_for_rounds(up, WATCH_ROUNDS)
        wall_s = time.monotonic() - began[0]
        observer, watched = (cpu_s(backend) - began[1]) / wall_s, (cpu_s(*brokers) - began[2]) / wall_s
        seen = rounds(up)
        # Stopped, not ended: `ebbline up` would start it again.
        os.kill(backend, signal.SIGSTOP)
        try:
            time.sleep(2)
            began_s, alone_s = time.monotonic(), cpu_s(*brokers)
            time.sleep(ALONE_S)
            alone = (cpu_s(*brokers) - alone_s) / (time.monotonic() - began_s)
        finally:
            os.kill(backend, signal.SIGCONT)
    figures = {
        "partitions": TOPICS * PARTITIONS,
        "rounds": seen["rounds"] - began[3],
        "sample_ms": seen["round_duration_ms"],
        "observer_cores": round(observer, 3),
        "brokers_cores_watched": round(watched, 3),
        "brokers_cores_alone": round(alone, 3),
    }
    print(figures)
    record_property("efforts", str(figures))
    assert seen["round_duration_ms"] <= SAMPLE_S_MAX * 1000, figures
    assert observer <= OBSERVER_CORES_MAX, figures
