"""The dashboard of a real `ebbline up` in a browser: the short journeys of an operator, and the pipeline stopped."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from playwright.sync_api import expect

from app.components.shared.pulse import VISIBLE_MS
from backend.control.lab.demo.topics import INVOICES, ORDERS
from tests import browser
from tests.e2e.journey import Dashboard, Journey, Record
from tests.e2e.up_process import UpProcess
from tests.screenshots import remote_and_local
from tests.waiting import wait_until

FLAG = "follower.fetch.last.tiered.offset.enable"
# ui.md promises that a stopped process shows within this time.
SEEN_WITHIN_MS = 15_000
pytestmark = pytest.mark.skipif(browser.executable() is None, reason=browser.NO_BROWSER)


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with UpProcess(tmp_path_factory.mktemp("up") / "data") as up, browser.browser() as started:
        # The burst of the demo's history and of Spark's start is over then.
        wait_until("a partition with a remote part", lambda: remote_and_local(up), 180)
        page = up.page(started)
        yield Dashboard(up, page, browser.Complaints(page))


@pytest.fixture(autouse=True)
def quiet_console(dashboard: Dashboard) -> Iterator[None]:
    """No test may leave an error in the browser's console or on the page."""
    yield
    dashboard.is_quiet()


def effective(up: UpProcess) -> dict[int, str | None]:
    """The flag on every broker, as confluent-kafka gets it from the brokers themselves."""
    admin = AdminClient({"bootstrap.servers": up.bootstrap, "log_level": 0})
    resources = {n: ConfigResource(ConfigResource.Type.BROKER, str(n)) for n in range(1, up.brokers + 1)}
    answers = {n: admin.describe_configs([resource])[resource] for n, resource in resources.items()}
    return {n: answer.result(30)[FLAG].value for n, answer in answers.items()}


def test_a_living_cluster_is_there_and_overview_says_how_it_is(dashboard: Dashboard, record_property: Record) -> None:
    journey = dashboard.journey("Is tiering healthy?")
    page = dashboard.page
    expect(page.get_by_text("5 tiered partitions in 3 topics")).to_be_visible()
    expect(page.get_by_text(re.compile(r"Live · \d"))).to_be_visible()
    expect(page.get_by_text("3/3 brokers")).to_be_visible()
    for number in range(3):
        expect(page.locator(".st-key-card-behind").get_by_text(f"{ORDERS.name}-{number}").first).to_be_visible()
    answer = re.compile(r"Nothing needs attention\. Checked 1\d\d partitions|worst first")
    expect(page.locator(".st-key-card-attention")).to_contain_text(answer)
    journey.answered(record_property)


def test_why_a_local_log_is_long_is_said_and_its_segments_are_shown(
    dashboard: Dashboard, record_property: Record
) -> None:
    row = remote_and_local(dashboard.up)
    assert row is not None
    name = f"{ORDERS.name}-{row['partition']}"
    page = dashboard.page
    journey = dashboard.journey("Why is this local log so long?")
    journey.go("Partitions")
    expect(page.get_by_text("Why local data is not deleted")).to_be_visible()
    expect(page.locator(".st-key-card-selected .eb-lines:not(.eb-durability)")).to_contain_text(re.compile(r"\d"))
    journey.click(page.get_by_role("link", name="Open partition"))
    expect(page.locator(".st-key-card-hero .eb-ranges")).to_be_visible()
    expect(page.get_by_text("in lineage").first).to_be_visible()
    journey.answered(record_property)

    page = dashboard.open(f"/partition?tp={name}")
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    drawn = page.locator(".st-key-card-hero .eb-ranges")
    said = wait_until("the ranges", lambda: drawn.get_attribute("aria-label"), 30) or ""
    remote, leader = said.split(". ")[1:3]
    first_remote = int(re.findall(r"remote (\d+) to \d+", remote)[0])
    first_local = min(int(start) for start in re.findall(r" (\d+) to \d+", leader))
    assert first_remote == row["log_start_offset"]
    assert first_local >= row["local_log_start_offset"] > first_remote, said
    expect(drawn.locator(".eb-block-remote").first).to_be_visible()


