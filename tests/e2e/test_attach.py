"""`ebbline up --attach` on a real Apache Kafka 4.3.1 with tiered storage: Kafka's own tools say the same."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from confluent_kafka import Producer, TopicPartition

from backend.store import migrate
from backend.store.engine import create_engine
from spark.decode import RawRecord
from spark.direct import DirectReader
from spark.kafka import OffsetsHeld
from spark.reading import open_consumer
from spark.settings import JOB, PipelineSettings
from spark.sinks.ledger_sink import LedgerSink
from tests.e2e.up_process import UpProcess
from tests.effort import effort
from tests.interop.java_tools import JavaTools, libraries
from tests.oracle.apache_kafka import Unavailable, resolve_spark_jars
from tests.ports import free_ports
from tests.spark import running
from tests.spark.replay import expected
from tests.spark.test_rlmm_cache_agrees import by_cache, segments_of
from tests.waiting import wait_until

ORACLE: Final = Path(__file__).parents[1] / "oracle" / "apache_kafka.py"
FLAG: Final = "follower.fetch.last.tiered.offset.enable"
OFFSETS: Final = {
    "log_start_offset": "earliest",
    "local_log_start_offset": "earliest-local",
    "latest_tiered_offset": "latest-tiered",
    "earliest_pending_upload_offset": "earliest-pending-upload",
    "high_watermark": "latest",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaTools]:
    """Three brokers; `plain` and `tiered` on 1 and 2, some of `tiered` copied."""
    libs = libraries()
    folder = tmp_path_factory.mktemp("kafka") / "cluster"
    base = free_ports(60)[0]
    started = _oracle("up", "--dir", str(folder), "--brokers", "3", "--port-base", str(base), "--tiered")
    if started.returncode == 3:
        pytest.skip(f"Apache Kafka is unavailable: {started.stderr.strip()}")
    assert started.returncode == 0, started.stderr
    try:
        tools = JavaTools(libs, started.stdout.strip().splitlines()[-1])
        tools.run("kafka-topics", "--create", "--topic", "plain", "--replica-assignment", "1:2,2:1")
        tiered = ["remote.storage.enable=true", "segment.bytes=1048576", "local.retention.bytes=1048576"]
        made = ["kafka-topics", "--create", "--topic", "tiered", "--replica-assignment", "1:2,2:1"]
        tools.run(*made, *(word for setting in tiered for word in ("--config", setting)))
        _produce(tools.bootstrap)
        yield tools
    finally:
        _oracle("down", "--dir", str(folder))


def _oracle(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ORACLE), *words], capture_output=True, text=True, check=False)


def _produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(8000):
        for topic in ("plain", "tiered"):
            producer.produce(topic, b"v" * 1000, partition=number % 2)
        if number % 100 == 99:
            producer.flush(30)  # small batches: more than one fits in no segment twice
    assert producer.flush(60) == 0


class Site:
    """The API of an attached ebbline."""

    def __init__(self, up: UpProcess) -> None:
        headers = {"Authorization": f"Bearer {up.operator_token}"}
        self.api = httpx.Client(base_url=up.api_url, headers=headers, timeout=60)
        self._keys = iter(range(1000))

    def get(self, path: str) -> Any:
        answer = self.api.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def plan(self, kind: str, inputs: dict[str, Any]) -> dict[str, Any]:
        answer = self.api.post("/v1/plans", json={"kind": kind, "inputs": inputs})
        assert answer.status_code == 201, answer.text
        plan: dict[str, Any] = answer.json()["plan"]
        assert plan["state"] == "checked", plan["checks"]
        return plan

    def execute(self, plan: dict[str, Any]) -> httpx.Response:
        body = {"confirm": "apache", "reason": "a test", "wait_ms": 0}
        key = {"Idempotency-Key": f"attach-{plan['id']}-{next(self._keys)}"}
        return self.api.post(f"/v1/plans/{plan['id']}/execute", json=body, headers=key)

    def done(self, plan: dict[str, Any]) -> dict[str, Any]:
        assert self.execute(plan).status_code in (200, 202)
        ended: dict[str, Any] = wait_until(
            f"plan {plan['id']} has ended",
            lambda: (now := self.get(f"/v1/plans/{plan['id']}")["plan"])["finished_ms"] and now,
            timeout_s=180,
        )
        assert ended["state"] == "verified", ended["result"]
        return ended

    def revert(self, plan: dict[str, Any]) -> None:
        answer = self.api.post(f"/v1/plans/{plan['id']}/revert", json={})
        assert answer.status_code == 201, answer.text
        self.done(answer.json()["plan"])


def offsets(tools: JavaTools, topic: str, when: str) -> dict[int, int]:
    """As kafka-get-offsets prints them; a partition without an answer is left out."""
    said = tools.run("kafka-get-offsets", "--topic", topic, "--time", when)
    found = (re.match(rf"{topic}:(\d+):(-?\d*)$", line) for line in said.splitlines())
    return {int(line[1]): int(line[2]) for line in found if line and line[2]}


def replicas(tools: JavaTools, topic: str) -> dict[int, list[int]]:
    said = tools.run("kafka-topics", "--describe", "--topic", topic)
    found = re.findall(r"Partition: (\d+).*?Replicas: ([\d,]+)", said)
    return {int(partition): [int(b) for b in listed.split(",")] for partition, listed in found}


@pytest.fixture
def up(kafka: JavaTools, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    options = ("--attach", kafka.bootstrap, "--cluster-name", "apache", "--no-ui", "--no-pipeline", *request.param)
    with UpProcess(tmp_path / "data", options=options) as process:
        yield Site(process)


@pytest.mark.parametrize("up", [()], indirect=True)
def test_an_attached_kafka_is_shown_as_its_own_tools_show_it_and_not_changed(kafka: JavaTools, up: Site) -> None:
    def shown() -> dict[tuple[str, int], dict[str, Any]]:
        return {(r["topic"], r["partition"]): r for r in up.get("/v1/partitions?tiered=false")["items"]}

    def settled() -> bool:
        """Everything that can be copied is, and nothing is to be deleted any more."""
        first = {when: offsets(kafka, "tiered", when) for when in OFFSETS.values()}
        time.sleep(3)
        return first == {when: offsets(kafka, "tiered", when) for when in OFFSETS.values()}

    wait_until("the topic is quiet", lambda: settled() and ("tiered", 1) in shown(), timeout_s=120)
    rows = shown()
    for topic in ("plain", "tiered"):
        for name, when in OFFSETS.items():
            for partition, offset in offsets(kafka, topic, when).items():
                assert rows[topic, partition][name] == offset, f"{topic}-{partition} {when}"
        assert {p: rows[topic, p]["replicas"] for p in (0, 1)} == replicas(kafka, topic)
    assert up.get("/v1/cluster")["kind"] == "attached"
    assert up.get("/v1/cluster")["changes_allowed"] is False

    refused = up.execute(up.plan("toggle_bootstrap", {"enable": True}))
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:ebbline:problem:read-only")
    assert "--allow-changes" in refused.json()["detail"]
    assert FLAG not in kafka.run("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-default")
    assert ("refused", "execute toggle_bootstrap") in {
        (row["result"], row["action"]) for row in up.get("/v1/audit")["items"]
    }


@pytest.mark.parametrize("up", [("--allow-changes",)], indirect=True)
@pytest.mark.parametrize("connector", effort(["none"], ["none", "rlmm", "kafka"]))
def test_its_metadata_topic_gives_the_ledger_that_our_rlmm_cache_gives(
    kafka: JavaTools, tmp_path: Path, connector: str
) -> None:
    """By a plain consumer; in `make soak` also by Spark, with our source and with Spark's own connector."""
    url = f"sqlite:///{tmp_path / 'ebbline.db'}"
    migrate.upgrade(url)
    engine = create_engine(url)
    settings = PipelineSettings(tmp_path, running.CLUSTER, kafka.bootstrap, url)
    reader = DirectReader(settings, "test", threading.Event())
    low, high = reader.low(), reader.high()
    held = {partition: OffsetsHeld(low[partition], end) for partition, end in high.items()}
    records = [record for number, one in held.items() for record in _records(settings, number, one)]
    if connector == "none":
        sink = LedgerSink(engine, cluster_id=running.CLUSTER, job=JOB, source_topic=settings.source_topic)
        sink.claim_topic(reader.topic_id())
        reader.copy(sink, high)
    else:
        _by_spark(settings, connector, running.read_to(engine, records))
    reader.close()
    cached, refused = by_cache(records)
    ledger, _, illegal = segments_of(engine)
    assert ledger == cached
    assert (refused, illegal) == (0, 0)
    assert len(ledger) > 4
    assert running.content(engine) == expected(records)
    engine.dispose()


