"""The journeys that change or wait for more than a minute, on a running `ebbline up` in a browser; in the soak.

The short ones are in test_dashboard.py, that of an attached Apache Kafka in test_attach.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect

from backend.control.findings.catalogue import SLUGS
from tests import browser
from tests.e2e.journey import Dashboard, Record
from tests.e2e.up_process import UpProcess
from tests.waiting import wait_until

MOVED = "journey.moved"
RECORDS = 2_000
# A race of 64 MB takes a minute, and twenty on a machine that runs other things too.
LONG_MS = 1_800_000
pytestmark = [
    pytest.mark.skipif(browser.executable() is None, reason=browser.NO_BROWSER),
    pytest.mark.timeout(2 * LONG_MS / 1000),
]


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with UpProcess(tmp_path_factory.mktemp("up") / "data") as up, browser.browser() as started:
        wait_until("the topic to move", lambda: _created(up), 300)
        producer = Producer({"bootstrap.servers": up.bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(MOVED, b"v" * 1000, partition=number % 2)
        assert producer.flush(120) == 0
        page = up.page(started)
        yield Dashboard(up, page, browser.Complaints(page))


def _created(up: UpProcess) -> bool:
    """The topic is there; False: on a busy machine no controller had time for it."""
    admin = AdminClient({"bootstrap.servers": up.bootstrap, "log_level": 0})
    topic = NewTopic(MOVED, num_partitions=2, replica_assignment=[[1], [2]])
    try:
        admin.create_topics([topic])[MOVED].result(60)
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:  # by the attempt that was given up
            return True
        if code in (KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT):
            return False
        raise
    return True


def operator(up: UpProcess) -> httpx.Client:
    """The control API for the operator."""
    return httpx.Client(base_url=up.api_url, headers={"Authorization": f"Bearer {up.operator_token}"}, timeout=60)


def verified(up: UpProcess, action: str) -> list[dict[str, str]]:
    """The audit's entries that say that such an action was seen to be done."""
    with operator(up) as api:
        items = api.get("/v1/audit?limit=100").json()["items"]
    return [entry for entry in items if (entry["action"], entry["result"]) == (action, "verified")]


def replicas(up: UpProcess) -> list[list[int]]:
    """Of the moved topic's partitions, as confluent-kafka gets them from the brokers themselves."""
    admin = AdminClient({"bootstrap.servers": up.bootstrap, "log_level": 0})
    partitions = admin.list_topics(MOVED, timeout=30).topics[MOVED].partitions
    return [sorted(partitions[number].replicas) for number in sorted(partitions)]


def test_a_replica_is_added_to_completion_and_taken_back(dashboard: Dashboard, record_property: Record) -> None:
    journey = dashboard.journey("Add a replica")
    page = dashboard.page
    journey.go("Reassign")
    topics = page.get_by_role("combobox", name=re.compile("Topics"))
    wait_until("the topic is sampled", lambda: page.reload() and _offered(dashboard, MOVED), 180)
    journey.click(topics)
    journey.click(page.get_by_role("option", name=MOVED, exact=True))
    page.keyboard.press("Escape")
    journey.click(page.get_by_role("combobox", name=re.compile("On brokers")))
    journey.click(page.get_by_role("option", name="3", exact=True))
    page.keyboard.press("Escape")
    journey.click(page.get_by_role("button", name="Review", exact=True))
    expect(page.get_by_text("What has to be copied")).to_be_visible()
    expect(page.get_by_text("Nothing has been changed")).to_be_visible()
    assert replicas(dashboard.up) == [[1], [2]]
    # By their role: Streamlit draws a button with a hint twice, once hidden.
    journey.click(page.get_by_role("button", name="Move 2 replicas…", exact=True))
    journey.confirm("Move 2 replicas", "more copies")
    rows = page.locator("[class*='st-key-plan-row-']")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("verified", timeout=LONG_MS)
    wait_until("every broker tells the new lists", lambda: replicas(dashboard.up) == [[1, 3], [2, 3]])
    journey.answered(record_property)

    way_back = dashboard.journey("Take the replica back", "/reassign")
    way_back.click(page.get_by_role("button", name="Revert…").first)
    # As people do who are used to icons on a desk.
    way_back.confirm("Revert", "it was a trial", double=True)
    wait_until("the replicas of before", lambda: replicas(dashboard.up) == [[1], [2]], LONG_MS / 1000)
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("verified", timeout=LONG_MS)
    way_back.answered(record_property)
    ends = wait_until("the audit has the end", lambda: verified(dashboard.up, "revert reassign"))
    assert len(ends) == 1, "a double click acts once"
    dashboard.is_quiet()


def _offered(dashboard: Dashboard, topic: str) -> bool:
    """The list of topics has it; left closed."""
    browser.wait_until_drawn(dashboard.page)
    dashboard.page.get_by_role("combobox", name=re.compile("Topics")).click()
    dashboard.page.get_by_role("option").first.wait_for()
    is_offered = dashboard.page.get_by_role("option", name=topic, exact=True).count() == 1
    dashboard.page.keyboard.press("Escape")
    return is_offered


def test_the_race_is_run_stepped_through_and_taken_away(dashboard: Dashboard, record_property: Record) -> None:
    journey = dashboard.journey("Show the bootstrap")
    page = dashboard.page
    journey.go("Lab")
    journey.click(page.get_by_role("combobox", name=re.compile("Local log of the leader")))
    journey.click(page.get_by_role("option", name="64 MB", exact=True))
    journey.click(page.get_by_role("button", name="Start race"))
    expect(page.get_by_text(re.compile(r"With the flag on the replica copied \d+ % of the bytes"))).to_be_visible(
        timeout=LONG_MS
    )
    journey.answered(record_property)
    with page.expect_download() as report:
        page.locator(".st-key-download-race button").click()
    text = report.value.path().read_text()
    assert "Bootstrap race" in text
    assert "<script" not in text

    replay = dashboard.journey("Step through the race", "/lab")
    replay.click(page.get_by_role("button", name=re.compile(r"\bReset$")))
    expect(page.get_by_text(re.compile(r"step 0 of \d+"))).to_be_visible()
    replay.click(page.get_by_role("button", name=re.compile(r"\bStep$")))
    expect(page.get_by_text(re.compile(r"step 1 of \d+"))).to_be_visible()
    expect(page).to_have_url(re.compile(r"step=1\b"))
    replay.answered(record_property)
    dashboard.is_quiet()


def test_the_alert_rules_are_taken_away_as_a_file_for_prometheus(dashboard: Dashboard, record_property: Record) -> None:
    journey = dashboard.journey("Take the alert rules")
    journey.go("Activity")
    with dashboard.page.expect_download() as taken:
        journey.click(dashboard.page.get_by_role("button", name="Download Prometheus rules"))
    rules = taken.value.path().read_text()
    assert "groups:" in rules, rules[:200]
    assert rules.count("alert:") >= len(SLUGS)
    assert "runbook" in rules
    journey.answered(record_property)
    dashboard.is_quiet()
