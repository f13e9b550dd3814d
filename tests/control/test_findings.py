"""Findings on a living cluster that is really broken: what opens, what closes, what people do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from backend.control.findings import copy_failures, thresholds
from backend.control.findings.catalogue import SLUGS, runbook
from backend.control.findings.rules import (
    copy_rules,
    late_delete_rules,
    reader_rules,
    slow_copy_rules,
)
from backend.control.findings.thresholds import Thresholds
from backend.control.observer.sampling import settings_watch
from backend.control.observer.watches import finding_contexts, reader_watch, transaction_watch
from backend.protocol import messages as m
from backend.tiering import segment_state
from tests.control.feed import feed_ledger
from tests.control.site import FLAG, TIERED, ControlSite
from tests.wire import ask

REPOSITORY = Path(__file__).parents[2]


# The seventeen incidents of the design; the other rules are about brokers and partitions in general.
INCIDENTS = set(SLUGS) - {"broker-away", "broker-fenced", "disk-offline", "offline"}
# The incidents that a living cluster is really broken for, and where. The others are raised and cleared by the pure
# rules alone (tests/unit/control/findings/rule_cases.py), as every one of them is.
REALLY_BROKEN: dict[str, str] = {}
P = ParamSpec("P")


def breaks(*slugs: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A test that breaks its cluster so that these incidents open, and mends it so that they close."""

    def listed(test: Callable[P, None]) -> Callable[P, None]:
        REALLY_BROKEN.update(dict.fromkeys(slugs, test.__name__))

        @wraps(test)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            test(*args, **kwargs)
            (site,) = (argument for argument in (*args, *kwargs.values()) if isinstance(argument, ControlSite))
            for slug in slugs:
                assert any(finding["closed_ms"] for finding in findings_of(site, slug, state="all")), slug

        return checked

    return listed


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    """One site that every test breaks and repairs, each with another topic."""
    quick = {"broker.session.timeout.ms": "5000", "broker.heartbeat.interval.ms": "500"}
    as_kafka = {"remote.log.metadata.overlap": "kafka"}
    with ControlSite(tmp_path_factory.mktemp("findings"), settings=quick | as_kafka) as made:
        yield made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of seconds instead of minutes: what never ends need not be waited for."""
    impatient_defaults = replace(
        Thresholds(),
        stuck_s=2,
        move_undone_s=2,
        move_stalled_s=2,
        throttle_left_s=1,
        copy_full_still_s=1,
        transaction_held_s=2,
    )
    monkeypatch.setattr(thresholds, "DEFAULTS", impatient_defaults)
    monkeypatch.setattr(copy_failures, "REPEATED_FOR_MS", 1_000)
    monkeypatch.setattr(copy_failures, "RETRY_ENDS_MS", 1_000)
    monkeypatch.setattr(late_delete_rules, "DELETE_OVERDUE_MS", 1_000)
    monkeypatch.setattr(copy_rules, "HUNG_MS_MIN", 1_000)
    monkeypatch.setattr(segment_state, "HUNG_MS_MIN", 1_000)
    monkeypatch.setattr(copy_rules, "LEAK_FOR_MS", 0)
    monkeypatch.setattr(copy_rules, "CLOCKS_DIFFER_MS", 0)
    monkeypatch.setattr(slow_copy_rules, "SLOW_FOR_MS", 1_000)
    monkeypatch.setattr(transaction_watch, "HELD_MS_MIN", 500)
    monkeypatch.setattr(transaction_watch, "INTERVAL_S", 0.5)
    monkeypatch.setattr(reader_rules, "STORM_FOR_MS", 0)
    monkeypatch.setattr(reader_rules, "LOST_FOR_MS", 0)
    monkeypatch.setattr(settings_watch, "settings_interval_ms", lambda _: 1_000)
    monkeypatch.setattr(finding_contexts, "LINEAGE_INTERVAL_MS", 500)
    monkeypatch.setattr(reader_watch, "INTERVAL_S", 0.5)


def findings_of(site: ControlSite, slug: str, topic: str | None = None, *, state: str = "open") -> list[dict[str, Any]]:
    about = "" if topic is None else f"&topic={topic}"
    items: list[dict[str, Any]] = site.get(f"/v1/findings?slug={slug}&state={state}{about}")["items"]
    return items


def opens(site: ControlSite, slug: str, topic: str | None = None, *, timeout_s: float = 60) -> dict[str, Any]:
    """The one finding of this rule about the topic, once it is open."""
    items = site.wait_until(f"{slug} opens", lambda: findings_of(site, slug, topic), timeout_s)
    assert len(items) == 1, items
    item = items[0]
    assert item["sentence"]
    assert item["action"].endswith(".")
    assert item["evidence"]["sentence"]
    assert (item["closed_ms"], item["acknowledged_ms"]) == (None, None)
    return item


def closes(site: ControlSite, finding: dict[str, Any], *, timeout_s: float = 60) -> None:
    path = f"/v1/findings/{finding['id']}"
    slug = finding["slug"]
    site.wait_until(f"{slug} closes", lambda: site.get(path)["finding"]["closed_ms"] is not None, timeout_s)
    closed = site.get(path)["finding"]
    assert closed["opened_ms"] <= closed["seen_ms"] <= closed["closed_ms"]
    assert finding["id"] not in [item["id"] for item in findings_of(site, slug)]


def create_on(site: ControlSite, topic: str, replicas: Sequence[int], config: dict[str, str] | None = None) -> None:
    """A topic of one partition on these brokers, the first of which leads."""
    requested = NewTopic(topic, num_partitions=1, replica_assignment=[list(replicas)], config=config or {})
    site.admin.create_topics([requested])[topic].result(30)
    site.wait_until("it is seen", lambda: site.partitions(topic))


def reassign(site: ControlSite, topic: str, replicas: Sequence[int] | None) -> int:
    """Error code of the partition."""
    topics = m.AlterPartitionReassignmentsRequest.Topics
    part = topics.Partitions(partition_index=0, replicas=None if replicas is None else list(replicas))
    request = m.AlterPartitionReassignmentsRequest(timeout_ms=30_000, topics=[topics(name=topic, partitions=[part])])
    response = ask(site.cluster.layout.ports[1], request, 0, m.AlterPartitionReassignmentsResponse)
    return response.responses[0].partitions[0].error_code


def alter(site: ControlSite, kind: Any, name: str, setting: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(setting, value, incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    site.admin.incremental_alter_configs([resource])[resource].result(30)


@contextmanager
def broken_remote(site: ControlSite) -> Iterator[None]:
    """A file where the remote tier's folder was: nothing can be read, written or deleted there until the end."""
    folder = site.cluster.remote_folder
    away = folder.rename(folder.with_name("remote-away"))
    try:
        folder.write_text("not a folder")
        yield
    finally:
        folder.unlink()
        away.rename(folder)


