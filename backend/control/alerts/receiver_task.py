"""One receiver at work: its queue, the sender that empties it, and how that goes. Holds up nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

import httpx

from backend.control.alerts.alert_texts import ClusterName
from backend.control.alerts.notices import Notice, OpenAlerts
from backend.control.alerts.receiver_config import ReceiverConfig, ReceiverKind
from backend.control.alerts.receiver_queue import Delivery, ReceiverQueue
from backend.control.alerts.senders.alertmanager_sender import AlertmanagerSender
from backend.control.alerts.senders.apprise_sender import AppriseSender
from backend.control.alerts.senders.send_result import AlertSender, SendOutcome, SendResult
from backend.control.alerts.senders.webhook_sender import WebhookSender
from backend.control.findings.finding_context import FindingKey
from backend.control.wall_clock import now_ms

# As Alertmanager's group_wait, for one moment: a broker is away 0.2 s before metadata says which partitions have lost
# their leader with it, and that is one message with the severity that it comes to, not two.
GROUP_WAIT_S: Final = 1.0
RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReceiverStatus:
    """State of a receiver for people. `address` without path and secret; `failing_since_ms` null: the last try went
    well, or there was none.
    """

    name: str
    kind: str
    address: str
    waiting: int
    delivered: int
    refused: int
    superseded: int
    open_there: int
    last_delivered_ms: int | None
    failing_since_ms: int | None
    last_error: str | None


class ReceiverTask:
    """Belongs to one event loop."""

    def __init__(
        self,
        config: ReceiverConfig,
        cluster: ClusterName,
        delivered: Iterable[Notice] = (),
        on_delivery: Callable[[], None] = lambda: None,
    ) -> None:
        """`delivered`: open at the receiver from before; `on_delivery` is called when that has changed."""
        self.config = config
        self.queue = ReceiverQueue(config.policy, delivered)
        self._on_delivery = on_delivery
        self._sender, self._repeats = _sender(config, cluster)
        self._arrived = asyncio.Event()
        self._delivered = self._refused = 0
        self._last_delivered_ms: int | None = None
        self._failing_since_ms: int | None = None
        self._last_error: str | None = None

    @property
    def status(self) -> ReceiverStatus:
        """As it is now."""
        return ReceiverStatus(
            self.config.name,
            self.config.kind.value,
            shown_address(self.config),
            self.queue.waiting,
            self._delivered,
            self._refused,
            self.queue.superseded,
            len(self.queue.delivered),
            self._last_delivered_ms,
            self._failing_since_ms,
            self._last_error,
        )

    def update(self, alerts: OpenAlerts, chosen: Collection[FindingKey]) -> None:
        """The state after a round; never waits."""
        self.queue.update(alerts, chosen)
        if self.queue.waiting:
            self._arrived.set()

    async def test(self) -> SendResult:
        """Sends a message that says that it is a test, beside what waits."""
        return await self._sender.test()

    async def run(self) -> None:
        """Sends until it is cancelled."""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), self.config.resend_s)
                if self._arrived.is_set():
                    await asyncio.sleep(GROUP_WAIT_S)
                    self._arrived.clear()
                    await self._drain()
                elif self._repeats is not None and (open_now := self.queue.still_open()):
                    self._note(await self._repeats.resend(open_now))
        finally:
            await self._sender.close()

    async def _drain(self) -> None:
        """Until nothing waits. Each try sends what is newest then."""
        pause_s = RETRY_FIRST_S
        while (delivery := self.queue.next_delivery()) is not None:
            result = await self._sender.send(delivery, {notice.key: notice for notice in self.queue.delivered})
            self._note(result)
            if self._settled(delivery, result):
                pause_s = RETRY_FIRST_S
                continue
            await asyncio.sleep(pause_s)
            pause_s = min(RETRY_MAX_S, pause_s * 2)

    def _settled(self, delivery: Delivery, result: SendResult) -> bool:
        """Whether the message is done with."""
        match result.outcome:
            case SendOutcome.AGAIN:
                if result.in_doubt:
                    self.queue.mark_doubtful(delivery)
                return False
            case SendOutcome.REFUSED:
                self._refused += 1
                slugs = ", ".join(sorted({notice.slug for notice in delivery.notices}))
                _log.warning(
                    "The receiver %s refused a message of %s: %s", self.config.name, slugs[:200], result.reason
                )
            case SendOutcome.TAKEN:
                self._delivered += 1
                self._last_delivered_ms = now_ms()
        self.queue.mark_delivered(delivery)
        self._on_delivery()
        return True

    def _note(self, result: SendResult) -> None:
        """The log has the first failure of a row, and its end."""
        if result.outcome is SendOutcome.TAKEN:
            if self._failing_since_ms is not None:
                _log.info("The receiver %s takes messages again", self.config.name)
            self._failing_since_ms = self._last_error = None
            return
        if self._failing_since_ms is None:
            _log.warning("The receiver %s does not take messages: %s", self.config.name, result.reason)
            self._failing_since_ms = now_ms()
        self._last_error = result.reason


def _sender(config: ReceiverConfig, cluster: ClusterName) -> tuple[AlertSender, AlertmanagerSender | None]:
    match config.kind:
        case ReceiverKind.WEBHOOK:
            return WebhookSender(config, cluster), None
        case ReceiverKind.ALERTMANAGER:
            alertmanager = AlertmanagerSender(config, cluster)
            return alertmanager, alertmanager
        case ReceiverKind.APPRISE:
            return AppriseSender(config, cluster), None


def shown_address(config: ReceiverConfig) -> str:
    """`https://hooks.example.org`: paths and queries hold keys. Of apprise's URLs the host is a key as well."""
    if config.kind is ReceiverKind.APPRISE:
        return ", ".join(sorted({f"{url.partition('://')[0]}://…" for url in config.urls}))
    url = httpx.URL(config.urls[0])
    return f"{url.scheme}://{url.host}" + ("" if url.port is None else f":{url.port}")
