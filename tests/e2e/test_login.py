"""`ebbline up` prints a link that signs one browser in, `ebbline login` prints more; no log holds that or a secret."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e.up_process import UpProcess

CANARY = "CANARY7SECRET"


@pytest.fixture(scope="module")
def single_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    up = UpProcess(tmp_path_factory.mktemp("up") / "data", options=("--no-pipeline", "--no-demo"), brokers=1)
    up.environment = {
        "EBBLINE_WEBHOOK_URL": f"http://127.0.0.1:1/{CANARY}",
        "EBBLINE_REMOTE_LOCATION": f"s3://key:{CANARY}@bucket/prefix?{CANARY}",
        "AWS_ENDPOINT": "http://127.0.0.1:1",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "EBBLINE_LOG_LEVEL": "DEBUG",
    }
    with up:
        yield up


def ebbline(up: UpProcess, *words: str) -> str:
    command = [sys.executable, "-m", "backend.cli.entry", *words, "--data", str(up.data)]
    environment = {"PATH": "/usr/bin:/bin", "EBBLINE_APP_PORT": str(up.base + 31)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


@pytest.fixture
def browsers() -> Iterator[ExitStack]:
    """Closes what a test opens."""
    with ExitStack() as stack:
        yield stack


def opened(browsers: ExitStack, link: str) -> httpx.Client:
    """A browser that has opened the link."""
    client = browsers.enter_context(httpx.Client(verify=False, follow_redirects=True))
    client.get(link)
    return client


def is_in(client: httpx.Client, up: UpProcess) -> bool:
    answer = client.get(f"{up.app_url}/lab")
    assert answer.status_code in (200, 401)
    return answer.status_code == 200


def test_the_printed_link_signs_one_browser_in(single_node: UpProcess, browsers: ExitStack) -> None:
    assert single_node.process is not None
    assert single_node.process.stdout is not None
    printed = next(line for line in iter(single_node.process.stdout.readline, "") if line.startswith("Dashboard"))
    match = re.fullmatch(r"Dashboard +(http://127\.0\.0\.1:\d+/login\?key=[\w-]{43})\n", printed)
    assert match is not None, printed
    assert is_in(opened(browsers, match[1]), single_node)
    assert not is_in(opened(browsers, match[1]), single_node)
    assert not is_in(browsers.enter_context(httpx.Client(verify=False)), single_node)


def test_another_link_signs_another_browser_in_until_all_are_signed_out(
    single_node: UpProcess, browsers: ExitStack
) -> None:
    first = opened(browsers, ebbline(single_node, "login"))
    assert is_in(first, single_node)
    second = opened(browsers, ebbline(single_node, "login", "--end-sessions"))
    assert not is_in(first, single_node)
    assert is_in(second, single_node)


def test_no_log_and_no_command_line_holds_a_secret(single_node: UpProcess) -> None:
    tokens = [path.read_text().strip() for path in (single_node.data / "run").glob("*.token")]
    secrets = [CANARY, *tokens, (single_node.data / "run" / "dashboard.secret").read_text().strip()]
    assert len(secrets) == 5
    said = {path.name: path.read_text() for path in (single_node.data / "logs").iterdir()}
    said |= {name: Path(f"/proc/{single_node.pid(name)}/cmdline").read_text() for name in ("backend", "app")}
    assert [(name, secret) for name, text in said.items() for secret in secrets if secret in text] == []


def test_no_log_holds_a_key(single_node: UpProcess, browsers: ExitStack) -> None:
    link = ebbline(single_node, "login")
    opened(browsers, link)
    opened(browsers, link)
    key = link.rpartition("=")[2]
    logs = [path.read_text() for path in (single_node.data / "logs").iterdir()]
    assert any("a key that is not good" in text for text in logs)
    assert not any(key in text for text in logs)


def test_a_folder_without_a_cluster_has_no_dashboard_to_sign_in_to(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "backend.cli.entry", "login", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "holds no cluster" in done.stderr
    assert len(done.stderr.splitlines()) == 1