def test_idle_partitions_whose_leaders_were_elected_again_contradict_nobody(
    own: ControlSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after each stop and start: leaders announce an epoch that no record has."""
    monkeypatch.setattr(thresholds, "DEFAULTS", replace(Thresholds(), divergence_s=0))
    for name, leader in (("idle", 2), ("written", 2)):
        create_on(own, name, [leader, 1, 3])
    own.produce("written", 20)
    own.cluster.stop_broker(2)
    own.cluster.start_broker(2)
    names = ("idle", "written")

    def led_again() -> bool:
        rows = [row for name in names for row in own.partitions(name)]
        return all((row["leader"], len(row["isr"])) == (2, 3) and row["leader_epoch"] >= 2 for row in rows)

    def elected() -> bool:
        own.admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(name, 0) for name in names]).result(30)
        return led_again()

    own.wait_until("broker 2 leads again", elected)
    judged = own.cluster.ask(lambda: own.plane.parts.observer.findings.rounds)
    own.wait_until(
        "rounds are judged",
        lambda: own.cluster.ask(lambda: own.plane.parts.observer.findings.rounds) > judged + 2,
        timeout_s=90,
    )
    assert [findings_of(own, "divergence", name, state="all") for name in names] == [[], []]


@breaks("metadata-unsafe")
def test_a_broker_that_dies_is_found_until_it_returns_also_by_a_new_backend(
    own: ControlSite,
) -> None:
    create_on(own, "solo", [3])
    own.cluster.kill_broker(3)
    away = opens(own, "broker-away")
    assert (away["object"], away["broker_id"]) == ("broker 3", 3)
    lost = opens(own, "offline")
    assert (lost["object"], lost["topic"], lost["partition"]) == ("solo-0", "solo", 0)
    assert (lost["cause_slug"], lost["cause_object"]) == ("broker-away", "broker 3")
    # As grave as what it explains, which is not counted beside it.
    own.wait_until("the cause is as grave", lambda: findings_of(own, "broker-away")[0]["severity"] == "critical")
    assert "It has replicas of " in findings_of(own, "broker-away")[0]["evidence"]["sentence"]
    # The ISR is empty, and the cluster tells who is eligible.
    assert (lost["evidence"]["isr"], lost["evidence"]["waits_for"]) == ([], [3])
    assert "Eligible with every acknowledged record: broker 3." in lost["evidence"]["sentence"]
    assert lost["action"].startswith("Start broker 3;")
    unsafe = opens(own, "metadata-unsafe")
    assert "under-replicated" in unsafe["evidence"]["sentence"]
    assert own.get(f"/v1/findings/{lost['id']}")["runbook"] == "docs/runbooks/offline.md"
    assert [item["id"] for item in own.get("/v1/findings?topic=solo")["items"]] == [lost["id"]]
    explained = own.get("/v1/findings?cause=broker-away:broker%203")["items"]
    assert lost["id"] in {item["id"] for item in explained}
    assert {item["cause_object"] for item in explained} == {"broker 3"}
    severe = own.get("/v1/findings?severity=critical")["items"]
    assert {away["id"], lost["id"]} <= {item["id"] for item in severe}
    metrics = own.operator.get("/metrics").text
    assert 'ebbline_findings_open{severity="critical",slug="broker-away"} 1.0' in metrics
    assert 'slug="offline"' not in metrics
    own.stop_plane()
    own.start_plane()
    own.wait_until("rounds are judged", lambda: own.cluster.ask(lambda: own.plane.parts.observer.findings.rounds) > 2)
    assert [findings_of(own, "broker-away")[0]["id"], findings_of(own, "offline")[0]["id"]] == [away["id"], lost["id"]]
    assert {away["id"], lost["id"]} <= set(page_by_page(own))
    muted_until_ms = what_two_people_do(own, away)
    own.cluster.start_broker(3)
    for finding in (away, lost, unsafe):
        closes(own, finding)
    ada = own.person("Ada", "operator")
    assert ada.post(f"/v1/findings/{away['id']}/acknowledge", json={}).status_code == 409
    own.cluster.kill_broker(3)
    again = opens(own, "broker-away")
    assert (again["id"] != away["id"], again["muted_until_ms"]) == (True, muted_until_ms)
    unmuted = ada.post(f"/v1/findings/{again['id']}/mute", json={"minutes": 0}).json()["finding"]
    assert unmuted["muted_until_ms"] is None
    own.cluster.start_broker(3)
    closes(own, again)


def test_a_partition_below_min_insync_replicas_tells_who_may_lead_besides_its_isr(own: ControlSite) -> None:
    create_on(own, "eligible", [2, 3], {"min.insync.replicas": "2"})

    def who() -> tuple[list[int], list[int] | None, list[int] | None]:
        result = own.get("/v1/partitions/eligible/0")
        eligible_leaders = result["eligible_leaders"]
        return (
            sorted(result["partition"]["isr"]),
            eligible_leaders["eligible_leader_replicas"],
            eligible_leaders["last_known_elr"],
        )

    own.wait_until("nobody else is needed", lambda: who() == ([2, 3], [], []))
    own.cluster.kill_broker(3)
    own.wait_until("broker 3 is eligible", lambda: who() == ([2], [3], []))
    result = own.get("/v1/partitions/eligible/0")
    assert result["next_leader"].startswith("If broker 2 is lost, broker 3 leads once it is up: it is eligible")
    reported = own.cluster.ask(own.plane.parts.observer.eligible_report)
    assert ["eligible", 0, [3], []] in (reported or {})["rows"]
    own.cluster.start_broker(3)
    own.wait_until("it is in sync again", lambda: who() == ([2, 3], [], []))


def test_a_damaged_file_of_the_only_replica_that_may_lead_is_named_also_by_a_new_backend(own: ControlSite) -> None:
    create_on(own, "damaged", [2, 3])
    own.cluster.stop_broker(3)
    own.produce("damaged", 200)  # which broker 3 does not have
    own.cluster.stop_broker(2)
    [path] = Path(own.cluster.layout.log_dirs[2], "damaged-0").glob("*.log")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    own.cluster.start_broker(2)
    own.cluster.start_broker(3)

    def named() -> str:
        sentences = [str(finding["evidence"]["sentence"]) for finding in findings_of(own, "offline", "damaged")]
        return next((sentence for sentence in sentences if "cannot use its log" in sentence), "")

    file = f"damaged-0/{path.name}"
    sentence = own.wait_until("the file is named", named)
    assert f"Broker 2 runs and cannot use its log: {file} at byte " in sentence
    lost = opens(own, "offline", "damaged")
    assert file in lost["evidence"]["unusable"]["2"]
    assert str(own.folder) not in str(lost), "a file is named as it lies in the log directory"
    assert lost["action"].startswith(
        "Delete nothing. Mend the disk of broker 2, or put the file back from a copy of it"
    )
    replicas = own.get("/v1/partitions/damaged/0")["replicas"]
    assert file in next(replica["error"] for replica in replicas if replica["broker_id"] == 2)

    own.stop_plane()
    own.start_plane()
    own.wait_until("rounds are judged", lambda: own.cluster.ask(lambda: own.plane.parts.observer.findings.rounds) > 2)
    assert file in str(findings_of(own, "offline", "damaged")[0]["evidence"])

    own.cluster.stop_broker(2)
    path.write_bytes(whole)
    own.cluster.start_broker(2)
    closes(own, lost)

    def leads() -> bool:
        (row,) = own.partitions("damaged")
        return (row["leader"], row["log_end_offset"]) == (2, 200)

    own.wait_until("it leads with every record, by the next samples", leads)


def page_by_page(site: ControlSite) -> list[int]:
    seen: list[int] = []
    before = ""
    while True:
        page = site.get(f"/v1/findings?state=all&limit=1{before}")
        seen += [item["id"] for item in page["items"]]
        if page["next_before_id"] is None:
            break
        before = f"&before_id={page['next_before_id']}"
    assert seen == sorted(seen, reverse=True)
    return seen


def what_two_people_do(site: ControlSite, away: dict[str, Any]) -> int:
    """Is kept and audited; until when the finding is muted."""
    path = f"/v1/findings/{away['id']}"
    ada = site.person("Ada", "operator")
    taken = ada.post(f"{path}/acknowledge", json={"reason": "looking"})
    assert (taken.status_code, taken.json()["finding"]["acknowledged_by"]) == (200, "Ada")
    assert site.person("Bob", "operator").post(f"{path}/acknowledge", json={}).status_code == 409
    assert site.person("Eve", "viewer").post(f"{path}/mute", json={"minutes": 5}).status_code == 403
    muted = ada.post(f"{path}/mute", json={"minutes": 5}).json()["finding"]
    assert muted["muted_until_ms"] > muted["opened_ms"]
    assert site.get("/v1/findings?muted=false&slug=broker-away")["items"] == []
    rows = [(a["actor"], a["action"], a["result"]) for a in site.get("/v1/audit?limit=4")["items"]]
    assert rows == [
        ("Ada", "mute finding", "verified"),
        ("Eve", "mute finding", "refused"),
        ("Bob", "acknowledge finding", "refused"),
        ("Ada", "acknowledge finding", "verified"),
    ]
    until_ms: int = muted["muted_until_ms"]
    return until_ms


@breaks("copy-failing", "copy-slow")
def test_a_remote_tier_that_is_away_makes_copies_fail_and_fall_behind(own: ControlSite, impatient: None) -> None:
    create_on(own, "failing", [1, 2, 3], TIERED)
    own.produce("failing", 200)
    own.wait_until_quiet("failing")
    assert findings_of(own, "copy-failing", "failing", state="all") == []
    with broken_remote(own):
        own.produce("failing", 1_500)
        opens(own, "copy-failing")
        # A first failure is a warning at most, here at once.
        own.wait_until("the next one fails too", lambda: findings_of(own, "copy-failing")[0]["severity"] == "critical")
        failing = findings_of(own, "copy-failing")[0]
        assert "failing-0" in failing["evidence"]["first"]
        assert 1 in failing["evidence"]["brokers"]
        assert failing["evidence"]["error"]
        slow = opens(own, "copy-slow", "failing")
        assert slow["evidence"]["pending_bytes"] >= slow["evidence"]["local_retention_bytes"] == 60_000
    closes(own, failing)
    closes(own, slow)


@breaks("transaction-open")
def test_a_transaction_that_stays_open_is_named_with_its_producer_and_the_command_that_ends_it(
    own: ControlSite, impatient: None
) -> None:
    create_on(own, "held", [1, 2, 3], TIERED)
    given = {"bootstrap.servers": own.cluster.bootstrap, "log_level": 0}
    forgotten = Producer({**given, "transactional.id": "forgotten", "transaction.timeout.ms": 600_000})
    forgotten.init_transactions(30)
    forgotten.begin_transaction()
    forgotten.produce("held", b"open", partition=0)
    assert forgotten.flush(30) == 0
    own.produce("held", 1_500)
    held = opens(own, "transaction-open", "held")
    assert (held["object"], held["severity"]) == ("held-0", "warning")

    def named() -> bool:
        (finding,) = findings_of(own, "transaction-open", "held")
        return bool(finding["evidence"]["transactional_id"] == "forgotten")

    own.wait_until("its producer is named", named)
    action = findings_of(own, "transaction-open", "held")[0]["action"]
    assert action.startswith("Restart its producer (its transactional id fences the old one), or wait")
    assert "forceTerminateTransaction --transactionalId forgotten" in action
    (row,) = own.partitions("held")
    assert (row["last_stable_offset"], row["high_watermark"]) == (0, row["log_end_offset"])
    forgotten.abort_transaction(30)
    closes(own, held)
    own.wait_until("copies go on", lambda: (own.partitions("held")[0]["latest_tiered_offset"] or 0) > 0)


def same_reason(site: ControlSite) -> bool:
    """Of broker 3. Two files of a segment are asked for at once; an attempt names the one that was refused first, so
    the reason may be another one between two requests.
    """
    (shown,) = (r for r in site.get("/v1/partitions/stuck/0")["replicas"] if r["broker_id"] == 3)
    stuck = findings_of(site, "follower-stuck", "stuck")
    return any(finding["evidence"]["sentence"].startswith(shown["evidence"]["reason"]) for finding in stuck)


@breaks("follower-stuck", "move-stalled")
def test_a_new_replica_that_cannot_read_the_remote_tier_is_stuck_and_so_is_its_move(
    own: ControlSite, impatient: None
) -> None:
    create_on(own, "stuck", [1, 2], TIERED)
    own.produce("stuck", 1_500)
    own.wait_until_quiet("stuck")
    with broken_remote(own):
        assert reassign(own, "stuck", [1, 2, 3]) == 0
        stuck = opens(own, "follower-stuck", "stuck")
        assert (stuck["object"], stuck["broker_id"]) == ("stuck-0 on broker 3", 3)
        assert stuck["evidence"]["phase"] in ("DELAYED", "WAITING_FOR_METADATA", "FAILED")
        shown = next(r for r in own.get("/v1/partitions/stuck/0")["replicas"] if r["broker_id"] == 3)
        own.wait_until("the finding and the replica tell the same", lambda: same_reason(own))
        assert (shown["phase_source"], shown["evidence"]["rule"]) == ("exact", "event")
        assert shown["evidence"]["target_offset"] == own.partitions("stuck")[0]["local_log_start_offset"]
        assert shown["evidence"]["attempts"] >= 1
        assert stuck["opened_ms"] >= shown["phase_since_ms"] > 0
        moving = opens(own, "move-stalled", "stuck")
        assert (moving["object"], moving["evidence"]["adding"]) == ("stuck-0", [3])
    closes(own, stuck)
    closes(own, moving)


@pytest.fixture(scope="module")
def as_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    """Brokers that keep Kafka 4.3.1's own ways, and publish no metrics, as those of an attached cluster."""
    settings = {"follower.fetch.tiered.compat": "kafka"}
    with ControlSite(tmp_path_factory.mktemp("as-kafka"), settings=settings, metrics=False) as made:
        yield made


@breaks("remote-read-storm")
def test_kafkas_trap_of_a_replica_that_never_joins_is_named_with_the_way_out(
    as_kafka: ControlSite, impatient: None
) -> None:
    settings = {**TIERED, "local.retention.ms": "1"}
    create_on(as_kafka, "orders", [1, 2], settings)
    as_kafka.produce("orders", 400)
    alter(as_kafka, ConfigResource.Type.BROKER, "3", FLAG, "true")
    as_kafka.wait_until(
        "everything is in the remote tier",
        lambda: (
            (row := as_kafka.partitions("orders")[0])["pending_reason"] == "all_copied"
            and row["local_log_start_offset"] == row["log_end_offset"] == 400
        ),
        timeout_s=60,
    )
    flag = f"/v1/config?resource=3&name={FLAG}"
    as_kafka.wait_until("the flag is seen", lambda: [row["value"] for row in as_kafka.get(flag)["items"]] == ["true"])
    assert reassign(as_kafka, "orders", [1, 2, 3]) == 0
    stuck = opens(as_kafka, "follower-stuck", timeout_s=60)
    assert stuck["evidence"]["rule"] == "never-joins-all-copied"
    assert FLAG in stuck["action"]
    assert reassign(as_kafka, "orders", [1, 2]) == 0
    moving = as_kafka.wait_until(
        "going back is seen not to end",
        lambda: [f for f in findings_of(as_kafka, "move-stalled") if f["evidence"]["rule"] == "added-and-removed"],
        timeout_s=60,
    )[0]
    assert "Cancel" in moving["action"]
    assert reassign(as_kafka, "orders", None) == 0
    closes(as_kafka, stuck)
    closes(as_kafka, moving)
    a_group_that_reads_what_is_remote_is_seen_until_it_has_caught_up(as_kafka)


def test_a_replica_that_finds_nothing_valid_in_the_remote_tier_joins_by_the_way_out(
    as_kafka: ControlSite, impatient: None
) -> None:
    """Records were deleted up to where only the leader's active segment has any."""
    site = as_kafka
    create_on(site, "cut", [1, 2], TIERED)
    alter(site, ConfigResource.Type.BROKER, "3", FLAG, "true")
    site.produce("cut", 410)
    site.wait_until("something is remote", lambda: (site.partitions("cut")[0]["latest_tiered_offset"] or 0) > 0)
    into_active = TopicPartition("cut", 0, 405)
    site.admin.delete_records([into_active])[TopicPartition("cut", 0)].result(30)

    def cut() -> bool:
        row = site.partitions("cut")[0]
        return bool(row["log_start_offset"] == row["local_log_start_offset"] == 405)

    site.wait_until("only the active segment is left", cut, timeout_s=60)
    assert reassign(site, "cut", [1, 2, 3]) == 0
    stuck = opens(site, "follower-stuck", "cut")
    assert stuck["evidence"]["rule"] == "never-joins-nothing-remote"
    assert stuck["action"] == f"Turn {FLAG} off on broker 3; then it joins."
    alter(site, ConfigResource.Type.BROKER, "3", FLAG, None)
    closes(site, stuck)
    site.wait_until("it has joined", lambda: sorted(site.partitions("cut")[0]["isr"]) == [1, 2, 3])


def a_group_that_reads_what_is_remote_is_seen_until_it_has_caught_up(site: ControlSite) -> None:
    """The whole of `orders` is in the remote tier."""
    consumer = Consumer(
        {"bootstrap.servers": site.cluster.bootstrap, "group.id": "slow", "enable.auto.commit": "false"}
    )
    try:
        consumer.subscribe(["orders"])
        site.wait_until("it has its partition", lambda: consumer.poll(0.1) is None and bool(consumer.assignment()))
        offsets = iter(range(1, 400))

        def reads_on() -> list[dict[str, Any]]:
            consumer.commit(offsets=[TopicPartition("orders", 0, next(offsets))], asynchronous=False)
            return findings_of(site, "remote-read-storm")

        (storm,) = site.wait_until("remote-read-storm opens", reads_on, timeout_s=60)
        assert (storm["object"], storm["severity"], storm["evidence"]["source"]) == ("group slow", "notice", "inferred")
        (reads,) = site.get("/v1/remote-readers")["items"]
        assert (reads["group"], reads["local_log_start_offset"]) == ("slow", 400)
        assert reads["offsets_left"] == 400 - reads["committed_offset"]
        numbers = site.get("/v1/brokers")["numbers"]
        assert {line["values"]["reader_queue"] for line in numbers} == {None}
        assert all("--broker-metrics" in line["error"] for line in numbers)
        consumer.commit(offsets=[TopicPartition("orders", 0, 400)], asynchronous=False)
        closes(site, storm)
    finally:
        consumer.close()


@breaks("thin-leader")
def test_a_leader_with_little_local_data_is_thin_until_leadership_moves_back(own: ControlSite) -> None:
    create_on(own, "thin", [1, 2], {**TIERED, "local.retention.bytes": "250000"})
    own.produce("thin", 4_000)
    own.wait_until_quiet("thin")
    alter(own, ConfigResource.Type.BROKER, "3", FLAG, "true")
    assert reassign(own, "thin", [3, 1, 2]) == 0
    own.wait_until("it has joined", lambda: sorted(own.partitions("thin")[0]["isr"]) == [1, 2, 3])
    elect(own, "thin")
    thin = opens(own, "thin-leader", "thin")
    assert (thin["object"], thin["broker_id"]) == ("thin-0", 3)
    assert thin["evidence"]["leader_records"] * 2 < thin["evidence"]["best_records"]
    assert reassign(own, "thin", [1, 2, 3]) == 0
    elect(own, "thin")
    closes(own, thin)
    alter(own, ConfigResource.Type.BROKER, "3", FLAG, None)


def elect(site: ControlSite, topic: str) -> None:
    """The first replica leads."""
    topic_partition = m.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])
    request = m.ElectLeadersRequest(election_type=0, topic_partitions=[topic_partition], timeout_ms=30_000)

    def led_by_first() -> bool:
        ask(site.cluster.layout.ports[1], request, 2, m.ElectLeadersResponse)
        row = site.partitions(topic)[0]
        return bool(row["leader"] == row["replicas"][0])

    site.wait_until("the first replica leads", led_by_first)


