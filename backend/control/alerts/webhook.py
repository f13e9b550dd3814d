"""Sends opening, change and closing of findings to one address: a POST of JSON each, in order, tried again on failure.

At most once: what waits when this process ends is lost; the table of findings keeps everything.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

import httpx

from backend.control.alerts.notices import Notice
from backend.control.findings.catalogue import runbook

# An hour of an outage with a notice every 4 s; 1 kB each.
WAITING_MAX: Final = 1_000
TIMEOUT_S: Final = 10.0
RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
# Of these the receiver may think better; any other refusal stays one.
RETRIED: Final = frozenset({408, 425, 429})
_log = logging.getLogger(__name__)


def check_address(url: str) -> str:
    """A usable address. Raises ValueError with one sentence, which does not show it: it may hold a key."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError("the webhook's address is none: give one like https://example.org/hook") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("the webhook's address is none: give one like https://example.org/hook")
    return url


class Webhook:
    """One sink. Belongs to one event loop; without an address it does nothing."""

    def __init__(self, url: str | None, cluster_id: str, cluster_name: str) -> None:
        self._url = url
        self._about = {"cluster_id": cluster_id, "cluster_name": cluster_name}
        self._waiting: deque[Notice] = deque()
        self._arrived = asyncio.Event()
        self.delivered = 0
        self.lost = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, notices: Iterable[Notice]) -> None:
        """Never waits. Of too many the oldest are lost, and counted."""
        if self._url is None:
            return
        self._waiting.extend(notices)
        while len(self._waiting) > WAITING_MAX:
            self._lose("too many wait")
        self._arrived.set()

    async def run(self) -> None:
        """Delivers until it is cancelled."""
        if self._url is None:
            return
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                while self._waiting:
                    await self._deliver(client, self._waiting[0])

    async def _deliver(self, client: httpx.AsyncClient, notice: Notice) -> None:
        """Until it is taken or refused for good, or more than WAITING_MAX have come after it."""
        headers = {"Ebbline-Delivery": secrets.token_hex(16)}
        pause_s = RETRY_FIRST_S
        while self._waiting and self._waiting[0] is notice:
            problem = await self._post(client, notice, headers)
            if problem is None:
                self.delivered += 1
                self._waiting.popleft()
                return
            again, cause = problem
            if not again:
                self._lose(cause)
                return
            _log.info("The webhook is tried again in %.0f s about %s: %s", pause_s, notice.slug, cause)
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_MAX_S, pause_s * 2)

    async def _post(
        self, client: httpx.AsyncClient, notice: Notice, headers: dict[str, str]
    ) -> tuple[bool, str] | None:
        """None when it was taken; else whether to try again, and why it was not."""
        assert self._url is not None
        try:
            response = await client.post(self._url, json=self._body(notice), headers=headers)
        except httpx.HTTPError as error:
            return True, type(error).__name__
        if response.is_success:
            return None
        return response.status_code >= 500 or response.status_code in RETRIED, f"HTTP {response.status_code}"

    def _body(self, notice: Notice) -> dict[str, Any]:
        finding = asdict(notice)
        return {
            "version": 1,
            "event": str(finding.pop("event")),
            "at_ms": finding.pop("at_ms"),
            **self._about,
            "finding": finding | {"runbook": runbook(notice.slug)},
        }

    def _lose(self, cause: str) -> None:
        notice = self._waiting.popleft()
        self.lost += 1
        _log.warning("The webhook was not told that %s of %s %s: %s", notice.slug, notice.object, notice.event, cause)
