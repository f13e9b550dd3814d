"""Every page in a browser over the seeded trouble: nobody is shut out, nothing spills, the console is quiet.

axe-core looks for what a screen reader or a keyboard cannot use; serious and critical findings fail.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from app import links
from tests import browser
from tests.databases import new_sqlite
from tests.effort import effort
from tests.ui import seed
from tests.ui.served import dashboard

Theme = Literal["light", "dark"]
HOUR_MS: Final = 3_600_000
SERIOUS: Final = ("serious", "critical")
WIDTHS: Final = (1440, 1024, 760)
# The three whose pictures are the richest; all of them, in both themes, in the soak.
PAGES: Final = effort(("overview", "partition", "reassign"), links.NAMES)
pytestmark = pytest.mark.skipif(browser.executable() is None, reason=browser.NO_BROWSER)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    url = new_sqlite(folder / "ebbline.db")
    seed.seed(url, time.time_ns() // 1_000_000, trouble=True, interval_ms=HOUR_MS)
    with dashboard(url, folder) as found:
        yield found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser.browser() as started:
        yield started


def path_of(name: str) -> str:
    if name == "overview":
        return "/"
    return f"/{name}?tp=orders-7" if name == "partition" else f"/{name}"


def serious(page: Page) -> list[str]:
    """What axe finds twice: while a part is drawn again, Streamlit lets it fade for a moment."""
    once = _axe(page)
    if not once:
        return []
    browser.wait_until_drawn(page)
    again = set(_axe(page))
    return [line for line in once if line in again]


def _axe(page: Page) -> list[str]:
    """Rule and place of each serious finding."""
    found: dict[str, Any] = Axe().run(page).response
    return [
        f"{one['id']}: {node['target'][0]} {node['html'][:120]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"][:5]
    ]


def spills(page: Page) -> int:
    """Pixels that the page is wider than its window."""
    return int(page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth"))


@pytest.mark.parametrize("theme", effort(("light",), ("light", "dark")))
def test_no_page_shuts_anybody_out_spills_or_complains(address: str, chromium: Browser, theme: Theme) -> None:
    page = browser.new_page(chromium, theme=theme)
    complaints = browser.Complaints(page)
    problems: dict[str, list[str]] = {}
    for name in PAGES:
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        page.goto(address + path_of(name))
        browser.wait_until_drawn(page)
        found = serious(page)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(300)
            if spills(page) > 0:
                found.append(f"{spills(page)} px wider than {width}")
        if found:
            problems[name] = found
    assert not problems, "\n".join(f"{name}: {line}" for name, lines in problems.items() for line in lines)
    assert complaints.found == []