@breaks("throttle-left")
def test_a_throttle_that_no_move_uses_is_found_until_it_is_removed(own: ControlSite, impatient: None) -> None:
    create_on(own, "limited", [1, 2])
    name = "leader.replication.throttled.replicas"
    alter(own, ConfigResource.Type.TOPIC, "limited", name, "*")
    left = opens(own, "throttle-left")
    assert left["object"] == "cluster"
    throttle = {"name": name, "value": "*", "topic": "limited", "broker_id": None}
    assert left["evidence"]["throttles"] == [throttle]
    alter(own, ConfigResource.Type.TOPIC, "limited", name, None)
    closes(own, left)


@breaks("delete-lag")
def test_a_deletion_that_the_remote_tier_does_not_do_is_overdue(own: ControlSite, impatient: None) -> None:
    create_on(own, "late", [1, 2], TIERED)
    own.produce("late", 1_500)
    own.wait_until_quiet("late")
    with broken_remote(own):
        own.admin.delete_records([TopicPartition("late", 0, 500)])[TopicPartition("late", 0)].result(30)

        def fed() -> list[dict[str, Any]]:
            feed_ledger(own)
            return findings_of(own, "delete-lag", "late")

        (late,) = own.wait_until("delete-lag opens", fed, timeout_s=60)
        assert late["evidence"]["age_ms"] > 1_000

    def is_closed() -> bool:
        feed_ledger(own)
        return not findings_of(own, "delete-lag", "late")

    own.wait_until("the deletions end", is_closed, timeout_s=60)


