"""One script of an operator's day: what the API answers to it is to be the same on every cluster.

Kafka's own tools are asked beside the API, of a cluster that is quiet: every number that the API shows is theirs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from tests.e2e.attached_site import (
    CLUSTER_NAME,
    FLAG,
    OFFSETS,
    TIERED,
    Site,
    create,
    described,
    limits,
    offsets,
    produce,
    replicas,
    set_on,
    wait_until_quiet,
)
from tests.interop.java_tools import JavaTools, table
from tests.waiting import wait_until

TOPICS: Final = ("plain", "tiered")
ASSIGNMENT: Final = [[1, 2], [2, 1]]
# Values that differ from run to run: moments, numbers of rows, ids that were drawn; of brokers as a whole also what the
# internal topics hold, of which there are more partitions on one cluster than on the other.
VOLATILE: Final = re.compile(
    r"(^|_)(id|ids|at_ms|since_ms|age_ms|sample_ms|version|pid|log_dir|load)$"
    r"|^(sampled|created|changed|requested|accepted|began|finished|seen|updated|opened|closed|asked|started)_ms$"
)
# Settings of the brokers at their start, and the embedded engine's setting. A new cluster of Apache Kafka 4.3 has
# a cluster-wide min.insync.replicas, because of eligible leader replicas (KIP-966).
OTHERWISE_SET: Final = ("file.delete.delay.ms", "compat", "min.insync.replicas")
GROUP: Final = "left-behind"


def the_script(site: Site, tools: JavaTools) -> dict[str, Any]:
    """The responses of the API, step by step, without the values that differ from run to run."""
    said: dict[str, Any] = {}
    create(tools.bootstrap, "plain", ASSIGNMENT, {})
    create(tools.bootstrap, "tiered", ASSIGNMENT, TIERED)
    for topic in TOPICS:
        produce(tools.bootstrap, topic, partitions=2)
    wait_until_quiet(site, *TOPICS)
    # Settings are looked at less often than offsets.
    wait_until("their settings are seen", lambda: all(settings_of(site, topic)["items"] for topic in TOPICS))
    said["observed"] = shown(site)
    the_numbers_are_those_of_kafkas_tools(site, tools)
    said["readers"] = a_group_that_is_left_behind(site, tools)
    said["toggled"] = the_flag_is_toggled(site, tools)
    said["moved"] = replicas_are_added_and_taken_back(site, tools)
    said["elected"] = another_leader_is_elected(site, tools)
    said["deleted"] = records_are_deleted(site, tools)
    said["changed"] = a_setting_is_changed(site, tools)
    said["refused"] = list(what_is_refused(site))
    said["ended"] = shown(site)
    findings = site.get("/v1/findings?state=all")["items"]
    said["findings"] = sorted((f["slug"], f["sentence"]) for f in findings if f["topic"] in TOPICS)
    audit = site.get("/v1/audit?limit=1000")["items"]
    said["audit"] = [(row["action"], row["result"]) for row in reversed(audit)]
    return {name: steady(value) for name, value in said.items()}


def steady(value: Any) -> Any:
    """The answer without what differs from run to run."""
    if isinstance(value, dict):
        kept = (name for name in value if not VOLATILE.search(name) and name not in OTHERWISE_SET)
        return {name: steady(value[name]) for name in kept}
    if isinstance(value, list | tuple):
        settings = (part.get("name") if isinstance(part, dict) else None for part in value)
        return [steady(part) for part, name in zip(value, settings, strict=True) if name not in OTHERWISE_SET]
    if isinstance(value, str):
        # Both clusters are on this machine's disk, which other programs fill and empty meanwhile.
        steady_disk = re.sub(r"would keep [\d.]+ \w+ free", "would keep SOME free", value)
        return re.sub(r"(127\.0\.0\.1:\d+,?)+", "BROKERS", steady_disk)
    return value


# Apache Kafka elects the last leader after a kill of all without a look at its log: fewer lost disks are survived.
_MEANT: Final = "durability"


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two answers differ, but for what the second one marks as inferred, and where the systems themselves do."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        inferred = [name.removesuffix("_source") for name, value in theirs.items() if value == "inferred"]
        for name in sorted(ours.keys() | theirs.keys()):
            # `phase`, `phase_source` and the evidence for it; of a finding all of its evidence.
            if name != _MEANT and not any(name.startswith(mark) or name == "evidence" for mark in inferred):
                yield from differences(ours.get(name), theirs.get(name), f"{path}/{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for at, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(left, right, f"{path}/{at}")
    elif ours != theirs:
        yield f"{path}: {json.dumps(ours)} is not {json.dumps(theirs)}"


def shown(site: Site) -> dict[str, Any]:
    """Everything that the API tells of the topics."""
    rows = {topic: site.get(f"/v1/partitions?tiered=false&topic={topic}")["items"] for topic in TOPICS}
    return {
        "partitions": rows,
        "replicas": [site.get(f"/v1/partitions/{t}/{p}") for t in TOPICS for p in range(len(ASSIGNMENT))],
        "config": [settings_of(site, topic) for topic in TOPICS],
        "flag": site.get(f"/v1/config?name={FLAG}"),
        "brokers": [b["broker_id"] for b in site.get("/v1/brokers")["items"] if b["reachable"] and not b["fenced"]],
    }


def settings_of(site: Site, topic: str) -> Any:
    return site.get(f"/v1/config?resource_type=topic&resource={topic}")


def the_numbers_are_those_of_kafkas_tools(site: Site, tools: JavaTools) -> None:
    rows = {
        (t, row["partition"]): row
        for t in TOPICS
        for row in site.get(f"/v1/partitions?tiered=false&topic={t}")["items"]
    }
    for name, when in OFFSETS.items():
        result = offsets(tools, "plain|tiered", when)
        expected = {at: row[name] for at, row in rows.items() if row[name] not in (None, -1)}
        assert result == expected, when
    said = tools.run("kafka-topics", "--describe")
    matches = re.findall(r"Topic: (\w+)\s+Partition: (\d+)\s+Leader: (\d+)\s+Replicas: ([\d,]+)\s+Isr: ([\d,]+)", said)
    assert {
        (topic, int(p)): (int(leader), numbers(listed), sorted(numbers(isr)))
        for topic, p, leader, listed, isr in matches
        if topic in TOPICS
    } == {at: (row["leader"], row["replicas"], sorted(row["isr"])) for at, row in rows.items()}
    sizes = json.loads(
        next(
            line
            for line in tools.run("kafka-log-dirs", "--describe", "--topic-list", ",".join(TOPICS)).splitlines()
            if line.startswith("{")
        )
    )
    on_disk = {
        (part["partition"], broker["broker"]): part["size"]
        for broker in sizes["brokers"]
        for folder in broker["logDirs"]
        for part in folder["partitions"]
    }
    held = [r for t in TOPICS for p in (0, 1) for r in site.get(f"/v1/partitions/{t}/{p}")["replicas"]]
    assert {(f"{r['topic']}-{r['partition']}", r["broker_id"]): r["local_log_bytes"] for r in held} == on_disk
    quorum = tools.run("kafka-metadata-quorum", "describe", "--status")
    told_quorum = wait_until("the quorum was looked at", lambda: site.get("/v1/quorum")["quorum"])
    for name, label in (("leader_id", "LeaderId"), ("leader_epoch", "LeaderEpoch")):
        found_line = re.search(rf"{label}:\s+(\d+)", quorum)
        assert found_line is not None, quorum
        assert told_quorum[name] == int(found_line[1])
    described = tools.run("kafka-configs", "--describe", "--all", "--entity-type", "topics", "--entity-name", "tiered")
    theirs = dict(re.findall(r"^\s+([a-z.]+)=(\S*) sensitive=", described, re.MULTILINE))
    ours = site.get("/v1/config?resource_type=topic&resource=tiered")["items"]
    assert len(ours) > 10
    assert {row["name"]: row["value"] or "" for row in ours} == {row["name"]: theirs[row["name"]] for row in ours}


def numbers(listed: str) -> list[int]:
    return [int(number) for number in listed.split(",")]


def a_group_that_is_left_behind(site: Site, tools: JavaTools) -> Any:
    """It has committed what is in the remote tier only; what it has committed is what Kafka's own tool says."""
    consumer = Consumer({"bootstrap.servers": tools.bootstrap, "group.id": GROUP, "enable.auto.commit": "false"})

    def seen() -> Any:
        answer = site.get("/v1/remote-readers")
        return answer if len(answer["items"]) == 2 else None

    try:
        consumer.subscribe(["tiered"])
        wait_until("it has its partitions", lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2)
        consumer.commit(offsets=[TopicPartition("tiered", p, 100) for p in (0, 1)], asynchronous=False)
        result = wait_until("it is seen", seen, timeout_s=120)
        rows = table(tools.run("kafka-consumer-groups", "--describe", "--group", GROUP))
        assert {(row["TOPIC"], row["CURRENT-OFFSET"]) for row in rows} == {("tiered", "100")}
    finally:
        consumer.close()
    wait_until("it is gone", lambda: not site.get("/v1/remote-readers")["items"], timeout_s=120)
    return result


