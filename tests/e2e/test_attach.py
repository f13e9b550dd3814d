"""`ebbline up --attach` on a real Apache Kafka 4.3.1 with tiered storage: Kafka's own tools say the same."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from confluent_kafka import Producer

from backend.control.gateway.client import Gateway, parse_bootstrap
from backend.control.gateway.configs import BROKER, AlterOp, ConfigChange, Resource, alter_configs
from backend.control.gateway.metadata import fetch_cluster
from backend.control.gateway.offsets import Sentinel
from backend.control.lab.bootstrap_plan import SIZE_BYTES_MIN, BootstrapPlan
from backend.control.lab.bootstrap_race import build, remove_replica, set_flag
from backend.control.lab.lab_topic import LabFailed, LabTopic, until
from tests.e2e.up_process import UpProcess
from tests.interop.java_tools import JavaTools, libraries
from tests.ports import free_ports
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


@pytest.fixture(scope="module")
def up(kafka: JavaTools, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Site]:
    """One for the tests that watch, one for those that change something."""
    options = ("--attach", kafka.bootstrap, "--cluster-name", "apache", "--no-ui", "--no-pipeline", *request.param)
    with UpProcess(tmp_path_factory.mktemp("up") / "data", options=options) as process:
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


NEW: Final = 3
RATE: Final = "follower.replication.throttled.rate"
TRICKLE: Final = "50000"


class Bootstraps:
    """New replicas on broker 3 of a real Kafka, and what the API shows of them. Kafka tells no phases itself."""

    def __init__(self, site: Site, gateway: Gateway) -> None:
        self._site = site
        self._gateway = gateway
        self.topic = LabTopic(gateway, "phases")

    async def shown(self, what: str, **expected: Any) -> dict[str, Any]:
        """The row of the new replica once it is so."""
        row: dict[str, Any] = {}

        async def look() -> bool | None:
            answer = await asyncio.to_thread(self._site.api.get, "/v1/partitions/phases/0")
            found = answer.json()["replicas"] if answer.status_code == 200 else []
            row.clear()
            row.update(next((one for one in found if one["broker_id"] == NEW), {}))
            return (bool(row) and all(row[name] == value for name, value in expected.items())) or None

        try:
            await until(what, look, 120)
        except LabFailed as error:
            raise AssertionError(f"{error} Shown was {row}") from error
        return row

    async def throttle(self, rate: str | None) -> None:
        change = ConfigChange(RATE, AlterOp.DELETE if rate is None else AlterOp.SET, rate)
        await alter_configs(self._gateway, Resource(BROKER, str(NEW)), [change])

    async def starts_at(self, offset: int, *, flag: bool) -> None:
        """It is fetching from there, slowly; then it is in sync, and goes away again."""
        await set_flag(self._gateway, NEW, "true" if flag else "false")
        await self.throttle(TRICKLE)
        await self.topic.move([1, NEW])
        start = {"log_start_offset": 0, "local_log_start_offset": offset}
        row = await self.shown("it is fetching", phase="FETCHING", in_isr=False, **start)
        assert row["phase_source"] == "inferred"
        await self.throttle(None)
        row = await self.shown("it is in sync", phase="IN_SYNC", in_isr=True, **start)
        assert row["phase_source"] == "exact"
        await remove_replica(self.topic, 1, NEW)

    async def everything_is_copied(self) -> None:
        await self.topic.configure(remote_log_copy_disable=None, local_retention_ms="1")

        async def copied() -> bool | None:
            end, local, pending = [
                await self.topic.offset(1, at)
                for at in (Sentinel.LATEST, Sentinel.EARLIEST_LOCAL, Sentinel.EARLIEST_PENDING_UPLOAD)
            ]
            return (end == local and pending == -1) or None

        await until("nothing is local", copied, 120)

    async def is_kept_out(self) -> None:
        """Kafka's trap: with the flag on it never joins; with the flag off it does."""
        await set_flag(self._gateway, NEW, "true")
        await self.topic.move([1, NEW])
        await self.shown("it is building", phase="BUILDING_REMOTE_AUX", log_end_offset=0)
        row = await self.shown("it is delayed", phase="DELAYED", log_end_offset=0)
        assert row["phase_source"] == "inferred"
        await set_flag(self._gateway, NEW, None)
        await self.shown("it is in sync", phase="IN_SYNC", in_isr=True)


@pytest.mark.parametrize("up", [()], indirect=True)
def test_new_replicas_of_a_real_kafka_are_shown_in_the_phases_that_the_engine_tells(kafka: JavaTools, up: Site) -> None:
    async def play() -> None:
        gateway = Gateway(parse_bootstrap(kafka.bootstrap))
        try:
            await fetch_cluster(gateway)
            on = Bootstraps(up, gateway)
            leader = await build(on.topic, BootstrapPlan(SIZE_BYTES_MIN, 85), 1, lambda *_: None)
            assert 0 < leader.local_start < leader.pending_upload < leader.log_end
            await on.topic.configure(follower_replication_throttled_replicas=f"0:{NEW}")
            await on.starts_at(leader.local_start, flag=False)
            await on.starts_at(leader.pending_upload, flag=True)
            await on.everything_is_copied()
            await on.is_kept_out()
            await on.topic.delete()
        finally:
            await gateway.close()

    asyncio.run(play())


@pytest.mark.parametrize("up", [("--allow-changes",)], indirect=True)
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
