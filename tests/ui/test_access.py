"""Access to the dashboard: a page of another site has none, whatever name it has for this machine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import httpx
import pytest
from playwright.sync_api import Browser, expect

from backend.data_folder.dashboard_login import KEY_ASKED_FOR_S, DashboardLogin, login_url
from tests import browser
from tests.databases import new_sqlite
from tests.ports import free_ports
from tests.ui import seed
from tests.ui.served import Served, dashboard

EVIL: Final = "evil.example"
FRAMED_BY_NOBODY: Final = {"x-frame-options": "DENY", "content-security-policy": "frame-ancestors 'none'"}
OF_BROWSER: Final = pytest.mark.skipif(browser.executable() is None, reason=browser.NO_BROWSER)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    url = new_sqlite(folder / "ebbline.db")
    seed.seed(url, time.time_ns() // 1_000_000, trouble=True, interval_ms=3_600_000)
    with dashboard(url, folder) as result:
        yield result


@pytest.fixture
def signed_in(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.address, verify=False) as client:
        answer = client.get("/login", params={"key": new_key(served)})
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        yield client


def new_key(served: Served) -> str:
    return DashboardLogin(served.folder / "run").new_key(time.time(), KEY_ASKED_FOR_S)


def upgraded(served: Served, **headers: str) -> str:
    """The first line of the answer to a WebSocket's handshake."""
    host, port = served.address.removeprefix("http://").split(":")
    request_headers = {"Host": f"{host}:{port}", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in request_headers.items())
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            f"GET /_stcore/stream HTTP/1.1\r\n{lines}Upgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: streamlit\r\n\r\n".encode()
        )
        return connection.recv(4096).decode().partition("\r\n")[0]


def test_the_websocket_is_for_the_own_address_the_own_pages_and_who_signed_in(
    served: Served, signed_in: httpx.Client
) -> None:
    port = served.address.rpartition(":")[2]
    (cookie,) = (f"{name}={value}" for name, value in signed_in.cookies.items())
    assert " 421 " in upgraded(served, Host=f"{EVIL}:{port}", Origin=f"http://{EVIL}:{port}", Cookie=cookie)
    assert " 403 " in upgraded(served, Origin=f"http://{EVIL}:{port}", Cookie=cookie)
    assert " 403 " in upgraded(served, Origin="http://127.0.0.1:1", Cookie=cookie)
    assert " 401 " in upgraded(served, Origin=served.address)
    assert " 401 " in upgraded(served, Origin=served.address, Cookie=cookie[:-1] + "x")
    assert " 101 " in upgraded(served, Origin=served.address, Cookie=cookie)
    # Asking an outside service for the own address took two seconds of everybody's time for each of these.
    assert "external IP" not in (served.folder / "app.log").read_text()


ROUTES: Final = (
    "/",
    "/lab",
    "/overview",
    "/login",
    "/_stcore/health",
    "/_stcore/metrics",
    "/_stcore/host-config",
    "/static/js/none.js",
    "/media/none",
    "/app/static/mark.svg",
    "/nothing/at/all",
    "/auth/login",
    "/oauth2callback",
)


@pytest.mark.parametrize("path", ROUTES)
def test_every_route_is_behind_the_gate_and_framed_by_nobody(
    served: Served, signed_in: httpx.Client, path: str
) -> None:
    port = served.address.rpartition(":")[2]
    foreign = signed_in.get(path, headers={"Host": f"{EVIL}:{port}"})
    assert foreign.status_code == 421
    assert signed_in.get(path, headers={"Origin": f"http://{EVIL}"}).status_code == 403
    assert signed_in.post(path, headers={"Origin": f"http://{EVIL}"}).status_code == 403
    for answer in (foreign, signed_in.get(path)):
        assert answer.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ROUTES)
def test_without_a_session_only_health_pictures_and_the_login_are_there(served: Served, path: str) -> None:
    answer = httpx.get(served.address + path, verify=False)
    is_open = path in ("/_stcore/health", "/app/static/mark.svg")
    assert answer.status_code == (200 if is_open else 401)
    assert ("Sign in" in answer.text) is not is_open


