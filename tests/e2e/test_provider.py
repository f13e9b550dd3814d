"""The dashboard's sign-in by an OIDC provider: there and back in a browser, who the audit names, one that is away."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from backend.data_folder.dashboard_login import PROVIDER_HINT
from tests.browser import browser, executable, new_page, wait_until_drawn
from tests.e2e.up_process import UpProcess
from tests.ports import free_ports
from tests.waiting import wait_until

ADA = {"sub": "ada", "email": "ada@example.org", "role": "operator"}
EVE = {"sub": "eve", "email": "eve@example.org"}
SECRETS = """
[auth]
redirect_uri = "{dashboard}/oauth2callback"
cookie_secret = "0123456789abcdef0123456789abcdef"
client_id = "ebbline"
client_secret = "of the client"
server_metadata_url = "{provider}/.well-known/openid-configuration"
"""


@contextmanager
def provider(port: int) -> Iterator[str]:
    """Its address; it knows Ada and Eve and believes who they say they are."""
    people = [word for person in (ADA, EVE) for word in ("--user-claims", json.dumps(person))]
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port), *people]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until("the provider answers", lambda: answers(f"{address}/.well-known/openid-configuration"))
        yield address
    finally:
        process.terminate()
        process.wait(30)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).is_success
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def provider_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, provider_port: int) -> Iterator[UpProcess]:
    folder = tmp_path_factory.mktemp("up")
    made = UpProcess(folder / "data", options=("--no-pipeline", "--no-demo"), brokers=1)
    made.environment = {"HOME": str(folder)}
    (folder / ".streamlit").mkdir()
    secrets = SECRETS.format(dashboard=made.app_url, provider=f"http://127.0.0.1:{provider_port}")
    (folder / ".streamlit" / "secrets.toml").write_text(secrets)
    with made:
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if executable() is None:
        pytest.skip("no Chromium on this machine")
    with browser() as started:
        yield started


def signed_in(started: Browser, up: UpProcess, who: str) -> Page:
    """The Lab as somebody sees it who came by the provider; `who` names its button there."""
    page = new_page(started)
    page.goto(f"{up.app_url}/lab")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=who, exact=True).click()
    page.wait_for_url(f"{up.app_url}/**")
    wait_until_drawn(page)
    page.goto(f"{up.app_url}/lab")
    wait_until_drawn(page)
    return page


def sign_out(page: Page) -> None:
    page.get_by_role("button", name=re.compile("example.org")).click()
    page.get_by_role("button", name="Sign out").click()


def asks_to_sign_in(page: Page) -> None:
    expect(page.get_by_text("Sign in to see the cluster.")).to_be_visible()


def test_no_link_is_printed_that_signs_nobody_in(up: UpProcess) -> None:
    assert up.process is not None
    assert up.process.stdout is not None
    lines = iter(up.process.stdout.readline, "")
    printed = next(line for line in lines if line.startswith("Dashboard"))
    assert printed.split() == ["Dashboard", up.app_url]
    assert next(lines).strip() == PROVIDER_HINT
    command = [sys.executable, "-m", "backend.cli.entry", "login", "--data", str(up.data)]
    environment = {"PATH": "/usr/bin:/bin", "EBBLINE_APP_PORT": str(up.base + 31)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.strip(), done.stderr.strip()) == (up.app_url, PROVIDER_HINT)


def test_who_signs_in_acts_under_their_name_by_their_role_until_they_sign_out(
    up: UpProcess, provider_port: int, chromium: Browser
) -> None:
    with provider(provider_port) as address:
        page = signed_in(chromium, up, "ada")
        expect(page.get_by_role("button", name=re.compile("ada@example.org · operator"))).to_be_visible()
        page.get_by_role("button", name="Break it").first.click()
        assert wait_until("the audit has it", lambda: audit(up)) == [("ada@example.org", "break", "accepted")]

        looking = signed_in(chromium, up, "eve")
        expect(looking.get_by_role("button", name=re.compile("eve@example.org · viewer"))).to_be_visible()
        expect(looking.get_by_role("button", name="Break it").first).to_be_disabled()

        sign_out(page)
        page.get_by_role("heading", name="End Session").wait_for()  # the provider's own page
        page.goto(f"{up.app_url}/lab")
        asks_to_sign_in(page)

        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{address}/**")
        page.get_by_role("button", name="Deny").click()
        asks_to_sign_in(page)
    assert audit(up) == [("ada@example.org", "break", "accepted")]


def test_while_the_provider_is_away_who_is_signed_in_goes_on_and_others_are_told(
    up: UpProcess, provider_port: int, chromium: Browser
) -> None:
    with provider(provider_port):
        page = signed_in(chromium, up, "eve")
    page.reload()
    wait_until_drawn(page)
    expect(page.get_by_role("button", name=re.compile("eve@example.org"))).to_be_visible()

    other = new_page(chromium)
    other.goto(f"{up.app_url}/lab")
    other.get_by_role("button", name="Sign in").click()
    expect(other.get_by_role("alert")).to_contain_text("The sign-in could not begin")
    other.get_by_role("link", name="Try again").click()
    asks_to_sign_in(other)

    sign_out(page)
    asks_to_sign_in(page)
    log = (up.data / "logs" / "app.log").read_text()
    assert "ConnectError: All connection attempts failed" in log
    assert "Traceback" not in log


def audit(up: UpProcess) -> list[tuple[str, str, str]]:
    headers = {"Authorization": f"Bearer {up.operator_token}"}
    items = httpx.get(f"{up.api_url}/v1/audit", headers=headers, verify=False).json()["items"]
    return [(row["actor"], row["action"], row["result"]) for row in items]
