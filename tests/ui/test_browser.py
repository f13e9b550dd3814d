"""Every page in a browser over the seeded trouble: nobody is shut out, nothing spills, the console is quiet.

axe-core looks for what a screen reader or a keyboard cannot use; serious and critical findings fail.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Download, Locator, Page, TimeoutError, expect

from app import links
from app.components.partition.partition_heatmap import CELLS_A_ROW, ROW_PX
from backend.store import tables as t
from backend.store.connection.database import create_engine, writing
from tests import browser
from tests.databases import new_sqlite
from tests.effort import effort
from tests.ui import seed
from tests.ui.served import Served, dashboard, seeded_dashboard
from tests.waiting import wait_until_none

Theme = Literal["light", "dark"]
HOUR_MS: Final = 3_600_000
SERIOUS: Final = ("serious", "critical")
WIDTHS: Final = (1440, 1024, 760)
# A table follows the width 0.1 s later; in a browser that is slowed down twenty times, 9 s later.
SETTLED_S: Final = 20.0
# The three whose pictures are the richest; all of them, in both themes, in the soak.
PAGES: Final = effort(("overview", "partition", "reassign"), links.NAMES)
pytestmark = pytest.mark.skipif(browser.executable() is None, reason=browser.NO_BROWSER)


@pytest.fixture
def refreshed(tmp_path: Path) -> Iterator[Served]:
    """One whose rows a test may change."""
    with seeded_dashboard(tmp_path) as result:
        yield result


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with seeded_dashboard(tmp_path_factory.mktemp("served")) as result:
        yield result


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser.browser() as started:
        yield started


def path_of(name: str) -> str:
    if name == "overview":
        return "/"
    return f"/{name}?tp=orders-7" if name == "partition" else f"/{name}"


def serious(page: Page) -> list[str]:
    """Faults that axe finds twice: while a part is drawn again, Streamlit lets it fade for a moment."""
    once = _axe(page)
    if not once:
        return []
    browser.wait_until_drawn(page)
    again = set(_axe(page))
    return [line for line in once if line in again]


def _axe(page: Page) -> list[str]:
    """Rule and place of each serious finding."""
    response: dict[str, Any] = Axe().run(page).response
    return [
        f"{violation['id']}: {node['target'][0]} {node['html'][:120]}"
        for violation in response["violations"]
        if violation["impact"] in SERIOUS
        for node in violation["nodes"][:5]
    ]


def spills(page: Page) -> list[str]:
    """Elements wider than their place: the page than the window, a card's content than the card; hidden buttons."""
    wide = int(page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth"))
    too_wide = [f"the page by {wide} px"] if wide > 0 else []
    return [*too_wide, *page.evaluate(_OVERFULL), *page.evaluate(_OUT_OF_SIGHT)]


_OVERFULL: Final = """() => [...document.querySelectorAll('[class*="st-key-card-"]')]
  .filter(card => card.scrollWidth > card.clientWidth + 1)
  .map(card => `${card.className.match(/st-key-card-\\S+/)[0]} by ${card.scrollWidth - card.clientWidth} px`)"""

# A table that scrolls sideways may hold data there, but nothing to press.
_OUT_OF_SIGHT: Final = """() => [...document.querySelectorAll('[data-testid="stMain"] button')]
  .filter(button => button.checkVisibility() && button.getBoundingClientRect().right > window.innerWidth)
  .map(button => `the button ${button.innerText}`)"""


def spilt(page: Page) -> list[str]:
    """The same in each width of a window, of what stays so."""
    lines: list[str] = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(300)
        with suppress(AssertionError):
            wait_until_none(f"{width} px wide", lambda: spills(page), SETTLED_S)
        lines += [f"{width} px wide: {spill}" for spill in spills(page)]
    return lines


@pytest.mark.parametrize("theme", effort(("light",), ("light", "dark")))
def test_no_page_shuts_anybody_out_spills_or_complains(served: Served, chromium: Browser, theme: Theme) -> None:
    page = served.page(chromium, theme=theme)
    complaints = browser.Complaints(page)
    problems: dict[str, list[str]] = {}
    for name in PAGES:
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        page.goto(served.address + path_of(name))
        browser.wait_until_drawn(page)
        if faults := serious(page) + spilt(page):
            problems[name] = faults
    assert not problems, "\n".join(f"{name}: {line}" for name, lines in problems.items() for line in lines)
    assert complaints.texts == []


# The cards that a page is opened for (ui.md calls them "first"); the Lab and Reassign have none without a backend.
FIRST: Final = {
    "overview": ("grid-overview-a", "grid-overview-b"),
    "partitions": ("grid-partitions",),
    "partition": ("card-hero", "grid-partition"),
    "remote": ("card-cycle", "card-ledger", "card-metadata", "card-debt", "card-cost"),
    "followers": ("card-phases", "grid-followers"),
    "config": ("grid-config", "card-matter"),
    "activity": ("card-timeline", "card-audit", "card-runbook"),
}


@pytest.mark.parametrize("name", effort(("partition", "remote"), tuple(FIRST)))
def test_what_a_page_is_opened_for_is_seen_without_scrolling(served: Served, chromium: Browser, name: str) -> None:
    page = served.page(chromium)
    page.goto(served.address + path_of(name))
    browser.wait_until_drawn(page)
    boxes = {key: page.locator(f".st-key-{key}").bounding_box() for key in FIRST[name]}
    bottoms = {key: box["y"] + box["height"] for key, box in boxes.items() if box is not None}
    assert set(bottoms) == set(FIRST[name])
    assert max(bottoms.values()) <= browser.HEIGHT, bottoms
    page.context.close()


LONG: Final = "x" * 249
# The names of topics are Kafka's; those of clusters, people and reasons are anything.
EVIL: Final = "<img src=x onerror=alert(1)>💥\u202e"


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("long")
    url = new_sqlite(folder / "ebbline.db")
    seed.seed(url, time.time_ns() // 1_000_000, trouble=True, interval_ms=HOUR_MS)
    engine = create_engine(url)
    with writing(engine) as connection:
        for table in (t.topic, t.partition_current, t.replica_current, t.remote_partition, t.segment):
            connection.execute(table.update().where(table.c.topic == "orders").values(topic=LONG))
        kept = {"name": f"{LONG[:210]}-0.{'ab' * 16}-stray", "size_bytes": 1, "since_ms": 0, "reason": EVIL + LONG}
        directory = {"path": f"/{LONG}", "set_aside_count": 1, "set_aside_bytes": 1, "set_aside": [kept]}
        connection.execute(t.broker.update().values(log_dirs=[directory]))
        connection.execute(t.cluster.update().values(name=EVIL))
        connection.execute(t.audit.update().values(actor=EVIL, reason=EVIL + LONG))
        connection.execute(t.operation.update().values(author=EVIL, reason=EVIL + LONG))
    engine.dispose()
    with dashboard(url, folder) as result:
        yield result


NAMED: Final = (
    "/",
    f"/partitions?selected={LONG}-7",
    f"/partition?tp={LONG}-7",
    f"/remote?q={LONG}-7",
    f"/followers?phase=All&tp={LONG}-7",
    f"/config?section=topics&topic={LONG}",
    "/config",
    "/activity",
    "/config?section=brokers",
)


@pytest.mark.parametrize("path", effort(NAMED[3:5], NAMED), ids=lambda path: path[1:12])
def test_names_of_249_characters_and_markup_stay_in_their_cards(
    long_names: Served, chromium: Browser, path: str
) -> None:
    page = long_names.page(chromium)
    complaints = browser.Complaints(page)
    page.goto(long_names.address + path)
    browser.wait_until_drawn(page)
    assert spilt(page) == []
    assert page.locator("img[src='x']").count() == 0
    assert "\u202e" not in page.locator("[data-testid='stHtml'], .stHtml").all_inner_texts().__repr__()
    assert complaints.texts == []
    page.context.close()


def test_a_refresh_keeps_what_is_chosen_and_takes_the_news(refreshed: Served, chromium: Browser) -> None:
    page = refreshed.page(chromium)
    page.goto(f"{refreshed.address}/partitions?q=orders")
    browser.wait_until_drawn(page)
    page.get_by_role("combobox", name="Selected partition").click()
    page.get_by_role("option", name="orders-22", exact=True).click()
    expect(page).to_have_url(re.compile("selected=orders-22"))
    news = t.partition_current.c
    engine = create_engine(refreshed.database_url)
    with writing(engine) as connection:
        # Another one is first in the list now.
        worst = (news.topic == "orders") & (news.partition == 30)
        pending = {"earliest_pending_upload_offset": news.local_log_start_offset}
        connection.execute(t.partition_current.update().where(worst).values(pending))
        there = (news.topic == "orders") & (news.partition == 22)
        connection.execute(t.partition_current.update().where(there).values(leader=4))
        table = t.process_status
        connection.execute(table.update().values(data_version=table.c.data_version + 1))
    engine.dispose()
    selected = page.locator(".st-key-card-selected")
    expect(selected).to_contain_text("Leader b4", timeout=1000 * SETTLED_S)
    # While a part is drawn again, the old list can still be there beside the new one.
    chosen = page.get_by_role("combobox", name="Selected partition")
    expect(chosen.last).to_have_value("orders-22")
    expect(chosen).to_have_count(1)
    expect(page).to_have_url(re.compile("q=orders&selected=orders-22|selected=orders-22&q=orders"))
    page.context.close()


# Streamlit puts a new chart in the place of the old one whenever its data changes, here with each refresh. A press at
# that moment is lost, of a person's mouse as well, and the file never comes.
_PRESSES_MAX: Final = 10
_DOWNLOAD_MS: Final = 20_000


def download(page: Page, button: Locator, over: Locator | None = None) -> Download:
    """The file behind a button, which shows while the mouse is over another element; pressed again if that was lost."""
    for _ in range(_PRESSES_MAX):
        # After a wait in vain `value` raises as well.
        with suppress(TimeoutError):
            with page.expect_download(timeout=_DOWNLOAD_MS) as begun:
                if over is not None:
                    over.hover()
                button.click(timeout=_DOWNLOAD_MS)
            return begun.value
    raise AssertionError(f"no file after {_PRESSES_MAX} presses of {button}")


def test_a_chart_and_its_table_are_taken_away_as_files(served: Served, chromium: Browser) -> None:
    page = served.page(chromium)
    page.goto(served.address + "/")
    browser.wait_until_drawn(page)
    card = page.locator(".st-key-card-keeping-up")
    # While a part is drawn again, the old chart can still be there beside the new one.
    chart = card.get_by_test_id("stPlotlyChart").filter(visible=True).last
    picture = download(page, chart.get_by_role("button", name="Download plot as a PNG"), over=chart)
    assert picture.path().read_bytes().startswith(b"\x89PNG")
    card.get_by_text("View as table").click()
    for kind, begins in (("CSV", b"\xef\xbb\xbftime,"), ("Parquet", b"PAR1")):
        file = download(page, page.get_by_role("button", name=re.compile(rf"\b{kind}$")))
        assert file.suggested_filename.endswith(f".{kind.lower()}")
        assert file.path().read_bytes().startswith(begins)
    page.context.close()


# How many runs of its parts the page has begun.
_WATCH_RUNS: Final = """() => {
  window.ebblineRuns = 0;
  const app = document.querySelector('[data-testid="stApp"]');
  let last = null;
  new MutationObserver(() => {
    const state = app.dataset.testScriptState;
    if (state === 'running' && last !== 'running') window.ebblineRuns += 1;
    last = state;
  }).observe(app, { attributes: true });
}"""


def test_a_file_is_there_though_the_page_has_drawn_itself_again(served: Served, chromium: Browser) -> None:
    """A browser on a busy machine asks for it late."""
    page = served.page(chromium)
    page.goto(served.address + "/")
    browser.wait_until_drawn(page)
    page.evaluate(_WATCH_RUNS)
    page.locator(".st-key-card-keeping-up").get_by_text("View as table").click()
    file = download(page, page.get_by_role("button", name=re.compile(r"\bCSV$")))
    runs = page.evaluate("() => window.ebblineRuns")
    page.wait_for_function("runs => window.ebblineRuns >= runs + 3", arg=runs)
    answer = page.context.request.get(file.url)
    assert (answer.status, answer.body()[:8]) == (200, b"\xef\xbb\xbftime,")
    page.context.close()


def test_a_cell_of_the_map_opens_its_partition_though_no_point_is_drawn_on_it(
    chromium: Browser, served: Served
) -> None:
    page = served.page(chromium)
    page.goto(f"{served.address}/partitions?view=Heatmap&q=orders")
    browser.wait_until_drawn(page)
    plot = page.locator(".stPlotlyChart .nsewdrag").first.bounding_box()
    assert plot is not None
    cell = plot["width"] / CELLS_A_ROW
    page.mouse.move(plot["x"] + 7.5 * cell, plot["y"] + ROW_PX / 2)
    page.locator(".hoverlayer .hovertext").get_by_text("orders-7 ").wait_for()
    page.mouse.click(plot["x"] + 7.5 * cell, plot["y"] + ROW_PX / 2)
    page.wait_for_url("**/partition?tp=orders-7*")
    page.context.close()