def the_flag_is_toggled(site: Site, tools: JavaTools) -> list[Any]:
    toggled = site.done(site.plan("toggle_bootstrap", {"enable": True}))
    assert set_on(tools.bootstrap, "broker", "1")[FLAG] == "true"
    back = site.revert(toggled)
    assert FLAG not in set_on(tools.bootstrap, "broker", "1")
    return [toggled, back]


def replicas_are_added_and_taken_back(site: Site, tools: JavaTools) -> list[Any]:
    inputs = {"action": "add", "topics": list(TOPICS), "brokers": [3], "throttle_bytes_per_s": 500_000}
    plan = site.plan("reassign", inputs)
    assert site.execute(plan).status_code == 202
    wait_until(
        "bytes are seen to come",
        lambda: ((site.get(f"/v1/plans/{plan['id']}")["plan"]["progress"] or {}).get("copied_bytes") or 0) > 0,
    )
    assert limits(tools.bootstrap, *TOPICS) != []
    fast = site.api.post(f"/v1/plans/{plan['id']}/limit", json={"throttle_bytes_per_s": 50_000_000})
    assert fast.status_code in (200, 409), fast.text  # 409: it has just come to its end
    moved = site.ended(plan)
    assert moved["state"] == "verified", moved["result"]
    assert replicas(tools.bootstrap, "tiered") == {0: [1, 2, 3], 1: [2, 1, 3]}
    measured, foreseen = moved["progress"]["copied_bytes"], plan["estimate"]["in_effect_bytes"]
    assert abs(measured - foreseen) <= 0.15 * foreseen
    back = site.revert(moved)
    assert replicas(tools.bootstrap, "tiered") == dict(enumerate(ASSIGNMENT))
    wait_until("no limit is left", lambda: not limits(tools.bootstrap, *TOPICS))
    return [plan, _outcome(moved), _outcome(back)]


