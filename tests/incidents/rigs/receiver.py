"""A receiver of notices: an HTTP server that takes each message and notes when it came."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.incidents.timeline import SentNotice


class Receiver:
    """A context manager on a free port. `notices` are those of the product's JSON webhook, in the order they came;
    `beats`: when its heartbeat came.
    """

    def __init__(self) -> None:
        self.notices: list[SentNotice] = []
        self.beats: list[float] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            # Without it a connection ends after each message.
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                receiver.notices += notices_of(body, time.monotonic())
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                receiver.beats.append(time.monotonic())
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """The notices are the record."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="receiver", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    @property
    def heartbeat_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/beat"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def notices_of(body: bytes, at_s: float) -> list[SentNotice]:
    """One message is one notice, whatever it holds: a digest calls a person once."""
    message = json.loads(body)
    finding = message.get("finding") or {}
    return [
        SentNotice(
            at_s,
            str(message.get("event", "unknown")),
            str(finding.get("slug", "unknown")),
            str(finding.get("object", "")),
            str(finding.get("severity", "")),
        )
    ]
