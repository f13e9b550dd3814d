"""The dashboard as a separate process over a database, for a browser; no cluster behind it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from playwright.sync_api import Browser, Page

from tests.browser import signed_in_page
from tests.databases import new_sqlite
from tests.ports import free_ports
from tests.ui import seed
from tests.waiting import wait_until

START_TIMEOUT_S: Final = 60.0
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Served:
    """A dashboard that runs: the database that it reads, its data folder with ``app.log``, and its process."""

    address: str
    database_url: str
    folder: Path
    pid: int

    def page(self, started: Browser, **options: Any) -> Page:
        """A new page, signed in; options as of `browser.new_page`."""
        return signed_in_page(started, self.address, self.folder / "run", **options)


@contextmanager
def dashboard(database_url: str, folder: Path, **environment: str) -> Iterator[Served]:
    """Runs it, with more of the environment."""
    (port,) = free_ports(1)
    (folder / "run").mkdir(mode=0o700, exist_ok=True)
    settings = {
        "EBBLINE_DATABASE_URL": database_url,
        "EBBLINE_CLUSTER_ID": seed.CLUSTER_ID,
        "EBBLINE_DATA_DIR": str(folder),
        **environment,
    }
    with (folder / "app.log").open("w") as log:
        command = [sys.executable, "-m", "app.run", "--port", str(port)]
        process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until("the dashboard answers", lambda: _answers(address), START_TIMEOUT_S)
        yield Served(address, database_url, folder, process.pid)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def seeded_dashboard(folder: Path) -> Iterator[Served]:
    """One over the seeded trouble, which is of now for an hour."""
    url = new_sqlite(folder / "ebbline.db")
    seed.seed(url, time.time_ns() // 1_000_000, trouble=True, interval_ms=HOUR_MS)
    with dashboard(url, folder) as result:
        yield result


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/_stcore/health", timeout=2, verify=False).is_success
    except httpx.HTTPError:
        return False
