"""Messages as each kind of receiver gets them: JSON with its signature, Alertmanager's alerts, texts for people."""

from __future__ import annotations

import hashlib
import hmac
import json

from backend.control.alerts.alert_texts import text_of
from backend.control.alerts.alertmanager_body import alertmanager_body
from backend.control.alerts.notices import NoticeEvent
from backend.control.alerts.page_links import finding_link, runbook_link
from backend.control.alerts.receiver_queue import Delivery
from backend.control.alerts.webhook_body import delivery_id, signature, webhook_body
from tests.unit.control.alerts.sample_notices import AT_MS, CLUSTER, PUBLIC, notice

STORM = Delivery(
    (*(notice(n) for n in range(12)), notice(20, slug="copy-slow", severity="warning"),
     notice(30, event=NoticeEvent.CLOSED)),
    digest=True,
)  # fmt: skip


def test_the_webhook_s_first_version_has_all_that_it_had_and_cause_explains_and_link() -> None:
    explains = {"count": 2, "by_slug": {"offline": 2}, "first": ["t-1", "t-2"]}
    cause = notice(evidence={"sentence": "Silent.", "explains": explains}, cause=("broker-away", "broker 3"))
    body = json.loads(webhook_body(Delivery((cause,)), PUBLIC))
    assert (body["version"], body["event"], body["at_ms"]) == (1, "opened", AT_MS)
    assert (body["cluster_id"], body["cluster_name"]) == ("id", "demo")
    finding = body["finding"]
    before = {
        "slug",
        "object",
        "severity",
        "sentence",
        "action",
        "evidence",
        "topic",
        "partition",
        "broker_id",
        "runbook",
    }
    assert before <= finding.keys()
    assert finding["runbook"] == "docs/runbooks/offline.md"
    assert (finding["explains"], finding["cause"]) == (explains, {"slug": "broker-away", "object": "broker 3"})
    assert finding["link"] == "https://ebbline.example.org/partition?cluster=id&tp=t-0"
    plain = json.loads(webhook_body(Delivery((notice(),)), CLUSTER))["finding"]
    assert (plain["explains"], plain["cause"], plain["link"]) == (None, None, None)


def test_a_digest_counts_by_event_severity_and_rule_and_names_ten() -> None:
    digest = json.loads(webhook_body(STORM, CLUSTER))["digest"]
    assert digest["number"] == 14
    assert digest["counts"] == [
        {"event": "opened", "severity": "critical", "slug": "offline", "number": 12},
        {"event": "opened", "severity": "warning", "slug": "copy-slow", "number": 1},
        {"event": "closed", "severity": "critical", "slug": "offline", "number": 1},
    ]
    assert [finding["object"] for finding in digest["first"]] == [f"t-{n}" for n in range(10)]


def test_the_signature_is_of_timestamp_and_body() -> None:
    body = b'{"version": 1}'
    expected = hmac.new(b"secret", b"1800000000." + body, hashlib.sha256).hexdigest()
    assert signature(b"secret", 1_800_000_000, body) == f"v1={expected}"
    assert signature(b"secret", 1_800_000_001, body) != signature(b"secret", 1_800_000_000, body)
    assert signature(b"other", 1_800_000_000, body) != signature(b"secret", 1_800_000_000, body)


def test_a_message_has_the_same_number_from_try_to_try_and_from_process_to_process() -> None:
    number = delivery_id(Delivery((notice(),)), "id", "ops")
    assert len(number) == 32
    assert number == delivery_id(Delivery((notice(evidence={"sentence": "Later."}),)), "id", "ops")
    others = [
        delivery_id(Delivery((notice(event=NoticeEvent.CLOSED),)), "id", "ops"),
        delivery_id(Delivery((notice(opened_ms=AT_MS + 1),)), "id", "ops"),
        delivery_id(Delivery((notice(),)), "id", "other"),
    ]
    assert len({number, *others}) == 4


def test_alertmanager_gets_labels_annotations_and_times() -> None:
    [alert] = alertmanager_body([notice(broker_id=3)], {}, PUBLIC)
    assert alert["labels"] == {
        "alertname": "offline",
        "severity": "critical",
        "cluster": "demo",
        "object": "t-0",
        "topic": "t",
        "partition": "0",
        "broker": "3",
    }
    assert alert["annotations"]["summary"] == "No leader: t-0"
    assert alert["annotations"]["description"] == "Nobody can read or write it. Start broker 3."
    assert alert["annotations"]["runbook_url"] == "https://ebbline.example.org/activity?runbook=offline"
    assert (alert["startsAt"], "endsAt" in alert) == ("2027-01-15T08:00:00.000Z", False)
    [ended] = alertmanager_body([notice(event=NoticeEvent.CLOSED, at_ms=AT_MS + 5_000)], {}, CLUSTER)
    assert ended["endsAt"] == "2027-01-15T08:00:05.000Z"
    assert "generatorURL" not in ended


def test_of_a_changed_severity_the_former_alert_ends() -> None:
    worse = notice(event=NoticeEvent.CHANGED, at_ms=AT_MS + 1_000)
    former, now = alertmanager_body([worse], {worse.key: "warning"}, CLUSTER)
    assert (former["labels"]["severity"], "endsAt" in former) == ("warning", True)
    assert (now["labels"]["severity"], "endsAt" in now) == ("critical", False)


def test_an_end_is_never_before_the_start_though_the_clock_was_set_back() -> None:
    [alert] = alertmanager_body([notice(event=NoticeEvent.CLOSED, at_ms=AT_MS - 3_600_000)], {}, CLUSTER)
    assert alert["endsAt"] > alert["startsAt"]


def test_a_person_reads_what_is_wrong_what_to_do_and_where() -> None:
    text = text_of(Delivery((notice(),)), PUBLIC)
    assert text.title == "[critical] demo: No leader: t-0"
    assert text.body.splitlines() == [
        "Nobody can read or write it.",
        "Do: Start broker 3.",
        "https://ebbline.example.org/partition?cluster=id&tp=t-0",
        "https://ebbline.example.org/activity?runbook=offline",
    ]
    assert text.worst == "critical"
    ended = text_of(Delivery((notice(event=NoticeEvent.CLOSED),)), CLUSTER)
    assert (ended.title, ended.body, ended.worst) == ("[ended] demo: No leader: t-0", "It is over.", None)
    explained = text_of(Delivery((notice(event=NoticeEvent.CLOSED, cause=("broker-away", "broker 3")),)), CLUSTER)
    assert explained.body == "It is explained by broker-away of broker 3, which is open."


def test_a_person_reads_a_storm_as_one_message() -> None:
    text = text_of(STORM, CLUSTER)
    assert text.title == "[critical] demo: 13 findings opened, 1 ended"
    lines = text.body.splitlines()
    assert lines[0] == "12 × offline opened (critical)"
    assert sum(line.startswith("- ") for line in lines) == 10


def test_links_lead_nowhere_unless_somebody_has_said_the_address() -> None:
    assert finding_link(None, "id", "t", 0) is None
    assert runbook_link(None, "offline") is None
    assert finding_link("https://e.example", "id", None, None) == "https://e.example/?cluster=id"
    assert finding_link("https://e.example", "id", "a&b", 1) == "https://e.example/partition?cluster=id&tp=a%26b-1"