def _records(settings: PipelineSettings, partition: int, held: OffsetsHeld) -> list[RawRecord]:
    """All records of a topic partition, by a consumer of its own."""
    consumer = open_consumer(settings.bootstrap_servers, {})
    consumer.assign([TopicPartition(settings.source_topic, partition, held.low)])
    found: list[RawRecord] = []

    def all_there() -> bool:
        for one in consumer.consume(500, 0.2):
            if one.error() is None:  # else the end of the partition
                found.append((partition, one.offset() or 0, one.timestamp()[1], one.key(), one.value()))
        return bool(found) and found[-1][1] == held.high - 1

    if held.high > held.low:
        wait_until(f"partition {partition} is read", all_there)
    consumer.close()
    return found


def _by_spark(settings: PipelineSettings, connector: str, done: Callable[[], bool]) -> None:
    """Runs the pipeline as a process until everything is stored."""
    more = {"EBBLINE_PIPELINE_CONNECTOR": connector}
    if connector == "kafka":
        try:
            more["EBBLINE_PIPELINE_CONNECTOR_JARS"] = str(resolve_spark_jars())
        except Unavailable as reason:
            pytest.skip(f"Spark's Kafka connector is unavailable: {reason}")
    process = subprocess.Popen([sys.executable, "-m", "spark.job"], env=running.environment(settings, **more))
    try:
        wait_until("everything is stored", done, running.WAIT_S)
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_an_attached_kafka_is_changed_and_put_back(kafka: JavaTools, up: Site) -> None:
    wait_until("it is sampled", lambda: len(up.get("/v1/partitions?topic=tiered")["items"]) == 2)
    toggled = up.done(up.plan("toggle_bootstrap", {"enable": True}))
    default = ("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-default")
    assert f"{FLAG}=true" in kafka.run(*default)
    up.revert(toggled)
    assert FLAG not in kafka.run(*default)

    inputs = {"action": "add", "topics": ["plain", "tiered"], "brokers": [3], "throttle_bytes_per_s": 500_000}
    plan = up.plan("reassign", inputs)
    assert up.execute(plan).status_code == 202
    wait_until(
        "bytes are seen to come",
        lambda: ((up.get(f"/v1/plans/{plan['id']}")["plan"]["progress"] or {}).get("copied_bytes") or 0) > 0,
    )
    assert "throttled.replicas" in kafka.run("kafka-configs", "--describe", "--entity-type", "topics")
    fast = up.api.post(f"/v1/plans/{plan['id']}/limit", json={"throttle_bytes_per_s": 50_000_000})
    assert fast.status_code in (200, 409), fast.text  # 409: it has just come to its end
    wait_until(
        "it has ended", lambda: up.get(f"/v1/plans/{plan['id']}")["plan"]["finished_ms"] is not None, timeout_s=180
    )
    moved = up.get(f"/v1/plans/{plan['id']}")["plan"]
    assert moved["state"] == "verified", moved["result"]
    assert replicas(kafka, "tiered") == {0: [1, 2, 3], 1: [2, 1, 3]}
    measured, foreseen = moved["progress"]["copied_bytes"], plan["estimate"]["in_effect_bytes"]
    assert abs(measured - foreseen) <= 0.15 * foreseen
    up.revert(moved)
    assert replicas(kafka, "tiered") == {0: [1, 2], 1: [2, 1]}
    for entity in ("brokers", "topics"):
        assert "throttled" not in kafka.run("kafka-configs", "--describe", "--entity-type", entity)

    up.done(up.plan("reassign", {"assignments": [{"topic": "plain", "partition": 0, "replicas": [2, 1]}]}))
    up.done(up.plan("elect", {"topics": ["plain"]}))
    assert "Leader: 2" in kafka.run("kafka-topics", "--describe", "--topic", "plain").splitlines()[1]
    up.done(up.plan("delete_records", {"partitions": [{"topic": "plain", "partition": 1, "offset": 1000}]}))
    assert offsets(kafka, "plain", "earliest")[1] == 1000
    changed = up.done(up.plan("topic_config", {"topic": "plain", "settings": {"retention.ms": "86400000"}}))
    described = ("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "plain")
    assert "retention.ms=86400000" in kafka.run(*described)
    up.revert(changed)
    assert "retention.ms" not in kafka.run(*described)
