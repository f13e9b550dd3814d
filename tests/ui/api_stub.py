"""An HTTP server at the control API's place that refuses everything and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

REFUSAL: Final = "This server refuses everything."


class RefusingApi:
    """``calls`` are the requests that would change or plan something: ``POST /v1/plans``; ``roles`` of whom, ``bodies``
    what they held; ``answers`` to reads, by path.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.roles: list[str] = []
        self.bodies: list[Any] = []
        self.answers: dict[str, dict[str, object]] = {}
        calls, roles, bodies, answers = self.calls, self.roles, self.bodies, self.answers

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, answers.get(self.path, {"run": None}))

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                bodies.append(json.loads(content) if content else None)
                calls.append(f"POST {self.path}")
                roles.append(str(self.headers.get("X-Ebbline-Role")))
                self._answer(403, {"type": "urn:ebbline:forbidden", "title": "Forbidden", "detail": REFUSAL})

            def do_DELETE(self) -> None:
                calls.append(f"DELETE {self.path}")
                roles.append(str(self.headers.get("X-Ebbline-Role")))
                self._answer(403, {"type": "urn:ebbline:forbidden", "title": "Forbidden", "detail": REFUSAL})

            def _answer(self, status: int, body: dict[str, object]) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def refusing_api(folder: Path) -> Iterator[RefusingApi]:
    """The pages use it while the block runs."""
    api, token = RefusingApi(), folder / "app.token"
    token.write_text("secret")
    thread = threading.Thread(target=api.server.serve_forever, kwargs={"poll_interval": 0.02}, name="refusing-api")
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EBBLINE_API_URL", api.url)
            patch.setenv("EBBLINE_API_TOKEN_FILE", str(token))
            yield api
    finally:
        api.server.shutdown()
        api.server.server_close()
        thread.join()