def test_the_flag_goes_on_through_the_dialog_and_every_broker_has_it(
    dashboard: Dashboard, record_property: Record
) -> None:
    assert set(effective(dashboard.up).values()) == {"false"}
    journey = dashboard.journey("Turn the flag on")
    journey.go("Config")
    page = dashboard.page
    expect(page.get_by_text("Off everywhere")).to_be_visible()
    journey.click(page.get_by_role("button", name="Change cluster default…"))
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(f"+ {FLAG} = true (cluster default, no restart)")).to_be_visible()
    expect(dialog.get_by_text("Every broker answers.")).to_be_visible()
    dialog.get_by_label("Reason").fill("seen in a browser")
    dialog.get_by_label("Type demo to confirm").fill("dem")
    expect(dialog.get_by_role("button", name="Turn on")).to_be_disabled()
    assert set(effective(dashboard.up).values()) == {"false"}
    journey.confirm("Turn on", "seen in a browser")
    changes = page.locator(".st-key-changes").first
    expect(changes).to_contain_text(re.compile(r"not set → true.*verified.*seen in a browser"))
    expect(page.get_by_text("On everywhere")).to_be_visible()
    assert set(effective(dashboard.up).values()) == {"true"}

    journey.answered(record_property)

    way_back = Journey("Turn it off again", page)
    way_back.click(page.get_by_role("button", name="Revert…").first)
    way_back.confirm("Revert", "back")
    expect(changes).to_contain_text(re.compile(r"true → not set.*verified.*back"))
    expect(page.get_by_text("Off everywhere")).to_be_visible()
    assert set(effective(dashboard.up).values()) == {"false"}
    way_back.answered(record_property)

    # No refresh of the page closes a dialog or takes anything out of it.
    page.get_by_role("button", name="Change cluster default…").click()
    dialog.get_by_label("Type demo to confirm").fill("dem")
    page.wait_for_timeout(1_500 + VISIBLE_MS)
    expect(dialog.get_by_label("Type demo to confirm")).to_have_value("dem")
    dialog.get_by_role("button", name="Keep off").click()
    expect(dialog).to_be_hidden()


def test_what_was_remote_a_while_ago_is_told(dashboard: Dashboard, record_property: Record) -> None:
    row = remote_and_local(dashboard.up)
    assert row is not None
    journey = dashboard.journey("What did remote look like then?")
    page = dashboard.page
    journey.go("Remote log")
    journey.enter(page.get_by_label("Topic, partition or segment id"), f"{ORDERS.name}-{row['partition']}")
    expect(page.get_by_text(f"{ORDERS.name}-{row['partition']}, newest event first")).to_be_visible()
    journey.enter(page.get_by_label("As of", exact=True), "1s")
    expect(page.get_by_text(re.compile(r"As of .*, computed from \d+ of \d+ stored events"))).to_be_visible()
    expect(page.get_by_text("Then and now")).to_be_visible()
    assert "at=" in page.url
    journey.answered(record_property)


def test_a_stopped_pipeline_shows_by_itself_and_goes_again_when_it_goes_on(dashboard: Dashboard) -> None:
    page = dashboard.open("/")
    down = page.get_by_text(re.compile(r"Pipeline down since"))
    wait_until("a pipeline that runs", lambda: down.count() == 0, 30)
    pid = dashboard.up.pid("pipeline")
    os.kill(pid, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        expect(down.first).to_be_visible(timeout=2 * SEEN_WITHIN_MS)
        seen_after_s = time.monotonic() - began_s
        print(f"a stopped pipeline was on the page after {seen_after_s:.1f} s")
    finally:
        os.kill(pid, signal.SIGCONT)
    expect(down).to_have_count(0, timeout=browser.WAIT_MS)
    assert dashboard.up.pid("pipeline") == pid, "it was stopped, not restarted"


def test_the_demo_has_a_paused_topic_a_remote_reader_and_a_reader_without_members(dashboard: Dashboard) -> None:
    admin = AdminClient({"bootstrap.servers": dashboard.up.bootstrap, "log_level": 0})
    resource = ConfigResource(ConfigResource.Type.TOPIC, INVOICES.name)

    def paused() -> bool:
        return bool(admin.describe_configs([resource])[resource].result(30)["remote.log.copy.disable"].value == "true")

    wait_until("copies of invoices are paused", paused, 120)
    groups = {group.group_id: group for group in admin.list_consumer_groups().result(30).valid}
    assert groups["demo-shop"].state.name == groups["demo-analytics"].state.name == "STABLE"
    assert groups["demo-audit"].state.name == "EMPTY"
    page = dashboard.open(f"/partition?tp={ORDERS.name}-0")
    expect(page.get_by_text("demo-analytics").first).to_be_visible(timeout=browser.WAIT_MS)
