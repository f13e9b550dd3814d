"""`ebbline up --attach` on a real Apache Kafka 4.3.1 with tiered storage: Kafka's own tools say the same, the embedded
cluster gives the same answers, and the traps that Kafka has are recognised with the way out.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from playwright.sync_api import expect

from backend.control.gateway.kafka_client import Gateway, parse_bootstrap
from backend.control.gateway.requests.metadata_requests import fetch_cluster
from backend.control.lab.bootstrap.race_plan import SIZE_BYTES_MIN, BootstrapPlan
from backend.control.lab.bootstrap.race_steps import build
from backend.protocol import messages as m
from backend.store import migrate
from backend.store.connection.database import create_engine
from spark.direct import DirectReader
from spark.kafka import OffsetsHeld
from spark.settings import JOB, PipelineSettings
from spark.sinks.ledger_sink import LedgerSink
from tests import browser
from tests.e2e.attached_bootstraps import NEW, Bootstraps
from tests.e2e.attached_site import (
    BATCH_RECORDS,
    BATCHES,
    CLUSTER_NAME,
    FLAG,
    TIERED,
    Site,
    create,
    limits,
    produce,
    set_on,
    wait_until_quiet,
)
from tests.e2e.attached_topic import by_spark, records_of
from tests.e2e.journey import Dashboard, Record
from tests.e2e.one_script import differences, the_script
from tests.e2e.up_process import UpProcess
from tests.effort import effort
from tests.interop.java_tools import JavaTools, libraries
from tests.ports import free_ports
from tests.spark import running
from tests.spark.replay import expected
from tests.spark.test_rlmm_cache_agrees import by_cache, segments_of
from tests.waiting import wait_until
from tests.wire import ask

ORACLE: Final = Path(__file__).parents[1] / "oracle" / "apache_kafka.py"
# Nobody is refused anything as long as there is no rule about it.
AUTHORIZER: Final = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
)
# Some fifty starts of a JVM in one test.
pytestmark = pytest.mark.timeout(900)
# Until it is restarted once more, a broker started with this does not look what is in the remote tier.
NEVER_MS: Final = 3_600_000
TASK_MS: Final = 500


class Kafka:
    """A real cluster of three brokers with tiered storage, and its own tools."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self.tools = JavaTools(libraries(), bootstrap)
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def restart(self, broker_id: int, setting: str) -> None:
        """Stopped in order, and started with one more setting."""
        place = ("--dir", str(self._folder), str(broker_id))
        for words in (("stop-broker", *place), ("start-broker", *place, "--set", setting)):
            done = _oracle(*words)
            assert done.returncode == 0, done.stderr

    def reassign(self, topic: str, replicas: Sequence[int] | None) -> None:
        """Asks Kafka itself, as its own tool would; None: cancels."""
        topics = m.AlterPartitionReassignmentsRequest.Topics
        part = topics.Partitions(partition_index=0, replicas=None if replicas is None else list(replicas))
        request = m.AlterPartitionReassignmentsRequest(
            timeout_ms=30_000, topics=[topics(name=topic, partitions=[part])]
        )
        port = int(self.bootstrap.split(",")[0].rpartition(":")[2])
        response = ask(port, request, 0, m.AlterPartitionReassignmentsResponse)
        assert response.responses[0].partitions[0].error_code == 0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    libraries()
    folder = tmp_path_factory.mktemp("kafka") / "cluster"
    settings = [word for setting in AUTHORIZER for word in ("--set", setting)]
    base = str(free_ports(60)[0])
    started = _oracle("up", "--dir", str(folder), "--brokers", "3", "--port-base", base, "--tiered", *settings)
    if started.returncode == 3:
        pytest.skip(f"Apache Kafka is unavailable: {started.stderr.strip()}")
    assert started.returncode == 0, started.stderr
    try:
        yield Kafka(folder, started.stdout.strip().splitlines()[-1])
    finally:
        _oracle("down", "--dir", str(folder))


def _oracle(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ORACLE), *words], capture_output=True, text=True, check=False)


