"""Commands about alerts against an HTTP server that answers as the API does: requests, output, exit codes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from backend.cli.main import app
from backend.control.http.openapi import ANSWER_EXAMPLES

EXAMPLES: dict[str, Any] = json.loads(ANSWER_EXAMPLES.read_text())
FINDING = EXAMPLES["FindingAnswer"]["finding"] | {"id": 7, "slug": "copy-slow", "object": "orders-3"}


class Api:
    """Answers by method and path, and the requests that came."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.requests: list[tuple[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                name = f"{self.command} {self.path}"
                outer.requests.append((name, json.loads(body) if body else None))
                status, content = outer.answers.get(name, (404, {"detail": f"nothing at {name}"}))
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def run(self, folder: Path, *words: str) -> tuple[int, str]:
        token = folder / "token"
        token.write_text("secret")
        url = f"http://127.0.0.1:{self.server.server_address[1]}"
        ended = CliRunner().invoke(app, [*words, "--api", url, "--token-file", str(token)])
        assert not ended.exception or isinstance(ended.exception, SystemExit), ended.exception
        return ended.exit_code, ended.output


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_finding_is_muted_by_its_number_or_by_rule_and_object(api: Api, tmp_path: Path) -> None:
    muted = {"finding": FINDING | {"muted_until_ms": 1_800_000_000_000}, "runbook": ""}
    api.answers["POST /v1/findings/7/mute"] = 200, muted
    listed = {"items": [FINDING | {"id": 9, "object": "orders-4"}, FINDING], "next_before_id": None}
    api.answers["GET /v1/findings?state=all&slug=copy-slow&limit=1000"] = 200, listed
    code, text = api.run(tmp_path, "mute", "7", "--for", "2h", "--reason", "a test")
    assert (code, api.requests[-1]) == (0, ("POST /v1/findings/7/mute", {"minutes": 120, "reason": "a test"}))
    assert "muted until 2027-01-15 08:00:00 UTC" in text
    assert api.run(tmp_path, "mute", "copy-slow", "orders-3", "--for", "30s")[0] == 0
    assert api.requests[-1] == ("POST /v1/findings/7/mute", {"minutes": 1, "reason": None})
    assert api.run(tmp_path, "unmute", "copy-slow", "orders-3")[0] == 0
    assert api.requests[-1] == ("POST /v1/findings/7/mute", {"minutes": 0, "reason": None})
    assert api.run(tmp_path, "mute", "copy-slow", "nowhere-0", "--for", "1h")[0] == 5
    assert api.run(tmp_path, "mute", "copy-slow", "--for", "1h")[0] == 2
    assert api.run(tmp_path, "mute", "7", "--for", "soon")[0] == 2


def test_a_finding_is_acknowledged(api: Api, tmp_path: Path) -> None:
    api.answers["POST /v1/findings/7/acknowledge"] = (
        200,
        {"finding": FINDING | {"acknowledged_by": "ada"}, "runbook": ""},
    )
    code, text = api.run(tmp_path, "acknowledge", "7", "--reason", "on it")
    assert (code, text.strip()) == (0, "Finding 7, copy-slow of orders-3, is looked after by ada.")
    assert api.requests == [("POST /v1/findings/7/acknowledge", {"reason": "on it"})]


