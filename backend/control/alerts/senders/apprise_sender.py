"""Apprise: one call to a library that blocks, on a thread that nobody waits for longer than its timeout."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from backend.control.alerts.alert_texts import AlertText, ClusterName, text_of
from backend.control.alerts.notices import Notice
from backend.control.alerts.receiver_config import ReceiverConfig
from backend.control.alerts.receiver_queue import Delivery
from backend.control.alerts.senders.apprise_urls import PAGERDUTY, quiet_log
from backend.control.alerts.senders.send_result import TAKEN, SendOutcome, SendResult
from backend.control.findings.finding_context import CRITICAL, WARNING, FindingKey

# Its services wait 4 s for a connection and 4 s for an answer each, e-mail somewhat longer.
TIMEOUT_S: Final = 30.0
_STATUS: Final = re.compile(r"error=(\d{3})")
_TYPES: Final = {CRITICAL: "failure", WARNING: "warning"}


class AppriseSender:
    """Sends to the services of one receiver, all at once."""

    def __init__(self, config: ReceiverConfig, cluster: ClusterName) -> None:
        self._config = config
        self._cluster = cluster
        self._thread: threading.Thread | None = None

    async def send(self, delivery: Delivery, open_there: Mapping[FindingKey, Notice]) -> SendResult:
        """A text with a title."""
        del open_there
        key = None if delivery.digest else self._incident(delivery.notices[0].key)
        return await self._notify(text_of(delivery, self._cluster), key)

    async def test(self) -> SendResult:
        """A text that says that it is a test."""
        title = f"[test] {self._cluster.name}: ebbline reaches this receiver"
        return await self._notify(AlertText(title, "Nothing is wrong.", None))

    async def close(self) -> None:
        """A call that hangs is left to its end; its thread ends with the process."""

    def _incident(self, key: FindingKey) -> str:
        """PagerDuty's `dedup_key`, of 255 characters at most: the same from the opening of a finding to its end."""
        return hashlib.sha256("\0".join((self._cluster.cluster_id, *key)).encode()).hexdigest()

    async def _notify(self, text: AlertText, incident: str | None = None) -> SendResult:
        if self._thread is not None and self._thread.is_alive():
            return SendResult(SendOutcome.AGAIN, "the call before has not ended", in_doubt=True)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[SendResult] = loop.create_future()
        self._thread = threading.Thread(
            target=_run, args=(loop, ended, lambda: self._call(text, incident)), name="apprise", daemon=True
        )
        self._thread.start()
        done, _ = await asyncio.wait({ended}, timeout=TIMEOUT_S)
        if not done:
            ended.cancel()
            return SendResult(SendOutcome.AGAIN, f"no end within {TIMEOUT_S:.0f} s", in_doubt=True)
        self._thread = None  # its call has ended, though it may be alive for a moment
        return ended.result()

    def _call(self, text: AlertText, incident: str | None) -> SendResult:
        """On the thread. One service of several that fails has the message sent to all of them again."""
        quiet_log()
        from apprise import Apprise, NotifyFormat, NotifyType

        services = Apprise(log_level=logging.WARNING)
        for url in self._config.urls:
            services.add(url)
        if incident is not None:
            _name_incident(services, incident)
        kind = NotifyType(_TYPES.get(text.worst or "", "info")) if text.worst else NotifyType.SUCCESS
        with services.notify(
            body=text.body, title=text.title, notify_type=kind, body_format=NotifyFormat.TEXT, timeout=TIMEOUT_S
        ) as result:
            if result:
                return TAKEN
            statuses = {match[1] for entry in result.logs() if (match := _STATUS.search(entry.message))}
        reason = f"HTTP {', '.join(sorted(statuses))}" if statuses else "apprise says that it failed"
        return SendResult(SendOutcome.AGAIN, reason)


def _name_incident(services: Iterable[Any], incident: str) -> None:
    """Without a key each message, an end too, would open an incident. One that the URL has is the user's choice."""
    for service in services:
        if service.secure_protocol == PAGERDUTY and service.dedup is None:
            service.dedup, service.action = incident, "map"


def _run(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[SendResult], call: Callable[[], SendResult]) -> None:
    """Body of the thread: the result goes to the loop, if it is still there."""
    try:
        result = call()
    except Exception as error:  # a service of a hundred may raise anything; its text may hold the URL
        result = SendResult(SendOutcome.AGAIN, type(error).__name__)

    def deliver() -> None:
        if not ended.done():
            ended.set_result(result)

    with contextlib.suppress(RuntimeError):  # the loop has been closed
        loop.call_soon_threadsafe(deliver)