def site_of(folder: Path, *options: str, pages: bool = False) -> UpProcess:
    less = ("--no-pipeline",) if pages else ("--no-pipeline", "--no-ui")
    return UpProcess(folder / "data", options=("--cluster-name", CLUSTER_NAME, *less, *options))


@pytest.fixture(scope="module")
def attached(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An ebbline that may change the real cluster."""
    words = ("--attach", kafka.bootstrap, "--allow-changes")
    with site_of(tmp_path_factory.mktemp("up"), *words, pages=True) as process:
        yield Site(process)


def test_one_script_gets_the_same_answers_from_apache_kafka_and_from_the_embedded_cluster(
    kafka: Kafka, attached: Site, tmp_path: Path
) -> None:
    theirs = the_script(attached, kafka.tools)
    with site_of(tmp_path, "--no-demo") as process:
        ours = the_script(Site(process), JavaTools(libraries(), process.bootstrap))
    assert list(differences(ours, theirs)) == []
    assert [result for _, result in theirs["audit"]].count("verified") == 9


@pytest.mark.skipif(browser.executable() is None, reason=browser.NO_BROWSER)
def test_the_pages_show_a_real_kafka_and_turn_its_flag_on_and_off(
    kafka: Kafka, attached: Site, record_property: Record
) -> None:
    create(kafka.bootstrap, "shown", [[1, 2]], TIERED)
    produce(kafka.bootstrap, "shown", partitions=1)
    wait_until_quiet(attached, "shown")
    with browser.browser() as started:
        page = attached.up.page(started)
        dashboard = Dashboard(attached.up, page, browser.Complaints(page))
        journey = dashboard.journey("Attach to a Kafka")
        expect(page.get_by_text("3/3 brokers")).to_be_visible()
        journey.go("Config")
        journey.click(page.get_by_role("button", name="Change cluster default…"))
        journey.confirm("Turn on", "seen in a browser")
        expect(page.get_by_text("On everywhere")).to_be_visible()
        journey.answered(record_property)
        assert set_on(kafka.bootstrap, "broker", "1")[FLAG] == "true"
        page.get_by_role("button", name="Revert…").first.click()
        journey.confirm("Revert", "back")
        expect(page.get_by_text("Off everywhere")).to_be_visible()

        dashboard.open("/partition?tp=shown-0")
        expect(page.locator(".st-key-card-hero .eb-block-remote").first).to_be_visible()
        dashboard.open("/followers?tp=shown&phase=All")
        expect(page.get_by_text("Kafka tells who is in sync; every other phase is inferred")).to_be_visible()
        expect(page.get_by_text("Told by the embedded brokers")).to_have_count(0)
        dashboard.open("/lab")
        expect(page.get_by_text("so it runs on an embedded cluster only")).to_be_visible()
        dashboard.is_quiet()


def test_without_leave_to_change_it_a_kafka_is_looked_at_only(kafka: Kafka, tmp_path: Path) -> None:
    with site_of(tmp_path, "--attach", kafka.bootstrap) as process:
        site = Site(process)
        cluster = site.get("/v1/cluster")
        assert (cluster["kind"], cluster["changes_allowed"]) == ("attached", False)
        refused = site.execute(site.plan("toggle_bootstrap", {"enable": True}))
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:ebbline:problem:read-only")
        assert "--allow-changes" in refused.json()["detail"]
        audit = site.get("/v1/audit")["items"]
        assert ("refused", "execute toggle_bootstrap") in {(row["result"], row["action"]) for row in audit}
    assert FLAG not in set_on(kafka.bootstrap, "broker", "1")


def test_replicas_that_never_join_are_told_why_and_join_by_the_way_out(kafka: Kafka, attached: Site) -> None:
    for topic, config in (("all-copied", {"local.retention.ms": "1"}), ("cut", {})):
        create(kafka.bootstrap, topic, [[1, 2]], TIERED | config)
        produce(kafka.bootstrap, topic, partitions=1)
    wait_until_quiet(attached, "cut")
    end = BATCHES * BATCH_RECORDS
    into_active = TopicPartition("cut", 0, end - 100)
    kafka.admin.delete_records([into_active])[TopicPartition("cut", 0)].result(60)
    wait_until(
        "everything is in the remote tier, or deleted",
        lambda: (
            (row := attached.row("all-copied")) is not None
            and (row["pending_reason"], row["local_log_start_offset"]) == ("all_copied", end)
            and (cut := attached.row("cut")) is not None
            and cut["log_start_offset"] == cut["local_log_start_offset"] == end - 100
        ),
        timeout_s=240,
    )
    flag = {"scope": "broker", "broker_id": 3}
    attached.done(attached.plan("toggle_bootstrap", flag | {"enable": True}))
    for topic in ("all-copied", "cut"):
        kafka.reassign(topic, [1, 2, 3])
    stuck = attached.finding("follower-stuck", "all-copied", "never-joins-all-copied")
    cut = attached.finding("follower-stuck", "cut", "never-joins-nothing-remote")
    for finding in (stuck, cut):
        assert f"Turn {FLAG} off on broker 3" in finding["action"]
    assert "produce" not in stuck["action"]

    kafka.reassign("all-copied", [1, 2])
    moving = attached.finding("move-stalled", "all-copied", "added-and-removed")
    assert "Cancel" in moving["action"]
    kafka.reassign("all-copied", None)
    attached.wait_until_closed(moving)
    attached.wait_until_closed(stuck)

    attached.done(attached.plan("toggle_bootstrap", flag | {"enable": False}))
    attached.wait_until_closed(cut)
    joined = attached.row("cut")
    assert joined is not None
    assert sorted(joined["isr"]) == [1, 2, 3]


def test_new_replicas_of_a_real_kafka_are_shown_in_the_phases_that_the_engine_tells(
    kafka: Kafka, attached: Site
) -> None:
    async def play() -> None:
        gateway = Gateway(parse_bootstrap(kafka.bootstrap))
        try:
            await fetch_cluster(gateway)
            on = Bootstraps(attached, gateway)
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


@pytest.mark.parametrize("connector", effort(["none"], ["none", "rlmm", "kafka"]))
def test_its_metadata_topic_gives_the_ledger_that_our_rlmm_cache_gives(
    kafka: Kafka, attached: Site, tmp_path: Path, connector: str
) -> None:
    """By a plain consumer; in `make soak` also by Spark, with our source and with Spark's own connector."""
    topic = f"ledger-{connector}"
    create(kafka.bootstrap, topic, [[1, 2]], TIERED)
    produce(kafka.bootstrap, topic, partitions=1)
    wait_until_quiet(attached, topic)
    url = f"sqlite:///{tmp_path / 'ebbline.db'}"
    migrate.upgrade(url)
    engine = create_engine(url)
    settings = PipelineSettings(tmp_path, running.CLUSTER, kafka.bootstrap, url)
    reader = DirectReader(settings, "test", threading.Event())
    low, high = reader.low(), reader.high()
    held = {partition: OffsetsHeld(low[partition], end) for partition, end in high.items()}
    records = [record for number, offsets_held in held.items() for record in records_of(settings, number, offsets_held)]
    if connector == "none":
        sink = LedgerSink(engine, cluster_id=running.CLUSTER, job=JOB, source_topic=settings.source_topic)
        sink.claim_topic(reader.topic_id())
        reader.copy(sink, high)
    else:
        by_spark(settings, connector, running.read_to(engine, records))
    reader.close()
    cached, refused = by_cache(records)
    ledger, _, illegal = segments_of(engine)
    assert ledger == cached
    assert (refused, illegal) == (0, 0)
    assert len(ledger) >= 3
    assert running.content(engine) == expected(records)
    engine.dispose()


def test_a_restarted_leader_is_said_not_to_know_the_remote_tier_yet_and_so_is_the_replica_that_waits_for_it(
    kafka: Kafka, attached: Site
) -> None:
    create(kafka.bootstrap, "sole", [[3]], TIERED)
    produce(kafka.bootstrap, "sole", partitions=1)
    wait_until_quiet(attached, "sole")
    kafka.restart(3, f"remote.log.manager.task.interval.ms={NEVER_MS}")

    def loading() -> Any:
        findings = attached.get("/v1/findings?slug=metadata-loading")["items"]
        return next((finding for finding in findings if finding["object"] == "broker 3"), None)

    finding = wait_until("the leader is seen not to know", loading, timeout_s=100)
    assert "answers -1 for the latest tiered offset" in finding["evidence"]["sentence"]
    assert finding["action"].startswith("Wait: ")
    switched = attached.plan("toggle_bootstrap", {"scope": "broker", "broker_id": 1, "enable": True})
    attached.done(switched)
    kafka.reassign("sole", [3, 1])

    def delayed() -> Any:
        held = attached.get("/v1/partitions/sole/0")["replicas"]
        return next((replica for replica in held if (replica["broker_id"], replica["phase"]) == (1, "DELAYED")), None)

    replica = wait_until("the new replica is seen to wait", delayed, timeout_s=120)
    assert (replica["log_end_offset"], replica["phase_source"]) == (0, "inferred")
    assert replica["evidence"]["rule"] == "empty-still"
    kafka.restart(3, f"remote.log.manager.task.interval.ms={TASK_MS}")
    attached.wait_until_closed(finding)
    wait_until("it has joined", lambda: sorted((attached.row("sole") or {"isr": []})["isr"]) == [1, 3], timeout_s=120)
    assert (attached.row("sole") or {})["latest_tiered_offset"] > 0
    attached.revert(switched)


def test_what_kafkas_authorizer_refuses_is_one_sentence_and_changes_nothing(kafka: Kafka, attached: Site) -> None:
    create(kafka.bootstrap, "guarded", [[1, 2]], {})
    produce(kafka.bootstrap, "guarded", partitions=1, batches=2)
    wait_until("it is seen", lambda: (attached.row("guarded") or {}).get("high_watermark") == 2 * BATCH_RECORDS)
    rules = ["--force", "--deny-principal", "User:ANONYMOUS", "--topic", "guarded"]
    rules += [word for operation in ("AlterConfigs", "Delete") for word in ("--operation", operation)]
    allowed = ["--force", "--allow-principal", "User:ANONYMOUS", "--operation", "All", "--topic", "guarded"]
    for rule in (allowed, rules):
        kafka.tools.run("kafka-acls", "--add", *rule)
    try:
        for kind, inputs in (
            ("topic_config", {"topic": "guarded", "settings": {"retention.ms": "86400000"}}),
            ("delete_records", {"partitions": [{"topic": "guarded", "partition": 0, "offset": 10}]}),
            ("reassign", {"action": "add", "topics": ["guarded"], "brokers": [3], "throttle_bytes_per_s": 1_000_000}),
        ):
            said = refusal_of(attached, kind, inputs)
            assert "TOPIC_AUTHORIZATION_FAILED" in said, (kind, said)
            assert "docs/attach.md" in said, (kind, said)
            assert said.endswith(".")
    finally:
        kafka.tools.run("kafka-acls", "--remove", "--force", "--topic", "guarded")
    row = attached.row("guarded") or {}
    assert (row["replicas"], row["log_start_offset"], row["adding_replicas"]) == ([1, 2], 0, [])
    assert "retention.ms" not in set_on(kafka.bootstrap, "topic", "guarded")
    wait_until("no limit is left", lambda: not limits(kafka.bootstrap, "guarded"))


def refusal_of(site: Site, kind: str, inputs: dict[str, Any]) -> str:
    """Why the change was not made: said by a check of its plan, or by its execution."""
    answer = site.api.post("/v1/plans", json={"kind": kind, "inputs": inputs})
    assert answer.status_code == 201, answer.text
    plan = answer.json()["plan"]
    if plan["state"] == "refused":
        return " ".join(check["sentence"] for check in plan["checks"] if check["outcome"] == "refused")
    assert site.execute(plan).status_code in (200, 202)
    ended = site.ended(plan)
    assert ended["state"] == "failed", ended
    last: str = ended["result"]["sentence"]
    return last
