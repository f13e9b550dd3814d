"""A real Prometheus scrapes the control API and evaluates the rules that ebbline gives it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from backend.control.alerts.prometheus_rules import BLIND_FOR
from tests.e2e.up_process import UpProcess
from tests.incidents.rigs.processes import KeptDown
from tests.ports import free_ports
from tests.waiting import wait_until

PROMETHEUS = shutil.which("prometheus")
OPTIONS = ("--no-ui", "--no-pipeline", "--no-demo", "--process-per-broker")
CONFIG = """
global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: [ebbline.rules.yml]
scrape_configs:
  - job_name: ebbline
    static_configs: [{{ targets: ["{target}"] }}]
"""

pytestmark = pytest.mark.skipif(
    PROMETHEUS is None, reason="promtool is unavailable: on Debian it and Prometheus are in the package prometheus"
)


@contextmanager
def prometheus(folder: Path, target: str, rules: str) -> Iterator[str]:
    """Its address, while it runs."""
    folder.mkdir()
    (folder / "ebbline.rules.yml").write_text(rules)
    (folder / "prometheus.yml").write_text(CONFIG.format(target=target))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    process = subprocess.Popen(
        [
            str(PROMETHEUS),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(20)


def impatient(rules: str) -> str:
    """The rules, with seconds for the minutes that alerts about ebbline itself wait."""
    assert f"for: {BLIND_FOR}" in rules
    return rules.replace(f"for: {BLIND_FOR}", "for: 2s")


def firing(address: str) -> dict[str, Any]:
    """Firing alerts by name; one that is pending reaches nobody."""
    try:
        items = httpx.get(f"{address}/api/v1/alerts", timeout=5).raise_for_status().json()["data"]["alerts"]
    except httpx.HTTPError:
        return {}  # it starts
    return {item["labels"]["alertname"]: item for item in items if item["state"] == "firing"}


def test_a_broker_that_is_away_fires_and_so_does_our_own_end(tmp_path: Path) -> None:
    up = UpProcess(tmp_path / "data", options=OPTIONS)
    up.start()
    try:
        headers = {"Authorization": f"Bearer {up.operator_token}"}
        rules = httpx.get(f"{up.api_url}/v1/alert-rules", headers=headers, timeout=20).raise_for_status().text
        with prometheus(tmp_path / "prometheus", up.api_url.removeprefix("http://"), impatient(rules)) as address:
            down = KeptDown(lambda: up.pid("broker-3"), "broker-3.properties")
            try:
                away = wait_until("the alert fires", lambda: firing(address).get("EbblineBrokerAway", {}), 60)
                assert away["labels"]["severity"] == "warning"
                assert away["labels"]["slug"] == "broker-away"
                assert away["annotations"]["summary"] == "A broker does not answer: 1 open."
            finally:
                down.release()
            wait_until("it ends", lambda: "EbblineBrokerAway" not in firing(address), 90)
            up.stop()
            own = wait_until("nothing is scraped", lambda: firing(address).get("EbblineAway", {}), 60)
            assert own["labels"]["severity"] == "critical"
    finally:
        up.stop()
        up.close_output()
