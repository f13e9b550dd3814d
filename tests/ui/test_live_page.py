"""A page that is left open in a browser: what it says stays true, and its address and history are its own."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect

from app.components.shared.pulse import HIDDEN_MS, SILENT_MS, VISIBLE_MS
from backend.store import tables as t
from backend.store.connection.database import create_engine, writing
from tests import browser
from tests.ui.served import Served, seeded_dashboard

HOUR_MS: Final = 3_600_000
# A page is drawn again every 5 s; a busy machine takes a while for it.
REFRESHED_MS: Final = 20_000
pytestmark = pytest.mark.skipif(browser.executable() is None, reason=browser.NO_BROWSER)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with seeded_dashboard(tmp_path_factory.mktemp("served")) as result:
        yield result


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser.browser() as started:
        yield started


@pytest.fixture
def page(served: Served, chromium: Browser) -> Iterator[Page]:
    result = served.page(chromium)
    yield result
    result.context.close()


def change(served: Served, *statements: Any) -> None:
    """Changes rows as the observer would."""
    engine, table = create_engine(served.database_url), t.process_status
    with writing(engine) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute(table.update().values(data_version=table.c.data_version + 1))
    engine.dispose()


def opened(page: Page, served: Served, path: str) -> None:
    page.goto(served.address + path)
    browser.wait_until_drawn(page)


def refreshed(page: Page) -> None:
    """Streamlit's script puts what is bound within a popover into the address a moment after the page is drawn."""
    moment = page.locator(".eb-moment")
    before = moment.inner_text()
    expect(moment).not_to_have_text(before, timeout=REFRESHED_MS)


def settled(page: Page) -> None:
    """No run of the page's script is under way any more: what it had asked for is drawn."""
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


def test_the_heading_the_tab_and_the_time_are_of_now(served: Served, page: Page) -> None:
    opened(page, served, "/partition?tp=orders-7")
    heading = page.locator(".st-key-head-live")
    expect(heading).to_contain_text("led by broker 2")
    expect(page).to_have_title("▲ 3 · orders-7 · prod-eu · ebbline")
    moment = page.locator(".eb-moment")
    expect(moment).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$"))
    before = moment.inner_text()
    there = (t.partition_current.c.topic == "orders") & (t.partition_current.c.partition == 7)
    change(
        served,
        t.partition_current.update().where(there).values(leader=4),
        t.finding.update().where(t.finding.c.severity == "critical").values(closed_ms=1),
    )
    expect(heading).to_contain_text("led by broker 4", timeout=REFRESHED_MS)
    expect(page).not_to_have_title(re.compile("^▲"), timeout=REFRESHED_MS)
    expect(moment).not_to_have_text(before, timeout=REFRESHED_MS)
    change(
        served,
        t.partition_current.update().where(there).values(leader=2),
        t.finding.update().where(t.finding.c.severity == "critical").values(closed_ms=None),
    )


def test_range_and_zone_of_a_link_stay_from_page_to_page(served: Served, page: Page) -> None:
    opened(page, served, "/?range=6h&tz=local")
    refreshed(page)
    for name in ("Activity", "Partitions"):
        page.get_by_role("link", name=name, exact=True).first.click()
        expect(page).to_have_url(re.compile(rf"/{name.lower()}\?range=6h&tz=local$"))
        refreshed(page)


def test_one_step_back_from_a_partition_is_the_list_as_it_was(served: Served, page: Page) -> None:
    before = "/partitions?q=orders&range=6h&view=Table"
    opened(page, served, before)
    page.get_by_role("link", name="Open partition").first.click()
    expect(page).to_have_url(re.compile(r"/partition\?(range=6h&)?tp=orders-\d+"))
    browser.wait_until_drawn(page)
    page.go_back()
    expect(page).to_have_url(served.address + before)
    expect(page.get_by_role("textbox", name="Topic or partition")).to_have_value("orders")


def test_the_link_to_this_view_has_the_whole_view(served: Served, page: Page) -> None:
    view = "/partitions?q=orders&range=6h&view=Table"
    opened(page, served, view)
    page.locator(".st-key-person button").first.click()
    expect(page.locator("[data-testid=stPopoverBody] code").last).to_have_text(served.address + view)


def test_a_page_whose_server_is_silent_says_since_when(served: Served, page: Page) -> None:
    opened(page, served, "/")
    refreshed(page)
    os.kill(served.pid, signal.SIGSTOP)
    try:
        notice = page.locator("#eb-silence")
        expect(notice).to_have_text(
            re.compile(r"^▲ No answer since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: nothing here is of now\.$"),
            timeout=SILENT_MS + REFRESHED_MS,
        )
    finally:
        os.kill(served.pid, signal.SIGCONT)
    expect(notice).to_have_count(0, timeout=REFRESHED_MS)


def test_a_hidden_page_asks_once_a_minute_and_is_of_now_as_soon_as_it_is_seen(served: Served, page: Page) -> None:
    sent: list[object] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
    page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => window.ebblineHidden === true });")
    page.clock.install()
    opened(page, served, "/")
    refreshed(page)
    page.evaluate("window.ebblineHidden = true")
    settled(page)
    sent.clear()
    page.clock.run_for(HIDDEN_MS - 2 * VISIBLE_MS)
    settled(page)
    assert sent == [], "its own clock went on for fifty seconds"
    page.clock.run_for(2 * VISIBLE_MS)
    settled(page)
    assert len(sent) == 1
    moment = page.locator(".eb-moment")
    before = moment.inner_text()
    page.evaluate("window.ebblineHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
    expect(moment).not_to_have_text(before, timeout=REFRESHED_MS)
    expect(page.locator("#eb-silence")).to_have_count(0)


def test_a_page_stands_still_only_when_it_is_asked_to(served: Served, page: Page) -> None:
    opened(page, served, "/")
    page.locator(".st-key-person button").first.click()
    page.get_by_text("Stand still").click()
    expect(page.locator(".st-key-head-live")).to_contain_text("not live", timeout=REFRESHED_MS)
