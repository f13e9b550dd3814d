"""The backend's word on the database, as a page reads it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from app.control.backend_readiness import DatabaseReadiness, database_readiness
from tests.ports import free_ports


class Backend(HTTPServer):
    body = b""


class Handler(BaseHTTPRequestHandler):
    server: Backend

    def do_GET(self) -> None:
        self.send_response(503)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served
        served.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"database_responded_ms": 7, "checks": {"database": "It is locked."}}, DatabaseReadiness(7, "It is locked.")),
        ({"database_responded_ms": 7, "checks": {"database": None}}, DatabaseReadiness(7, None)),
        ({"database_responded_ms": "7", "checks": []}, DatabaseReadiness(None, None)),
        ([], None),
    ],
)
def test_what_a_page_takes_from_an_answer(backend: Backend, body: object, expected: DatabaseReadiness | None) -> None:
    backend.body = json.dumps(body).encode()
    assert database_readiness(f"http://127.0.0.1:{backend.server_port}") == expected


def test_a_backend_that_does_not_answer_says_nothing() -> None:
    assert database_readiness(f"http://127.0.0.1:{free_ports(1)[0]}") is None
    assert database_readiness("") is None
