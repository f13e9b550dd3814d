"""The API of an `ebbline up`, and one script of an operator's day that runs on any cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, Final

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource
from confluent_kafka.cimpl import NewTopic

from tests.e2e.up_process import UpProcess
from tests.interop.java_tools import JavaTools
from tests.waiting import wait_until

CLUSTER_NAME: Final = "same"
FLAG: Final = "follower.fetch.last.tiered.offset.enable"
BATCHES: Final = 160
BATCH_RECORDS: Final = 25
TIERED: Final = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1048576"}
OFFSETS: Final = {
    "log_start_offset": "earliest",
    "local_log_start_offset": "earliest-local",
    "latest_tiered_offset": "latest-tiered",
    "earliest_pending_upload_offset": "earliest-pending-upload",
    "high_watermark": "latest",
}


class Site:
    """The API of one cluster, for its operator."""

    def __init__(self, up: UpProcess) -> None:
        headers = {"Authorization": f"Bearer {up.operator_token}"}
        self.up = up
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
        body = {"confirm": CLUSTER_NAME, "reason": "a test", "wait_ms": 0}
        key = {"Idempotency-Key": f"site-{plan['id']}-{next(self._keys)}"}
        return self.api.post(f"/v1/plans/{plan['id']}/execute", json=body, headers=key)

    def ended(self, plan: dict[str, Any]) -> dict[str, Any]:
        ended: dict[str, Any] = wait_until(
            f"plan {plan['id']} has ended",
            lambda: (now := self.get(f"/v1/plans/{plan['id']}")["plan"])["finished_ms"] and now,
            timeout_s=180,
        )
        return ended

    def done(self, plan: dict[str, Any]) -> dict[str, Any]:
        assert self.execute(plan).status_code in (200, 202)
        ended = self.ended(plan)
        assert ended["state"] == "verified", ended["result"]
        return ended

    def revert(self, plan: dict[str, Any]) -> dict[str, Any]:
        answer = self.api.post(f"/v1/plans/{plan['id']}/revert", json={})
        assert answer.status_code == 201, answer.text
        return self.done(answer.json()["plan"])

    def finding(self, slug: str, topic: str, rule: str) -> dict[str, Any]:
        """The open finding of this rule about the topic, once there is one."""

        def probe() -> list[dict[str, Any]]:
            items = self.get(f"/v1/findings?slug={slug}&topic={topic}")["items"]
            return [item for item in items if item["evidence"].get("rule") == rule]

        return wait_until(f"{slug} of {topic} says {rule}", probe, timeout_s=180)[0]

    def wait_until_closed(self, finding: dict[str, Any]) -> None:
        path = f"/v1/findings/{finding['id']}"
        wait_until(f"{finding['slug']} closes", lambda: self.get(path)["finding"]["closed_ms"], timeout_s=180)

    def row(self, topic: str, partition: int = 0) -> dict[str, Any] | None:
        """The partition as it was sampled last; None before it was."""
        items = self.get(f"/v1/partitions?tiered=false&topic={topic}")["items"]
        return next((row for row in items if row["partition"] == partition), None)


def offsets(tools: JavaTools, topics: str, when: str) -> dict[tuple[str, int], int]:
    """As kafka-get-offsets prints them; it prints nothing for a partition whose answer is -1."""
    said = tools.run("kafka-get-offsets", "--topic", topics, "--time", when)
    matches = (re.match(r"(\w+):(\d+):(\d+)$", line) for line in said.splitlines())
    return {(line[1], int(line[2])): int(line[3]) for line in matches if line}


def described(bootstrap: str, topic: str) -> Any:
    """The topic's partitions by number, as confluent-kafka sees them."""
    return (
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        .list_topics(topic, timeout=60)
        .topics[topic]
        .partitions
    )


def replicas(bootstrap: str, topic: str) -> dict[int, list[int]]:
    return {number: list(partition.replicas) for number, partition in described(bootstrap, topic).items()}


def set_on(bootstrap: str, kind: str, name: str) -> dict[str, str]:
    """Returns the settings of a topic, of a broker or of all brokers, as confluent-kafka sees it; None for a secret."""
    resource = ConfigResource(ConfigResource.Type[kind.upper()], name)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    result = admin.describe_configs([resource])[resource].result(60)
    own = (
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    return {entry.name: entry.value for entry in result.values() if entry.source in {source.value for source in own}}


def limits(bootstrap: str, *topics: str, brokers: Sequence[int] = (1, 2, 3)) -> list[str]:
    """Every replication limit that is set on a broker or on these topics."""
    places = [("broker", str(n)) for n in brokers] + [("topic", topic) for topic in topics]
    return [
        f"{name} {key}"
        for kind, name in places
        for key in set_on(bootstrap, kind, name)
        if "replication.throttled" in key
    ]


def create(bootstrap: str, topic: str, assignment: list[list[int]], config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    requested = NewTopic(topic, len(assignment), replica_assignment=assignment, config=config)
    admin.create_topics([requested])[topic].result(60)


def produce(bootstrap: str, topic: str, *, partitions: int, batches: int = BATCHES) -> None:
    """The same bytes on every cluster: a batch is sent when it is full, and its records have one timestamp."""
    full = {"batch.num.messages": BATCH_RECORDS, "linger.ms": 60_000}
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0, **full})
    at_ms = int(time.time() * 1000)
    for batch in range(batches):
        for partition in range(partitions):
            for _ in range(BATCH_RECORDS):
                producer.produce(topic, b"v" * 1000, partition=partition, timestamp=at_ms + batch)
    assert producer.flush(120) == 0


def wait_until_quiet(site: Site, *topics: str) -> None:
    """Of the tiered topics only the active segment waits for its upload, and local retention has done its work.

    A segment has 41 batches: after 160 there are three finished ones and 37 batches. Local retention (1 MiB) keeps one
    finished segment beside the active one: 2.0 MB.
    """

    def settled() -> bool:
        for topic in topics:
            rows = site.get(f"/v1/partitions?tiered=false&topic={topic}")["items"]
            answers = [site.get(f"/v1/partitions/{topic}/{row['partition']}") for row in rows]
            if not answers or not all(_settled(answer["partition"], answer["replicas"]) for answer in answers):
                return False
        return True

    wait_until(f"{topics} are quiet", settled, timeout_s=240)


def _settled(row: dict[str, Any], held: list[dict[str, Any]]) -> bool:
    names = ["log_start_offset", "local_log_start_offset", "log_end_offset", "latest_tiered_offset", "local_log_bytes"]
    if any(replica[name] != row[name] for replica in held for name in names) or sorted(row["isr"]) != sorted(
        row["replicas"]
    ):
        return False
    written = row["high_watermark"] == row["log_end_offset"] == BATCHES * BATCH_RECORDS
    if not row["tiered"]:
        return bool(written)
    segment = int(TIERED["segment.bytes"])
    pending = row["log_end_offset"] - row["earliest_pending_upload_offset"]
    return bool(written and pending * 1000 < segment and row["local_log_bytes"] < 2 * segment)
