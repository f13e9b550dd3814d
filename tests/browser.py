"""Headless Chromium for tests and pictures: the machine's own, driven by Playwright."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from backend.data_folder.dashboard_login import KEY_ASKED_FOR_S, DashboardLogin, login_url

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_BROWSER: Final = "no Chromium on this machine: install the package chromium"
# Ten times what a machine without time takes for a page.
WAIT_MS: Final = 240_000
WIDTH, HEIGHT = 1440, 900


def executable() -> str | None:
    """Path of a Chromium; None: there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def browser(*more: str) -> Iterator[Browser]:
    """A headless Chromium, with more options of its command line. Raises FileNotFoundError when there is none."""
    path = executable()
    if path is None:
        raise FileNotFoundError(NO_BROWSER)
    with sync_playwright() as playwright:
        # CI runs as root in a container, where Chromium's own sandbox cannot start and /dev/shm is small; a graphics
        # processor that is not there costs a core to imitate.
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-software-rasterizer", *more]
        started = playwright.chromium.launch(executable_path=path, args=options)
        try:
            yield started
        finally:
            started.close()


def new_page(
    started: Browser, *, theme: Literal["light", "dark"] = "light", width: int = WIDTH, height: int = HEIGHT
) -> Page:
    """A page of a new session, every wait limited."""
    context = started.new_context(viewport={"width": width, "height": height}, color_scheme=theme, locale="en-GB")
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    return page


def signed_in_page(started: Browser, address: str, run_dir: Path, **options: Any) -> Page:
    """As :func:`new_page`, signed in to the dashboard at ``address`` whose data folder has this folder ``run``."""
    page = new_page(started, **options)
    key = DashboardLogin(run_dir).new_key(time.time(), KEY_ASKED_FOR_S)
    # The link is asked for as by the browser, whose cookie it then is, but no page is loaded.
    page.context.request.get(login_url(address, key), max_redirects=0)
    return page


# Elements come one after the other, each live part with its own run, and a chart first as a grey place: what is there
# must be drawn, and stay as it is for a while. No skeleton of an element, a chart or the whole page counts as drawn.
_DRAWN: Final = """(stable_ms) => {
  const all = selector => [...document.querySelectorAll(selector)];
  const charts = all('[data-testid="stPlotlyChart"]');
  const drawn = document.querySelector('.st-key-head')
    && !all('[data-testid*="Skeleton"], [data-testid="stException"]').length
    && charts.every(chart => chart.querySelector('.main-svg'));
  const sight = drawn ? `${charts.length} ${all('[data-testid="stElementContainer"]').length}` : null;
  const now = performance.now(), seen = window.ebblineSight;
  if (sight === null || !seen || seen.sight !== sight) { window.ebblineSight = { sight, since: now }; return false; }
  const running = all('[data-testid="stApp"]').some(app => app.dataset.testScriptState !== 'notRunning');
  // Where one refresh begins before the other has ended, as on a machine without time, the page always runs.
  return now - seen.since >= (running ? 10 * stable_ms : stable_ms);
}"""
STABLE_MS: Final = 1_000
_POLL_MS: Final = 100


def wait_until_drawn(page: Page) -> None:
    """The page of the dashboard is there, its charts included, nothing is being added, and it shows no error.

    Raises Playwright's TimeoutError after WAIT_MS.
    """
    page.locator(".st-key-head").wait_for()
    page.locator('[data-testid="stStatusWidget"]').wait_for(state="hidden")
    page.evaluate("() => { window.ebblineSight = null; }")  # of a wait before
    page.wait_for_function(_DRAWN, arg=STABLE_MS, polling=_POLL_MS)


def drawn_ms(page: Page) -> float:
    """The time of the last change, in ms of the page's clock, which begins at its load; after `wait_until_drawn`."""
    return float(page.evaluate("() => window.ebblineSight.since"))


class Complaints:
    """The errors in the browser's console, and the exceptions that no script caught."""

    def __init__(self, page: Page) -> None:
        self.texts: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.texts.append(f"not caught: {error}"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.texts.append(f"{message.text} ({message.location['url']})")