def _outcome(plan: dict[str, Any]) -> dict[str, Any]:
    """Of a move that has ended, what does not depend on when it was looked at."""
    progress = {name: plan["progress"][name] for name in ("counts",)}
    return {
        **{name: plan[name] for name in ("kind", "state", "diff", "checks", "cli", "estimate")},
        "progress": progress,
    }


def another_leader_is_elected(site: Site, tools: JavaTools) -> list[Any]:
    ordered = site.plan("reassign", {"assignments": [{"topic": "plain", "partition": 0, "replicas": [2, 1]}]})
    elected = [site.done(ordered), site.done(site.plan("elect", {"topics": ["plain"]}))]
    assert described(tools.bootstrap, "plain")[0].leader == 2
    return [_outcome(elected[0]), elected[1]]


def records_are_deleted(site: Site, tools: JavaTools) -> list[Any]:
    cuts = [{"topic": topic, "partition": 1, "offset": 1000} for topic in TOPICS]
    deleted = site.done(site.plan("delete_records", {"partitions": cuts}))
    assert {offsets(tools, "plain|tiered", "earliest")[topic, 1] for topic in TOPICS} == {1000}
    wait_until(
        "they are seen to be gone",
        lambda: all(row is not None and row["log_start_offset"] == 1000 for t in TOPICS if [row := site.row(t, 1)]),
    )
    return [deleted]


def a_setting_is_changed(site: Site, tools: JavaTools) -> list[Any]:
    changed = site.done(site.plan("topic_config", {"topic": "plain", "settings": {"retention.ms": "86400000"}}))
    assert set_on(tools.bootstrap, "topic", "plain")["retention.ms"] == "86400000"
    back = site.revert(changed)
    assert "retention.ms" not in set_on(tools.bootstrap, "topic", "plain")
    return [changed, back]


def what_is_refused(site: Site) -> Iterator[Any]:
    """Wishes that no cluster fulfils: problems, and plans that their checks refuse."""
    for kind, inputs in (
        ("topic_config", {"topic": "no-such-topic", "settings": {"retention.ms": "1"}}),
        ("topic_config", {"topic": "plain", "settings": {"no.such.setting": "1"}}),
        ("topic_config", {"topic": "plain", "settings": {"retention.ms": "soon"}}),
        ("topic_config", {"topic": "tiered", "settings": {"remote.storage.enable": "false"}}),
        ("reassign", {"assignments": [{"topic": "plain", "partition": 0, "replicas": [1, 9]}], "unthrottled": True}),
        ("reassign", {"action": "add", "topics": ["no-such-topic"], "brokers": [3]}),
        ("delete_records", {"partitions": [{"topic": "plain", "partition": 0, "offset": 10**9}]}),
        ("elect", {"topics": ["no-such-topic"]}),
    ):
        answer = site.api.post("/v1/plans", json={"kind": kind, "inputs": inputs, "dry_run": True})
        result = answer.json()
        yield [kind, answer.status_code, result.get("detail") or result.get("checks")]
    toggle = site.plan("toggle_bootstrap", {"enable": True})
    body = {"confirm": f"not-{CLUSTER_NAME}", "reason": "a test"}
    wrong = site.api.post(f"/v1/plans/{toggle['id']}/execute", json=body, headers={"Idempotency-Key": "wrong"})
    yield [wrong.status_code, wrong.json()["detail"]]