def test_a_window_is_planned_listed_and_ended(api: Api, tmp_path: Path) -> None:
    window = EXAMPLES["MaintenanceAnswer"]["window"]
    api.answers["POST /v1/maintenance"] = 201, {"window": window}
    api.answers["GET /v1/maintenance"] = 200, {"now_ms": 0, "items": [window]}
    api.answers["DELETE /v1/maintenance/3"] = 200, {"window": window}
    added = api.run(
        tmp_path, "maintenance", "add", "--for", "2h", "--begin", "2027-01-15T08:00", "--topic", "logs-*",
        "--broker", "2", "--slug", "copy-slow", "--reason", "new disks",
    )  # fmt: skip
    assert added[0] == 0
    assert added[1].startswith("Window 3: 20")
    assert api.requests[-1][1] == {
        "begins_ms": 1_800_000_000_000,
        "minutes": 120,
        "slug": "copy-slow",
        "topic": "logs-*",
        "broker_id": 2,
        "reason": "new disks",
    }
    code, text = api.run(tmp_path, "maintenance", "list")
    assert (code, "broker 2" in text, "new disks" in text) == (0, True, True)
    assert api.run(tmp_path, "maintenance", "end", "3") == (0, "Window 3 has ended.\n")
    assert api.run(tmp_path, "maintenance", "add", "--for", "2h", "--begin", "later", "--reason", "x")[0] == 2


def test_receivers_end_with_1_when_one_takes_nothing_or_the_file_has_a_mistake(api: Api, tmp_path: Path) -> None:
    answer = EXAMPLES["ReceiversAnswer"]
    (receiver,) = answer["items"]
    api.answers["GET /v1/alerts/receivers"] = 200, answer
    assert api.run(tmp_path, "receivers")[0] == 0
    failing = receiver | {"failing_since_ms": 1, "last_error": "HTTP 404"}
    api.answers["GET /v1/alerts/receivers"] = 200, answer | {"items": [failing]}
    code, text = api.run(tmp_path, "receivers")
    assert (code, "HTTP 404" in text) == (1, True)
    mistake = "The alerts file alerts.toml is not usable: line 2: no."
    api.answers["GET /v1/alerts/receivers"] = 200, answer | {"mistake": mistake}
    code, text = api.run(tmp_path, "receivers")
    assert (code, mistake in text) == (1, True)
    api.answers["POST /v1/alerts/receivers/ops/test"] = 200, EXAMPLES["ReceiverTestAnswer"]
    assert api.run(tmp_path, "receivers", "--test", "ops") == (1, "ops took no test message: HTTP 404 Not Found.\n")


def test_thresholds_show_values_defaults_and_reasons(api: Api, tmp_path: Path) -> None:
    api.answers["GET /v1/alerts/rules"] = 200, EXAMPLES["RuleSettingsAnswer"]
    code, text = api.run(tmp_path, "thresholds")
    assert code == 0
    for word in ("disk-runway", "warning_share", "0.8 share", "0.85 share", "logs-*", "60 s"):
        assert word in text


def test_a_critical_finding_in_maintenance_is_no_bad_end(api: Api, tmp_path: Path) -> None:
    critical = FINDING | {"severity": "critical", "closed_ms": None, "acknowledged_by": None, "muted_until_ms": None}
    quiet = {"answers": True, "blind_spots": [], "now_ms": 0, "checked_ms": 0, "totals": None}
    api.answers["GET /v1/cluster"] = 200, quiet

    def run(finding: dict[str, Any]) -> tuple[int, str]:
        for limit in (100, 1000):
            path = f"GET /v1/findings?state=open&limit={limit}"
            api.answers[path] = 200, {"items": [finding], "next_before_id": None}
        return api.run(tmp_path, "findings")

    assert run(critical)[0] == 1
    code, text = run(critical | {"maintenance_until_ms": 1_800_000_000_000})
    assert (code, "in maintenance until 2027-01-15 08:00:00 UTC" in text) == (0, True)


@pytest.mark.parametrize("value", ["1e309", "-inf", "nan"])
def test_a_number_that_json_does_not_have_is_refused_by_the_api(api: Api, tmp_path: Path, value: str) -> None:
    """It was a traceback of the client's encoder."""
    problem = {"detail": "rules.copy-slow.for_s is a number from 0 to 86400."}
    api.answers["POST /v1/alerts/rules/copy-slow"] = 422, problem
    code, text = api.run(tmp_path, "thresholds", "--set", f"copy-slow.for_s={value}", "--reason", "try")
    assert (code != 0, "Traceback" in text) == (True, False)
    assert "is a number from 0 to 86400" in text
