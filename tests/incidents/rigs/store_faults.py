"""Faults of an object store, and the S3 server that has them for the embedded cluster."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    "refuse-deletes",
    "refuse-reads",
    "slow-writes",
    "slow-reads",
    "hang-writes",
    "away",
)
WRITES: Final = frozenset({"PUT", "POST"})
REFUSED: Final = {
    "refuse-writes": {"writes"},
    "refuse-writes-and-deletes": {"writes", "deletes"},
    "refuse-deletes": {"deletes"},
    "refuse-reads": {"reads"},
}
_KEY: Final = re.compile(rb"<Key>([^<]*)</Key>")
_KEY_REFUSED: Final = "<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
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
        now, call, keys = self._now, _call(environ), _listed_keys(environ)
        if any(now.topic in key for key in keys or [environ["PATH_INFO"]]):
            if call in REFUSED.get(now.fault, ()):
                return _refusal(keys)(environ, start_response)
            if now.fault == f"slow-{call}":
                time.sleep(now.delay_ms / 1000)
            if now.fault == f"hang-{call}":
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


def _call(environ: Mapping[str, Any]) -> str:
    """`writes`, `reads` or `deletes`, the last also by POST /bucket?delete, as obstore does it."""
    method = environ["REQUEST_METHOD"]
    if method == "DELETE" or _deletes_a_list(environ):
        return "deletes"
    return "writes" if method in WRITES else "reads"


def _deletes_a_list(environ: Mapping[str, Any]) -> bool:
    return environ["REQUEST_METHOD"] == "POST" and str(environ["QUERY_STRING"]).startswith("delete")


def _listed_keys(environ: dict[str, Any]) -> list[str]:
    """Names of the objects that the body of a deletion lists, as they stand there; the body can be read again."""
    if not _deletes_a_list(environ):
        return []
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return [key.decode() for key in _KEY.findall(body)]


def _refusal(keys: Sequence[str]) -> Response:
    """The answer of Amazon S3 to who may not: 403, and 200 with an error for each key of a list."""
    if not keys:
        return Response(FORBIDDEN, status=403, mimetype="application/xml")
    # Keys are escaped already, as they are in XML.
    rows = "".join(_KEY_REFUSED.format(key=key) for key in keys)
    text = f'<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{rows}</DeleteResult>'
    return Response(f'<?xml version="1.0" encoding="UTF-8"?>{text}', mimetype="application/xml")
