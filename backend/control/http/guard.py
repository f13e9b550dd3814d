"""In front of every call: right host name, bounded body, bounded rate. Plain ASGI, so nothing is buffered twice."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.control.http.problems import Problem

# The largest honest body is a reassignment of 10,000 partitions: 100 bytes each.
BODY_BYTES_MAX: Final = 1 << 20
# A page of the dashboard makes a handful of calls; a script that polls ten plans makes ten a second.
RATE_PER_S: Final = 50.0
BURST: Final = 200.0
# One entry is about 200 bytes; loopback callers are few, so the limit is only against invention of tokens.
CALLERS_MAX: Final = 1_000
LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
# Probes and scrapes must work while a script floods the API.
UNLIMITED: Final = frozenset({"/healthz", "/readyz", "/metrics"})


class RateLimit:
    """A token bucket per caller."""

    def __init__(self, rate_per_s: float = RATE_PER_S, burst: float = BURST) -> None:
        self._rate_per_s, self._burst = rate_per_s, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now_s: float) -> float:
        """0 when the call may go on, else after how many seconds the next one may."""
        left, at_s = self._buckets.pop(caller, (self._burst, now_s))
        left = min(self._burst, left + (now_s - at_s) * self._rate_per_s)
        allowed = left >= 1.0
        self._buckets[caller] = (left - 1.0 if allowed else left, now_s)
        if len(self._buckets) > CALLERS_MAX:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._rate_per_s


class RequestGuard:
    """Answers what must not reach a handler."""

    def __init__(self, app: ASGIApp, *, limit: RateLimit | None = None) -> None:
        self._app = app
        self._limit = limit or RateLimit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
            await self._app(scope, _bounded(receive), send)
        except Problem as problem:
            await problem.response()(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        # Over TLS the certificate has named the server to the caller.
        if scope["scheme"] != "https" and not {host, host.rpartition(":")[0]} & LOOPBACK_HOSTS:
            # A web page elsewhere that resolves its own name to this machine (DNS rebinding).
            raise Problem(421, "wrong-host", "This API answers on 127.0.0.1 and localhost only.")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            raise _too_large()
        if scope["path"] in UNLIMITED:
            return
        client = scope.get("client") or ("", 0)
        caller = headers.get(b"authorization", b"").decode("latin-1") or str(client[0])
        wait_s = self._limit.take(caller, time.monotonic())
        if wait_s:
            retry = {"Retry-After": str(max(1, round(wait_s)))}
            raise Problem(429, "too-many-requests", "Too many requests; wait a moment.", headers=retry)


def _bounded(receive: Receive) -> Receive:
    """A body without a length is counted as it comes."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_BYTES_MAX:
            raise _too_large()
        return message

    return counted


def _too_large() -> Problem:
    return Problem(413, "too-large", f"A body may have {BODY_BYTES_MAX} bytes.")