@breaks("segment-leak")
def test_segments_that_unclean_elections_leave_behind_are_found_until_their_offsets_are_deleted(
    own: ControlSite, impatient: None
) -> None:
    create_on(own, "leaky", [2, 3], {**TIERED, "unclean.leader.election.enable": "true"})
    own.produce("leaky", 100)  # both have these: broker 3's chain of epochs begins before it
    own.wait_until_quiet("leaky")
    own.cluster.stop_broker(3)
    own.produce("leaky", 1_500)  # only broker 2 has these, and copies them
    own.wait_until("segments are copied", lambda: own.partitions("leaky")[0]["latest_tiered_offset"] > 900)
    own.cluster.kill_broker(2)
    own.cluster.start_broker(3)
    own.wait_until("broker 3 leads, uncleanly", lambda: own.partitions("leaky")[0]["leader"] == 3)
    own.produce("leaky", 1_000)  # a segment ends after 30 batches, sooner where their times differ

    def fed() -> list[dict[str, Any]]:
        feed_ledger(own)
        return findings_of(own, "segment-leak", "leaky")

    (leak,) = own.wait_until("segment-leak opens", fed, timeout_s=60)
    assert (leak["object"], leak["severity"]) == ("leaky-0", "warning")
    assert leak["evidence"]["outside"] >= 2
    assert leak["evidence"]["bytes"] > 0
    own.wait_until("its own first segment is copied", lambda: own.partitions("leaky")[0]["latest_tiered_offset"] > 300)
    own.cluster.kill_broker(3)
    own.cluster.start_broker(2)
    own.wait_until("broker 2 leads again, uncleanly", lambda: own.partitions("leaky")[0]["leader"] == 2)

    def hidden() -> list[dict[str, Any]]:
        return [finding for finding in fed() if finding["evidence"]["orphaned"]]

    # Broker 3's first segment took the place of broker 2's, which alone holds some of what broker 2 leads with.
    (twice,) = own.wait_until("a segment is orphaned", hidden, timeout_s=60)
    assert "replaced in the index of its epoch by a later copy" in twice["evidence"]["sentence"]
    assert "delete records" not in twice["action"].lower()
    own.produce("leaky", 1_500)
    own.admin.delete_records([TopicPartition("leaky", 0, -1)])[TopicPartition("leaky", 0)].result(30)

    def is_closed() -> bool:
        feed_ledger(own)
        return not findings_of(own, "segment-leak", "leaky")

    own.wait_until("the segments are deleted", is_closed, timeout_s=60)


def test_every_rule_has_its_runbook_and_every_runbook_its_rule() -> None:
    pages = {path.name.removesuffix(".md") for path in (REPOSITORY / "docs" / "runbooks").glob("*.md")}
    assert pages - {"README"} == set(SLUGS)
    for slug in SLUGS:
        text = (REPOSITORY / runbook(slug)).read_text()
        assert text.startswith(f"# {slug}: "), slug


def test_at_least_ten_incidents_are_raised_and_cleared_by_breaking_a_cluster() -> None:
    assert set(REALLY_BROKEN) <= INCIDENTS
    assert len(REALLY_BROKEN) >= 10, sorted(REALLY_BROKEN)
