"""The pictures of the README: ``python -m tests.screenshots`` runs `ebbline up` with its demo and photographs it.

Writes docs/screenshots/{overview,partitions,partition,remote,followers,reassign,lab,activity,config,config-toggle}.png
and the same with -dark; ``--width 760`` takes a narrower window, best into another ``--folder``. Before that it makes
what there is to see: a second topic, a plan for it, a change of the flag, a race of the lab and some minutes of
history. Takes about seven minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Literal

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from PIL import Image
from playwright.sync_api import Browser, Page

from backend.control.lab.demo.topics import ORDERS
from tests import browser
from tests.e2e.up_process import UpProcess
from tests.waiting import wait_until

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "screenshots"
DATA_TIMEOUT_S: Final = 180.0
# A chart of one minute is no picture: copies come, local data goes, the figures get their line.
HISTORY_S: Final = 240.0
SETTLE_MS: Final = 2_500
COLOURS: Final = 256
LIVE_TIMEOUT_MS: Final = 180_000
RACE_TIMEOUT_S: Final = 600.0
# The page's default: with less there is nothing to see but the waits of both.
RACE_BYTES: Final = 300_000_000
SECOND: Final = "payments"
SECOND_RECORDS: Final = 16_000
SECOND_CONFIG: Final = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "3145728"}
PAGES: Final = {
    "overview": "/",
    "partitions": "/partitions",
    "partition": f"/partition?tp={ORDERS.name}-0",
    "remote": f"/remote?q={ORDERS.name}-0",
    "followers": "/followers",
    "reassign": "/reassign?plan={plan}",
    "lab": "/lab",
    "activity": "/activity",
    "config": "/config",
}


def remote_and_local(up: UpProcess) -> dict[str, Any] | None:
    """A partition whose old records are in the remote tier only, as the control API sees it; None: not yet."""
    headers = {"Authorization": f"Bearer {up.operator_token}"}
    try:
        answer = httpx.get(
            f"{up.api_url}/v1/partitions", params={"topic": ORDERS.name}, headers=headers, timeout=10.0, verify=False
        )
    except httpx.HTTPError:
        return None  # busy with its start
    items: list[dict[str, Any]] = answer.json().get("items", [])
    for row in items:
        start, local = row["log_start_offset"], row["local_log_start_offset"]
        if start is not None and local is not None and local > start and (row["ledger_segments"] or 0) > 0:
            return row
    return None


def photograph(
    started: Browser, up: UpProcess, folder: Path, theme: Literal["light", "dark"], plan_id: int, width: int
) -> list[Path]:
    """All pages in one theme; the files."""
    page = up.page(started, theme=theme, width=width)
    suffix = "-dark" if theme == "dark" else ""
    files = []
    for name, path in PAGES.items():
        page.goto(f"{up.app_url}{path.format(plan=plan_id)}{'&' if '?' in path else '?'}range=15m")
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
    with Image.open(path) as picture:
        # A page has few colours: a third of the size, and no colour further off than nobody sees. The usual way to
        # choose them takes the frequent ones, and would make a small red mark grey.
        rgb = picture.convert("RGB")
        small = rgb.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    return path


def operator(up: UpProcess) -> httpx.Client:
    """The control API for its operator, each call with another key."""
    headers = {"Authorization": f"Bearer {up.operator_token}"}
    return httpx.Client(base_url=up.api_url, headers=headers, timeout=60.0)


def try_on_one_broker(up: UpProcess) -> None:
    """A first change, so that the Config page has something to tell."""
    with operator(up) as api:
        requested = {"scope": "broker", "broker_id": 3, "enable": True}
        plan = api.post("/v1/plans", json={"kind": "toggle_bootstrap", "inputs": requested}).raise_for_status().json()
        body = {"confirm": "demo", "reason": "trial on one broker", "wait_ms": 20_000}
        path = f"/v1/plans/{plan['plan']['id']}/execute"
        api.post(path, json=body, headers={"Idempotency-Key": "picture"}).raise_for_status()


def second_topic(up: UpProcess) -> None:
    """A topic of two replicas, so that a third has something to copy."""
    admin = AdminClient({"bootstrap.servers": up.bootstrap, "log_level": 0})
    topic = NewTopic(SECOND, 2, replica_assignment=[[1, 2], [2, 1]], config=SECOND_CONFIG)
    admin.create_topics([topic])[SECOND].result(60)
    producer = Producer({"bootstrap.servers": up.bootstrap, "log_level": 0})
    for number in range(SECOND_RECORDS):
        producer.produce(SECOND, b"v" * 1000, partition=number % 2)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"{SECOND} could not be filled: a broker did not answer in time.")


def plan_third_replica(up: UpProcess) -> int:
    """Its number; it is only looked at."""
    inputs = {"action": "add", "topics": [SECOND], "brokers": [3], "throttle_bytes_per_s": 1_000_000}
    with operator(up) as api:
        made = api.post("/v1/plans", json={"kind": "reassign", "inputs": inputs}).raise_for_status().json()
    return int(made["plan"]["id"])


def race(up: UpProcess) -> None:
    """From its start to its end."""
    with operator(up) as api:
        api.post("/v1/lab/bootstrap", json={"size_bytes": RACE_BYTES, "tiered_percent": 85}).raise_for_status()
        wait_until(
            "the race is over", lambda: api.get("/v1/lab/bootstrap").json()["run"]["state"] != "running", RACE_TIMEOUT_S
        )


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
    parser.add_argument("--width", type=int, default=browser.WIDTH)
    options = parser.parse_args()
    if browser.executable() is None:
        print(browser.NO_BROWSER, file=sys.stderr)
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ebbline-screenshots-") as folder, UpProcess(Path(folder) / "data") as up:
        wait_until("a partition with a remote part", lambda: remote_and_local(up), DATA_TIMEOUT_S)
        second_topic(up)
        try_on_one_broker(up)
        race(up)
        time.sleep(options.history_s)
        wait_until("all replicas in sync", lambda: all_in_sync(up), DATA_TIMEOUT_S)
        plan_id = plan_third_replica(up)
        with browser.browser() as started:
            for theme in ("light", "dark"):
                for path in photograph(started, up, options.folder, theme, plan_id, options.width):
                    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
