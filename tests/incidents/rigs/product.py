"""The product under test: one `ebbline up`, the findings that it shows, and what its commands say when it does not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from tests.e2e.up_process import UpProcess
from tests.incidents.expectations import CRITICAL
from tests.incidents.rigs.receiver import Receiver
from tests.incidents.timeline import CommandRead, FindingsRead, SeenFinding

API_S: Final = 3.0
# A command waits 8 s for an answer and starts within some seconds on a busy machine; longer is an answer by itself.
COMMAND_S: Final = 30.0
NEVER_ENDED: Final = -1
AWAY: Final = 3
# The shortest that the product takes; two of them fit into the time for which a backend is away.
BEAT_S: Final = 10
_LINES_MAX: Final = 2_000


class Product:
    """`ebbline up` with a receiver of its notices."""

    def __init__(self, data: Path, options: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.receiver = Receiver()
        self.receiver.__enter__()
        self.up = UpProcess(data, options=(*options, "--no-ui", "--no-demo"))
        self.up.environment = {
            **environment,
            "EBBLINE_WEBHOOK_URL": self.receiver.url,
            "EBBLINE_HEARTBEAT_URL": self.receiver.heartbeat_url,
            "EBBLINE_HEARTBEAT_INTERVAL_S": str(BEAT_S),
        }
        self.said: list[str] = []

    def start(self) -> None:
        self.up.start()
        stream = self.up.process.stdout if self.up.process is not None else None
        assert stream is not None

        def read() -> None:
            # A supervisor whose output nobody reads would stand still.
            for line in stream:
                self.said.append(line)
                del self.said[:-_LINES_MAX]

        threading.Thread(target=read, name="said", daemon=True).start()

    def stop(self) -> None:
        self.up.stop()

    def close(self) -> None:
        self.stop()
        self.receiver.__exit__()

    def get(self, path: str) -> Any:
        """Raises httpx.HTTPError when the API does not answer well."""
        headers = {"Authorization": f"Bearer {self.up.operator_token}"}
        response = httpx.get(f"{self.up.api_url}{path}", headers=headers, timeout=API_S, verify=False)
        return response.raise_for_status().json()

    def findings(self) -> FindingsRead | None:
        """All that are open now; None: the API does not give them."""
        at_s = time.monotonic()
        items: list[dict[str, Any]] = []
        before = ""
        try:
            while True:
                page = self.get(f"/v1/findings?limit=1000{before}")
                items += page["items"]
                if page["next_before_id"] is None:
                    break
                before = f"&before_id={page['next_before_id']}"
        except (httpx.HTTPError, OSError):
            return None
        return FindingsRead(at_s, tuple(seen(item) for item in items))

    def status(self) -> CommandRead:
        """`ebbline status`, as a cron job runs it."""
        return self._command("status")

    def _command(self, *words: str) -> CommandRead:
        command = [sys.executable, "-m", "backend.cli.entry", *words, "--data", str(self.up.data)]
        environment = {**os.environ, **self.up.environment, "EBBLINE_API_URL": self.up.api_url}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=COMMAND_S, check=False
            )
        except subprocess.TimeoutExpired:
            return CommandRead(time.monotonic(), NEVER_ENDED, f"it did not end within {COMMAND_S:g} s")
        return CommandRead(time.monotonic(), done.returncode, done.stdout + done.stderr)

    def readers(self) -> frozenset[str]:
        """Groups that read from the remote tier, as `ebbline readers` lists them."""
        try:
            return frozenset(str(item["group"]) for item in self.get("/v1/remote-readers")["items"])
        except (httpx.HTTPError, OSError):
            return frozenset()


def seen(item: Mapping[str, Any]) -> SeenFinding:
    """A finding of the API."""
    cause = (item.get("cause_slug"), item.get("cause_object"))
    return SeenFinding(
        slug=item["slug"],
        object=item["object"],
        severity=item["severity"],
        sentence=item["sentence"],
        why=str((item.get("evidence") or {}).get("sentence", "")),
        action=item["action"],
        cause=None if cause[0] is None else (str(cause[0]), str(cause[1])),
    )


def finding_of_command(read: CommandRead) -> SeenFinding | None:
    """The finding that a command is when the API does not answer, with its sentence; None when it ends otherwise."""
    if read.code != AWAY:
        return None
    slug = "database-away" if "The database" in read.text else "backend-down"
    text = read.text.strip()
    return SeenFinding(slug=slug, object=slug.partition("-")[0], severity=CRITICAL, sentence=text, action=text)
