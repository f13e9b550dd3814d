"""Faults of an object store, and the S3 server that has them for the embedded cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from werkzeug.serving import make_server
from werkzeug.wrappers import Response

from tests.s3_server import KEY, REGION, S3Server

FAULTS: Final = (
    "none",
    "refuse-writes",
    "refuse-writes-and-deletes",
    "refuse-reads",
    "slow-writes",
    "slow-reads",
    "hang-writes",
    "away",
)
WRITES, READS = frozenset({"PUT", "POST"}), frozenset({"GET", "HEAD"})
FORBIDDEN: Final = (
    '<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'
)
LOOK_S: Final = 0.1
# A request that hangs is let go at the latest then, so that no thread outlives its rig for long.
HANG_S_MAX: Final = 600.0


@dataclass(frozen=True, slots=True)
class StoreFaultNow:
    """The fault that holds now, for objects with `topic` in their name."""

    fault: str = "none"
    topic: str = ""
    delay_ms: int = 0


class FaultyS3(S3Server):
    """An S3 server on a port that stays, also over a time in which nobody listens there."""

    def __init__(self) -> None:
        super().__init__()
        self._now = StoreFaultNow()
        self.kept: dict[str, bytes] = {}
        """Objects that were taken away, for who puts them back."""

    @property
    def settings(self) -> dict[str, str]:
        """Environment of an `ebbline up` whose remote tier is here."""
        return {
            "EBBLINE_REMOTE_LOCATION": "s3://bucket/tier",
            "AWS_ENDPOINT": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": KEY,
            "AWS_ALLOW_HTTP": "true",
        }

    def fault(self, now: StoreFaultNow) -> None:
        was_away = self._now.fault == "away"
        self._now = now
        if now.fault == "away" and not was_away:
            self._listening(False)
        elif was_away and now.fault != "away":
            self._listening(True)

    def _listening(self, on: bool) -> None:
        if not on:
            self._port = self._server.server_port
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            return
        self._server = make_server("127.0.0.1", self._port, self._application, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3", daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        away = self._now.fault == "away"
        return f"http://127.0.0.1:{self._port if away else self._server.server_port}"

    def _application(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        self.requests.clear()
        now, method = self._now, environ["REQUEST_METHOD"]
        if now.topic in environ["PATH_INFO"]:
            refused = (
                (now.fault.startswith("refuse-writes") and method in WRITES)
                or (now.fault == "refuse-writes-and-deletes" and method == "DELETE")
                or (now.fault == "refuse-reads" and method in READS)
            )
            if refused:
                return Response(FORBIDDEN, status=403, mimetype="application/xml")(environ, start_response)
            if (now.fault == "slow-writes" and method in WRITES) or (now.fault == "slow-reads" and method in READS):
                time.sleep(now.delay_ms / 1000)
            if now.fault == "hang-writes" and method in WRITES:
                self._hang(now)
        return super()._application(environ, start_response)

    def _hang(self, now: StoreFaultNow) -> None:
        until_s = time.monotonic() + HANG_S_MAX
        while self._now is now and time.monotonic() < until_s:
            time.sleep(LOOK_S)

    def take_away(self, folders: str, segments: int) -> int:
        """Removes the objects of the first segments of folders with this text in their name; -1: of all."""
        client = self.client
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket")
        keys = sorted(entry["Key"] for page in pages for entry in page.get("Contents", []) if folders in entry["Key"])
        logs = [key for key in keys if key.endswith(".log")]
        chosen = logs if segments < 0 else logs[:segments]
        for key in keys:
            # Brokers go on to delete what is past its retention.
            if any(key.startswith(log.removesuffix(".log")) for log in chosen):
                with suppress(client.exceptions.NoSuchKey):
                    self.kept[key] = client.get_object(Bucket="bucket", Key=key)["Body"].read()
                    client.delete_object(Bucket="bucket", Key=key)
        return len(chosen)

    def put_back(self) -> None:
        for key, content in self.kept.items():
            self.client.put_object(Bucket="bucket", Key=key, Body=content)
        self.kept.clear()

    def close(self) -> None:
        with suppress(OSError):
            self.fault(StoreFaultNow())
            self.__exit__()
