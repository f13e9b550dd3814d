"""A person at the dashboard of a running `ebbline up`: what they press and type is counted, and so is their time.

The counts of each journey stand in docs/journeys.md; a journey that needs more of them than its line there fails.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from playwright.sync_api import Locator, Page, expect

from tests import browser
from tests.e2e.up_process import UpProcess

TABLE: Final = Path(__file__).resolve().parents[2] / "docs" / "journeys.md"
# Playwright's own limit of 5 s is short for a machine that runs other things too.
expect.set_options(timeout=browser.WAIT_MS)
# A control is off while the data is old, which it is for minutes on a machine that has no time for the observer.
ENABLED_MS: Final = 300_000
Record = Callable[[str, object], None]


@dataclass(slots=True)
class Journey:
    """One task of a person, from the URL to its answer. ``name`` is that of its line in the table."""

    name: str
    page: Page
    clicks: int = 0
    fields: int = 0
    began_s: float = field(default_factory=time.monotonic)

    def click(self, what: Locator) -> None:
        self.clicks += 1
        what.click(timeout=ENABLED_MS)

    def fill(self, what: Locator, text: str) -> None:
        self.fields += 1
        what.fill(text)

    def enter(self, what: Locator, text: str) -> None:
        """Types it and ends the entry, as text fields want that filter when they are left."""
        self.fill(what, text)
        what.press("Enter")

    def go(self, title: str) -> None:
        """To a page by the top navigation."""
        self.click(self.page.get_by_role("link", name=title, exact=True).first)
        expect(self.page.locator(".eb-title h1").get_by_text(title, exact=True)).to_be_visible()
        browser.wait_until_drawn(self.page)

    def confirm(self, verb: str, reason: str, *, double: bool = False) -> None:
        """The dialog of a change: reason, typed name, and the button that acts, which is off before both are there.

        ``double``: it is pressed twice, which counts as one click.
        """
        dialog = self.page.get_by_role("dialog")
        act = dialog.get_by_role("button", name=verb, exact=True)
        expect(act).to_be_disabled()
        self.fill(dialog.get_by_label("Reason"), reason)
        name = dialog.get_by_label(re.compile("^Type .* to confirm"))
        cluster = (name.get_attribute("aria-label") or "").removeprefix("Type ").removesuffix(" to confirm")
        self.fill(name, cluster)
        expect(act).to_be_enabled()
        if double:
            self.clicks += 1
            act.dblclick(timeout=ENABLED_MS)
        else:
            self.click(act)
        expect(dialog).to_be_hidden()

    def answered(self, record: Record) -> None:
        """The answer is on the screen: notes what it took, and holds the counts against the table."""
        record("clicks", self.clicks)
        record("fields", self.fields)
        record("seconds", round(time.monotonic() - self.began_s, 1))
        assert (self.clicks, self.fields) == counts()[self.name], f"{self.name}: clicks and fields of docs/journeys.md"


def counts() -> dict[str, tuple[int, int]]:
    """Clicks and fields of each journey, as docs/journeys.md has them."""
    lines = re.findall(r"^\| ([^|]+?) \|[^|]*\| (\d+) \| (\d+) \|", TABLE.read_text(), flags=re.MULTILINE)
    return {name: (int(clicks), int(fields)) for name, clicks, fields in lines}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The page of one person, and the cluster behind it."""

    up: UpProcess
    page: Page
    complaints: browser.Complaints

    def open(self, path: str) -> Page:
        """The page at ``path``, drawn."""
        self.page.goto(f"{self.up.app_url}{path}")
        browser.wait_until_drawn(self.page)
        return self.page

    def journey(self, name: str, path: str = "/") -> Journey:
        """Begins with the URL of ``path``, as from a link or a bookmark; the load is part of its time."""
        begun = Journey(name, self.page)
        self.open(path)
        return begun

    def is_quiet(self) -> None:
        """Nothing is in the browser's console, and no page shows an error."""
        assert self.complaints.texts == []
        assert self.page.get_by_test_id("stException").count() == 0
