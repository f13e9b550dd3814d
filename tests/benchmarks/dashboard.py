"""The time that a person waits for a page, in Chromium, on 10,000 partitions and 2.6 million remote segments.

From the click, or from the request of the page, to the moment after which nothing is drawn any more. The data changes
all the time, as it does while the observer writes: what was read before is soon too old to be shown again.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page
from sqlalchemy import Engine

from app import links
from backend.store import tables as t
from backend.store.connection.database import create_engine, writing
from backend.store.migrate import upgrade
from tests import browser
from tests.ui.many import PARTITIONS, SEGMENTS_EACH, seed_many
from tests.ui.served import Served, dashboard

SEGMENTS_EACH_QUICK: Final = 5
# Of some 36 s each; beside them two minutes for 2.6 million segments.
ROUNDS, ROUNDS_QUICK = 3, 1
OBSERVED_EVERY_S: Final = 2.0
# So long that nothing seeded becomes stale during the run: stale pages are greyed, and no picture of health.
INTERVAL_MS: Final = 3_600_000
PARTITION: Final = "bulk-07-3"
# ui.md, section 8: at 10,000 partitions on two cores.
LIMITS_S: Final = {"first load": 6.0, "reload": 2.5, "warm navigation": 1.0}


def measure_dashboard(*, quick: bool) -> dict[str, float]:
    """Seconds by what was done, and how many were over the limit of ui.md. Raises FileNotFoundError: no Chromium."""
    segments = SEGMENTS_EACH_QUICK if quick else SEGMENTS_EACH
    with tempfile.TemporaryDirectory(prefix="ebbline-dashboard-") as folder:
        url = f"sqlite:///{folder}/ebbline.db"
        upgrade(url)
        seed_many(url, time.time_ns() // 1_000_000, segments=segments, interval_ms=INTERVAL_MS)
        os.sync()  # 3 GB written in two minutes: no page shall wait for the disk to take them
        print(f"  {PARTITIONS} partitions, {PARTITIONS * segments} remote segments", file=sys.stderr, flush=True)
        with dashboard(url, Path(folder)) as served, observed(create_engine(url)):
            return _measure(served, ROUNDS_QUICK if quick else ROUNDS)


@contextmanager
def observed(engine: Engine) -> Iterator[None]:
    """Every partition is sampled again and again, as by an observer."""
    ended = threading.Event()

    def observe() -> None:
        status, current = t.process_status, t.partition_current
        while not ended.wait(OBSERVED_EVERY_S):
            with writing(engine) as connection:
                at_ms = time.time_ns() // 1_000_000
                connection.execute(current.update().values(sampled_ms=at_ms))
                connection.execute(status.update().values(updated_ms=at_ms, data_version=status.c.data_version + 1))

    thread = threading.Thread(target=observe, name="observer")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _measure(served: Served, rounds: int) -> dict[str, float]:
    seconds_by_figure: dict[str, list[float]] = {}
    with browser.browser() as started:
        # Each has a separate cache, which is empty; the first of them is also the server's first session.
        seconds_by_figure["first load"] = [_first_load(started, served) for _ in range(rounds - 1)]
        page = served.page(started)
        complaints = browser.Complaints(page)
        seconds_by_figure["first load"].append(_load(page, served.address))
        for _ in range(rounds):
            for name in links.NAMES:
                seconds_by_figure.setdefault(f"reload: {name}", []).append(
                    _load(page, f"{served.address}{_path(name)}")
                )
        page.goto(served.address)
        browser.wait_until_drawn(page)
        for number in range(rounds + 1):
            for name in (page_name for page_name in links.NAMES if page_name != "partition"):
                seconds = _navigate(page, name)
                if number > 0:  # the first visit is not warm
                    seconds_by_figure.setdefault(f"warm navigation: {name}", []).append(seconds)
        assert not complaints.texts, complaints.texts
    over = [
        name for name, times in seconds_by_figure.items() if statistics.median(times) > LIMITS_S[name.split(":")[0]]
    ]
    print(f"  over the limit: {', '.join(over) or 'nothing'}", file=sys.stderr, flush=True)
    medians = {f"{name} (s)": statistics.median(times) for name, times in seconds_by_figure.items()}
    return medians | {"pages over the limit": float(len(over))}


def _path(name: str) -> str:
    if name == "overview":
        return "/"
    return f"/{name}?tp={PARTITION}" if name == "partition" else f"/{name}"


def _first_load(started: Browser, served: Served) -> float:
    page = served.page(started)
    seconds = _load(page, served.address)
    page.context.close()  # a page that stays is drawn again and again
    return seconds


def _load(page: Page, url: str) -> float:
    """Seconds from the request to the complete page."""
    page.goto(url)
    browser.wait_until_drawn(page)
    return browser.drawn_ms(page) / 1000


def _navigate(page: Page, name: str) -> float:
    """Seconds from the click on the top navigation to the complete page."""
    title = links.TITLES[name]
    link = page.get_by_role("link", name=title, exact=True).first
    began_ms = float(page.evaluate("() => { window.ebblineSight = null; return performance.now(); }"))
    link.click()
    page.locator(".eb-title h1").get_by_text(title, exact=True).wait_for()
    browser.wait_until_drawn(page)
    return (browser.drawn_ms(page) - began_ms) / 1000
