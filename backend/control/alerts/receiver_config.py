"""A receiver as it is used: its texts resolved, its addresses checked. Values with secrets are in no `repr`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from backend.control.alerts.addresses import check_address
from backend.control.alerts.receiver_queue import DIGEST_ABOVE, QueuePolicy
from backend.control.alerts.senders.apprise_urls import check_apprise, names_pagerduty


class ReceiverKind(StrEnum):
    """The form in which a receiver takes findings."""

    WEBHOOK = "webhook"
    ALERTMANAGER = "alertmanager"
    APPRISE = "apprise"


@dataclass(frozen=True, slots=True)
class ReceiverConfig:
    """One receiver. `resend_s`: how often an open alert is sent again; None: once is enough."""

    name: str
    kind: ReceiverKind
    urls: tuple[str, ...] = field(repr=False)
    secret: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    digest_above: int | None = DIGEST_ABOVE
    resend_s: int | None = None

    def check(self) -> None:
        """Raises ValueError with one sentence, which does not show an address: it may hold a key."""
        for value in self.headers.values():
            if not value.isascii() or not value.isprintable():
                raise ValueError("the value of a header is no printable ASCII")
        for url in self.urls:
            if self.kind is ReceiverKind.APPRISE:
                check_apprise(url)
            else:
                check_address(url)

    @property
    def policy(self) -> QueuePolicy:
        """Alertmanager groups by itself, and takes many at once; the severity is part of an alert's identity there.

        PagerDuty groups by itself, too, and has an incident for each finding: that of a digest could not end.
        """
        if self.kind is ReceiverKind.ALERTMANAGER:
            return QueuePolicy(digest_above=None, batch_max=ALERTMANAGER_BATCH, every_severity=True)
        pages = self.kind is ReceiverKind.APPRISE and any(map(names_pagerduty, self.urls))
        return QueuePolicy(digest_above=None if pages else self.digest_above)


# 1 kB each: half of what Alertmanager's own clients send at once.
ALERTMANAGER_BATCH = 500