def test_a_key_is_taken_out_of_the_address_and_works_once(served: Served) -> None:
    link = login_url(served.address, new_key(served))
    first = httpx.get(link, verify=False)
    assert (first.status_code, first.headers["location"]) == (303, "./")
    kept = first.headers["set-cookie"]
    assert "HttpOnly" in kept
    assert "SameSite=strict" in kept
    assert "Path=" not in kept
    assert "Secure" not in kept
    second = httpx.get(link, verify=False)
    assert second.status_code == 401
    assert "ebbline login" in second.text
    assert "set-cookie" not in second.headers


def test_a_prefetch_does_not_use_the_key_up(served: Served) -> None:
    link = login_url(served.address, new_key(served))
    assert httpx.get(link, headers={"Sec-Purpose": "prefetch"}, verify=False).status_code == 503
    assert httpx.get(link, verify=False).status_code == 303


@pytest.mark.parametrize(
    ("following", "goes"),
    [
        ("partition?tp=orders-7&range=1h", "./partition?tp=orders-7&range=1h"),
        ("?range=6h", "./?range=6h"),
        ("//evil.example/", "./"),
        ("https://evil.example/", "./"),
        ("/\\evil.example", "./"),
        ("partition/../../x", "./"),
        ("javascript:alert(1)", "./"),
    ],
)
def test_the_page_that_was_asked_for_follows_and_no_other_site(served: Served, following: str, goes: str) -> None:
    form = {"key": new_key(served), "next": following}
    answer = httpx.post(f"{served.address}/login", data=form, headers={"Origin": served.address}, verify=False)
    assert (answer.status_code, answer.headers["location"]) == (303, goes)


def test_a_form_that_is_too_long_or_odd_is_refused(served: Served) -> None:
    long = httpx.post(f"{served.address}/login", content=b"x" * 100_000, verify=False)
    assert long.status_code == 413
    odd = httpx.post(f"{served.address}/login", content=b"key=%ff%00&next=%0d%0aSet-Cookie:x", verify=False)
    assert odd.status_code == 401
    assert "set-cookie" not in odd.headers


def test_the_login_page_shows_no_markup_of_others(served: Served) -> None:
    page = httpx.get(f'{served.address}/lab?x="><script>alert(1)</script>', verify=False).text
    assert "<script>" not in page


def test_the_first_page_stands_under_its_name_too(signed_in: httpx.Client) -> None:
    answer = signed_in.get("/overview?range=6h")
    assert (answer.status_code, answer.headers["location"]) == (307, "./?range=6h")


def test_the_cookie_is_kept_to_tls_behind_a_proxy(tmp_path: Path) -> None:
    url = new_sqlite(tmp_path / "ebbline.db")
    with dashboard(url, tmp_path, EBBLINE_PUBLIC_URL="https://ops.example.org") as result:
        proxied = {"Host": "ops.example.org", "Origin": "https://ops.example.org"}
        answer = httpx.get(f"{result.address}/login", params={"key": new_key(result)}, headers=proxied, verify=False)
        assert answer.status_code == 303
        assert "Secure" in answer.headers["set-cookie"]
        assert " 401 " in upgraded(result, Origin="https://ops.example.org")
        assert " 421 " in upgraded(result, Host="other.example.org")
        assert "external IP" not in (result.folder / "app.log").read_text()


SECRETS: Final = """
[auth]
redirect_uri = "http://127.0.0.1:8501/oauth2callback"
cookie_secret = "for a test"
client_id = "ebbline"
client_secret = "for a test"
server_metadata_url = "http://127.0.0.1:1/.well-known/openid-configuration"
"""


def test_with_a_provider_the_sign_in_is_the_provider_s_and_addresses_are_checked_all_the_same(tmp_path: Path) -> None:
    url = new_sqlite(tmp_path / "ebbline.db")
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "secrets.toml").write_text(SECRETS)
    with dashboard(url, tmp_path, HOME=str(tmp_path)) as result:
        assert httpx.get(f"{result.address}/lab", verify=False).status_code == 200
        assert " 101 " in upgraded(result, Origin=result.address)
        assert " 403 " in upgraded(result, Origin=f"http://{EVIL}")
        assert " 421 " in upgraded(result, Host=EVIL)
        assert httpx.get(f"{result.address}/lab", headers={"Host": EVIL}, verify=False).status_code == 421


