"""The pictures of the README: ``python -m tests.screenshots`` runs `ebbline up` with its demo and photographs it.

Writes docs/screenshots/{overview,partitions,partition,remote,followers,reassign,lab,activity,config,config-toggle}.png
and the same with -dark. Takes about three minutes, most of it for the demo to have a remote and a local part and some
minutes of history to show.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Literal

import httpx
from playwright.sync_api import Browser, Page

from backend.control.lab.demo import TOPIC
from tests import browser
from tests.e2e.up_process import UpProcess
from tests.waiting import wait_until

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "screenshots"
DATA_TIMEOUT_S: Final = 180.0
# A chart of one minute is no picture: copies come, local data goes, the figures get their line.
HISTORY_S: Final = 75.0
SETTLE_MS: Final = 2_500
LIVE_TIMEOUT_MS: Final = 180_000
PAGES: Final = {
    "overview": "/",
    "partitions": "/partitions",
    "partition": f"/partition?tp={TOPIC}-0",
    "remote": f"/remote?q={TOPIC}-0",
    "followers": "/followers",
    "reassign": "/reassign",
    "lab": "/lab",
    "activity": "/activity",
    "config": "/config",
}


def remote_and_local(up: UpProcess) -> dict[str, Any] | None:
    """A partition whose old records are in the remote tier only, as the control API sees it; None: not yet."""
    headers = {"Authorization": f"Bearer {up.operator_token}"}
    try:
        answer = httpx.get(
            f"{up.api_url}/v1/partitions", params={"topic": TOPIC}, headers=headers, timeout=10.0, verify=False
        )
    except httpx.HTTPError:
        return None  # busy with its start
    items: list[dict[str, Any]] = answer.json().get("items", [])
    for row in items:
        start, local = row["log_start_offset"], row["local_log_start_offset"]
        if start is not None and local is not None and local > start and (row["ledger_segments"] or 0) > 0:
            return row
    return None


def photograph(started: Browser, up: UpProcess, folder: Path, theme: Literal["light", "dark"]) -> list[Path]:
    """All pages in one theme; the files."""
    page = browser.new_page(started, theme=theme)
    suffix = "-dark" if theme == "dark" else ""
    files = []
    for name, path in PAGES.items():
        page.goto(f"{up.app_url}{path}{'&' if '?' in path else '?'}range=15m")
        files.append(_shot(page, folder / f"{name}{suffix}.png"))
    page.get_by_role("button", name="Change cluster default…").click()
    page.get_by_role("dialog").wait_for()
    page.get_by_label("Reason").fill("Faster move onto broker 3")
    files.append(_shot(page, folder / f"config-toggle{suffix}.png"))
    page.locator(".st-key-keep button").click()
    page.context.close()
    return files


def _shot(page: Page, path: Path) -> Path:
    browser.wait_until_drawn(page)
    page.wait_for_timeout(SETTLE_MS)
    # A busy machine lets the observer fall behind; then the page is grey, as it must be, but no picture.
    page.locator(".eb-pill", has_text="Live").wait_for(timeout=LIVE_TIMEOUT_MS)
    browser.wait_until_drawn(page)
    page.screenshot(path=path)
    return path


def try_on_one_broker(up: UpProcess) -> None:
    """A first change, so that the Config page has something to tell."""
    headers = {"Authorization": f"Bearer {up.operator_token}", "Idempotency-Key": "picture"}
    with httpx.Client(base_url=up.api_url, headers=headers, timeout=60.0) as api:
        wanted = {"scope": "broker", "broker_id": 3, "enable": True}
        plan = api.post("/v1/plans", json={"kind": "toggle_bootstrap", "inputs": wanted}).raise_for_status().json()
        body = {"confirm": "demo", "reason": "trial on one broker", "wait_ms": 20_000}
        api.post(f"/v1/plans/{plan['plan']['id']}/execute", json=body).raise_for_status()


def all_in_sync(up: UpProcess) -> bool:
    """No replica is behind, as the control API sees it."""
    try:
        answer = httpx.get(f"{up.api_url}/v1/cluster", headers={"Authorization": f"Bearer {up.operator_token}"})
        totals = answer.json().get("totals")
    except httpx.HTTPError:
        return False
    return totals is not None and totals["replicas_not_in_sync"] == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--history-s", type=float, default=HISTORY_S)
    options = parser.parse_args()
    if browser.executable() is None:
        print(browser.NO_BROWSER, file=sys.stderr)
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ebbline-screenshots-") as folder, UpProcess(Path(folder) / "data") as up:
        wait_until("a partition with a remote part", lambda: remote_and_local(up), DATA_TIMEOUT_S)
        try_on_one_broker(up)
        time.sleep(options.history_s)
        wait_until("all replicas in sync", lambda: all_in_sync(up), DATA_TIMEOUT_S)
        with browser.browser() as started:
            for theme in ("light", "dark"):
                for path in photograph(started, up, options.folder, theme):
                    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
