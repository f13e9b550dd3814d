"""The dashboard as a process of its own over a database, for a browser; no cluster behind it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from tests.ports import free_ports
from tests.ui import seed
from tests.waiting import wait_until

START_TIMEOUT_S: Final = 60.0


@contextmanager
def dashboard(database_url: str, folder: Path) -> Iterator[str]:
    """Its address. The log is ``app.log`` in ``folder``."""
    (port,) = free_ports(1)
    known = {"EBBLINE_DATABASE_URL": database_url, "EBBLINE_CLUSTER_ID": seed.CLUSTER_ID}
    with (folder / "app.log").open("w") as log:
        command = [sys.executable, "-m", "app.run", "--port", str(port)]
        process = subprocess.Popen(command, env={**os.environ, **known}, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until("the dashboard answers", lambda: _answers(address), START_TIMEOUT_S)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/_stcore/health", timeout=2, verify=False).is_success
    except httpx.HTTPError:
        return False