@contextmanager
def site(markup: str) -> Iterator[int]:
    """A page of somebody, at every name of this machine; its port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(markup.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    (port,) = free_ports(1)
    server = ThreadingHTTPServer(("127.0.0.1", port), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def rebound() -> Iterator[Browser]:
    """A browser for which the name of somebody's site leads to this machine."""
    with browser.browser(f"--host-resolver-rules=MAP {EVIL} 127.0.0.1") as started:
        yield started


@OF_BROWSER
def test_a_name_that_leads_here_shows_nothing_of_the_dashboard(served: Served, rebound: Browser) -> None:
    """DNS rebinding: the page is of the same origin as the dashboard then, and could press its buttons by script."""
    page = served.page(rebound)
    page.goto(served.address + "/lab")
    browser.wait_until_drawn(page)
    port = served.address.rpartition(":")[2]
    for path in ("/lab", "/nothing-there", "/login"):
        answer = page.goto(f"http://{EVIL}:{port}{path}")
        assert answer is not None
        assert answer.status == 421
        assert page.locator("button").count() == 0
    opened = page.evaluate(
        """port => new Promise(done => {
          const socket = new WebSocket(`ws://evil.example:${port}/_stcore/stream`, ['streamlit']);
          socket.onopen = () => done('open'); socket.onerror = () => done('refused');
        })""",
        port,
    )
    assert opened == "refused"
    page.context.close()


@OF_BROWSER
def test_a_page_of_another_site_neither_frames_it_nor_speaks_to_it_but_its_links_work(
    served: Served, rebound: Browser
) -> None:
    attack = f"""<a href="{served.address}/partition?tp=orders-7">a shared link</a><iframe src="{served.address}/lab">
      </iframe><script>
      const socket = new WebSocket("{served.address.replace("http", "ws")}/_stcore/stream", ["streamlit"]);
      socket.onopen = () => document.title = "open"; socket.onerror = () => document.title = "refused";
      </script>"""
    page = served.page(rebound)
    with site(attack) as port:
        for name in (EVIL, "127.0.0.1"):  # another program of this machine is of the same site, but another origin
            page.goto(f"http://{name}:{port}/")
            expect(page).to_have_title("refused")
            framed = page.frames[1]
            assert framed.locator(".stApp, button").count() == 0
        page.goto(f"http://{EVIL}:{port}/")
        page.get_by_role("link", name="a shared link").click()
        browser.wait_until_drawn(page)
        expect(page.get_by_role("heading", name="orders-7")).to_be_visible()
        assert page.url == f"{served.address}/partition?tp=orders-7"
    page.context.close()


@OF_BROWSER
def test_a_page_that_opens_the_dashboard_has_no_hold_of_it(served: Served, rebound: Browser) -> None:
    page = served.page(rebound)
    with site("<button onclick='window.opened = window.open(location.hash.slice(1))'>open</button>") as port:
        for name in (EVIL, "127.0.0.1"):
            page.goto(f"http://{name}:{port}/#{served.address}/lab")
            with page.expect_popup() as popup:
                page.get_by_role("button", name="open").click()
            browser.wait_until_drawn(popup.value)
            assert page.evaluate("() => window.opened.closed"), "the opener could send it messages"
            popup.value.close()
    page.context.close()


def test_no_other_site_s_page_may_steer_it_by_messages(signed_in: httpx.Client) -> None:
    assert signed_in.get("/_stcore/host-config").json()["allowedOrigins"] == []


@OF_BROWSER
def test_a_person_signs_in_on_the_page_and_is_where_they_wanted_to_be(served: Served, rebound: Browser) -> None:
    page = browser.new_page(rebound)
    page.goto(f"{served.address}/partition?tp=orders-7")
    page.get_by_label("Or paste the key of that link").fill("not a key")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("ebbline login")
    page.get_by_label("Or paste the key of that link").fill(new_key(served))
    page.get_by_role("button", name="Sign in").click()
    browser.wait_until_drawn(page)
    expect(page.get_by_role("heading", name="orders-7")).to_be_visible()
    assert "key" not in page.url
    assert page.evaluate("() => document.cookie.includes('ebbline_session')") is False
    page.context.close()
