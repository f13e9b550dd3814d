"""The client gives a plan or one sentence, however the control API behaves. A real server answers, badly if needed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.access.identity import OPERATOR, User
from app.control.api_client import ApiAway, ApiRefused, ControlApi
from backend.store.queries.audit import OperationRow

PLAN: dict[str, Any] = dict.fromkeys(OperationRow.__slots__) | {"id": 7, "kind": "toggle_bootstrap", "state": "checked"}
Answer = tuple[int, bytes] | None  # None: the connection is cut


class Server:
    """Answers every POST with what the test wants and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer: Answer = (201, json.dumps({"plan": PLAN}).encode())
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.requests.append((self.path, headers, body))
                if outer.answer is None:
                    self.connection.close()
                    return
                status, content = outer.answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def api(server: Server, tmp_path: Path) -> ControlApi:
    (tmp_path / "app.token").write_text("secret\n")
    return ControlApi(server.url, str(tmp_path / "app.token"), User("Zoë Łuk", OPERATOR))


def test_a_plan_is_asked_for_in_the_person_s_name(server: Server, api: ControlApi) -> None:
    assert api.plan("toggle_bootstrap", {"enable": True}).id == 7
    path, headers, body = server.requests[0]
    assert (path, body) == ("/v1/plans", {"kind": "toggle_bootstrap", "inputs": {"enable": True}})
    assert headers["authorization"] == "Bearer secret"
    assert (headers["x-ebbline-actor"], headers["x-ebbline-role"]) == ("Zoë ?uk", "operator")


def test_an_execution_carries_key_confirmation_and_reason(server: Server, api: ControlApi) -> None:
    api.execute(7, key="k-1", confirm="demo", reason="because")
    path, headers, body = server.requests[0]
    assert (path, headers["idempotency-key"]) == ("/v1/plans/7/execute", "k-1")
    assert (body["confirm"], body["reason"]) == ("demo", "because")


def test_a_problem_becomes_its_sentence(server: Server, api: ControlApi) -> None:
    problem = {"type": "urn:ebbline:problem:stale-plan", "title": "Conflict", "detail": "The cluster has changed."}
    server.answer = (409, json.dumps(problem).encode())
    with pytest.raises(ApiRefused, match=r"^The cluster has changed\.$") as caught:
        api.revert(7)
    assert (caught.value.status, caught.value.slug) == (409, "stale-plan")


@pytest.mark.parametrize("content", [b"<html>", b"[]", b"{}", b'{"plan": {"id": 7}}', b'{"plan": 7}', b"\xff"])
def test_an_answer_that_is_not_this_api_s_is_told_as_such(server: Server, api: ControlApi, content: bytes) -> None:
    server.answer = (200, content)
    with pytest.raises(ApiAway, match="not this version's API"):
        api.plan("toggle_bootstrap", {})


@pytest.mark.parametrize("status", [404, 500, 502])
def test_an_error_without_json_is_one_sentence_too(server: Server, api: ControlApi, status: int) -> None:
    server.answer = (status, b"Bad Gateway")
    with pytest.raises(ApiAway, match="not this version's API"):
        api.execute(7, key="k", confirm="demo", reason="r")


def test_a_dry_run_of_another_version_is_not_mistaken_for_one(server: Server, api: ControlApi) -> None:
    server.answer = (200, b'{"kind": "toggle_bootstrap"}')
    with pytest.raises(ApiAway, match="not this version's API"):
        api.dry_run("toggle_bootstrap", {})


def test_nobody_listening_means_that_nothing_was_changed(server: Server, api: ControlApi) -> None:
    server.close()
    with pytest.raises(ApiAway, match="nothing was changed") as caught:
        api.plan("toggle_bootstrap", {})
    assert caught.value.sent is False


def test_a_connection_cut_after_the_request_leaves_the_effect_open(server: Server, api: ControlApi) -> None:
    server.answer = None
    with pytest.raises(ApiAway, match="not known yet") as caught:
        api.execute(7, key="k", confirm="demo", reason="r")
    assert caught.value.sent is True


def test_a_missing_token_file_is_named(server: Server, tmp_path: Path) -> None:
    api = ControlApi(server.url, str(tmp_path / "none.token"), User("a", OPERATOR))
    with pytest.raises(ApiAway, match=r"none\.token.*restart `ebbline up`"):
        api.plan("toggle_bootstrap", {})
    assert server.requests == []


@pytest.mark.parametrize("url", ["", "nonsense", "http://127.0.0.1:99999"])
def test_an_address_that_is_none_is_one_sentence(url: str, tmp_path: Path) -> None:
    (tmp_path / "app.token").write_text("secret")
    with pytest.raises(ApiAway) as caught:
        ControlApi(url, str(tmp_path / "app.token"), User("a", OPERATOR)).plan("toggle_bootstrap", {})
    assert caught.value.sent is False
