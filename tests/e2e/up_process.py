"""`ebbline up` as a user runs it: a separate process, on free ports, in a new folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
from playwright.sync_api import Browser, Page

from tests.browser import signed_in_page
from tests.ports import free_ports

T = TypeVar("T")
START_TIMEOUT_S = 120.0


@dataclass
class UpProcess:
    """One `ebbline up`. Use as a context manager, or start() and stop()."""

    data: Path
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    brokers: int = 3
    base: int = 0
    process: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        self.base = self.base or free_ports(40)[0]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.base + n}" for n in range(self.brokers))

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.base + 30}"

    @property
    def app_url(self) -> str:
        return f"http://127.0.0.1:{self.base + 31}"

    @property
    def database_url(self) -> str:
        return self.environment.get("EBBLINE_DATABASE_URL", f"sqlite:///{self.data / 'ebbline.db'}")

    @property
    def operator_token(self) -> str:
        return (self.data / "run" / "operator.token").read_text().strip()

    def page(self, started: Browser, **options: Any) -> Page:
        """A page of the dashboard's, signed in; options as of `browser.new_page`."""
        return signed_in_page(started, self.app_url, self.data / "run", **options)

    def pid(self, process: str) -> int:
        return int((self.data / "run" / f"{process}.pid").read_text())

    def log(self, process: str) -> str:
        path = self.data / "logs" / f"{process}.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def spawn(self) -> subprocess.Popen[str]:
        """Starts the command without waiting for it to serve."""
        self.close_output()
        environment = os.environ | {
            "EBBLINE_BROKER_PORT": str(self.base),
            "EBBLINE_CONTROLLER_PORT": str(self.base + 10),
            "EBBLINE_METRICS_PORT": str(self.base + 20),
            "EBBLINE_API_PORT": str(self.base + 30),
            "EBBLINE_APP_PORT": str(self.base + 31),
            "EBBLINE_BROKERS": str(self.brokers),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "backend.cli.entry", "up", "--data", str(self.data), *self.options],
            env=environment | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return self.process

    def start(self) -> UpProcess:
        """Starts and waits until the control API is ready and, with a dashboard, until that answers."""
        process = self.spawn()
        expected = [f"{self.api_url}/readyz"]
        if "--no-ui" not in self.options:
            expected.append(f"{self.app_url}/_stcore/health")
        deadline = time.monotonic() + START_TIMEOUT_S
        while expected:
            if process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                said = process.stdout.read() if process.stdout else ""
                raise AssertionError(f"`ebbline up` did not start: {said}\n{self.log('backend')}")
            try:
                if httpx.get(expected[0], timeout=2.0, verify=False).status_code == 200:
                    expected.pop(0)
                    continue
            except httpx.HTTPError:
                time.sleep(0.1)
        return self

    def stop(self) -> int:
        """Ctrl-C, as a person would; the exit code."""
        process = self.process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.wait(10)

    def __enter__(self) -> UpProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.close_output()

    def close_output(self) -> None:
        """Of a process that has ended, or whose output nobody reads any more."""
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
