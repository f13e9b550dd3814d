"""A dead man's switch: a GET to a URL as long as the cluster is really watched. Others notice when it stops."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx

from backend.store.blind_spots import unwatched

TIMEOUT_S: Final = 10.0
START_S: Final = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchSigns:
    """Signs of life by the monotonic clock; None: there was none yet. `unjudged_s`: age of the oldest round that waits
    for the rules.
    """

    round_ended_s: float | None
    stored_s: float | None
    unjudged_s: float
    interval_s: float


def silent_part(signs: WatchSigns, now_s: float) -> str | None:
    """The part that does not work, in a sentence; None: the cluster is watched. A cluster that is away is watched."""

    def is_late(at_s: float | None) -> bool:
        return unwatched(None if at_s is None else (now_s - at_s) * 1000, signs.interval_s * 1000)

    if is_late(signs.round_ended_s):
        return "The observer has ended no round of samples for too long."
    if is_late(signs.stored_s):
        return "The database has taken no write for too long."
    if unwatched(signs.unjudged_s * 1000, signs.interval_s * 1000):
        return "Rounds of samples are not judged by the rules."
    return None


class LifeSignal:
    """Sends the heartbeat. Belongs to one event loop; without an address it does nothing."""

    def __init__(self, url: str | None, interval_s: float, signs: Callable[[], WatchSigns]) -> None:
        self._url = url
        self._interval_s = interval_s
        self._signs = signs
        self._problem: str | None = None
        self.sent_s: float | None = None
        """Time of day of the last one that was taken."""

    @property
    def enabled(self) -> bool:
        return self._url is not None

    async def run(self) -> None:
        """Until it is cancelled."""
        if self._url is None:
            return
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            # A start is no silence.
            await asyncio.sleep(min(self._interval_s, START_S))
            while True:
                problem = silent_part(self._signs(), time.monotonic())
                self._note(problem or await self._send(client, self._url))
                await asyncio.sleep(self._interval_s)

    async def _send(self, client: httpx.AsyncClient, url: str) -> str | None:
        try:
            response = await client.get(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"Its receiver does not answer ({type(error).__name__})."
        if not response.is_success:
            return f"Its receiver refuses it (HTTP {response.status_code})."
        self.sent_s = time.time()
        return None

    def _note(self, problem: str | None) -> None:
        """The log has each problem once, and the end of it."""
        if problem is not None and problem != self._problem:
            _log.warning("No heartbeat is sent. %s", problem)
        elif problem is None and self._problem is not None:
            _log.info("The heartbeat is sent again")
        self._problem = problem
