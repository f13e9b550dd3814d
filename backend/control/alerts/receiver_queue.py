"""The queue of one receiver: of each cause the newest state that it does not have yet. Pure: no clock, no network.

It compares the open findings after each round with those that were delivered. A finding that opens and closes before
its opening was delivered leaves no message; one that the receiver knows is followed to its end, wherever routes lead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from backend.control.alerts.notices import Notice, NoticeEvent, OpenAlerts
from backend.control.findings.finding_context import SEVERITIES, FindingKey

# Ten rules at their limit of 1,000 objects, and as many that have ended while the receiver was away; each waits once,
# with its newest state. A notice has 1 kB and is shared by all receivers: 20 MB. Beyond it no opening waits, and
# `superseded` counts it. Ends of what the receiver has always wait, else it would be open there for good: each is of an
# opening that had room when it was sent, so they are at most 20,000 and what was open then, 10,000: 30 MB.
WAITING_MAX: Final = 20_000
DIGEST_ABOVE: Final = 10


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Forms in which a receiver takes messages.

    `digest_above`: of more that wait one digest is made; None: never. `batch_max`: notices of one message that is no
    digest. `every_severity`: a severity that falls is a message as well.
    """

    digest_above: int | None = DIGEST_ABOVE
    batch_max: int = 1
    every_severity: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """Notices that go out as one message."""

    notices: tuple[Notice, ...]
    digest: bool = False


class ReceiverQueue:
    """Belongs to one receiver. `waiting`, in the order of arrival, and what the receiver has as open."""

    def __init__(self, policy: QueuePolicy, delivered: Iterable[Notice] = ()) -> None:
        """`delivered`: open at the receiver, from the process before."""
        self.policy = policy
        self._delivered: dict[FindingKey, Notice] = {notice.key: notice for notice in delivered}
        # Sent, and whether it arrived is not known: the end has to be sent too.
        self._doubtful: dict[FindingKey, Notice] = {}
        self._waiting: dict[FindingKey, Notice] = {}
        self._alerts: OpenAlerts | None = None
        self._without_room: frozenset[FindingKey] = frozenset()
        self.superseded = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def delivered(self) -> Sequence[Notice]:
        """Findings that the receiver has as open."""
        return [*self._delivered.values(), *(n for k, n in self._doubtful.items() if k not in self._delivered)]

    def update(self, alerts: OpenAlerts, chosen: Collection[FindingKey]) -> None:
        """Takes the state after a round; `chosen`: open findings that routes lead to this receiver."""
        self._alerts = alerts
        followed = {**self._doubtful, **self._delivered}
        for key, notice in alerts.open.items():
            before = self._delivered.get(key)
            if before is not None:
                self._compare(before, notice, alerts.at_ms)
            elif key in chosen or key in self._doubtful:
                self._waiting[key] = notice
            else:
                self._waiting.pop(key, None)
        for key in [key for key in self._waiting if key not in alerts.open and key not in followed]:
            del self._waiting[key]
        for key, before in followed.items():
            if key in alerts.withheld:
                self._waiting.pop(key, None)
            elif key not in alerts.open and not self._is_closing(key):
                self._close(before, alerts)
        self._bound()

    def next_delivery(self) -> Delivery | None:
        """The next message; None: there is nothing to send."""
        if not self._waiting:
            return None
        notices = tuple(self._waiting.values())
        if self.policy.digest_above is not None and len(notices) > self.policy.digest_above:
            return Delivery(notices, digest=True)
        return Delivery(notices[: self.policy.batch_max])

    def mark_delivered(self, delivery: Delivery) -> None:
        """The receiver took it. A newer state that arrived meanwhile goes on waiting."""
        for notice in delivery.notices:
            key = notice.key
            newest = self._waiting.pop(key, None)
            self._doubtful.pop(key, None)
            if notice.event is NoticeEvent.CLOSED:
                self._delivered.pop(key, None)
                if newest is not None and newest.event is not NoticeEvent.CLOSED:
                    self._waiting[key] = replace(newest, event=NoticeEvent.OPENED)
                continue
            self._delivered[key] = notice
            if newest is not None and newest.event is NoticeEvent.CLOSED:
                self._waiting[key] = replace(newest, severity=notice.severity)
            elif newest is not None:
                self._compare(notice, newest, newest.at_ms)
            elif self._alerts is not None and key not in self._alerts.open and key not in self._alerts.withheld:
                self._close(notice, self._alerts)  # it ended while its opening was on its way

    def mark_doubtful(self, delivery: Delivery) -> None:
        """It may have arrived: no answer came."""
        for notice in delivery.notices:
            if notice.event is not NoticeEvent.CLOSED and notice.key not in self._delivered:
                self._doubtful[notice.key] = notice

    def still_open(self) -> list[Notice]:
        """Findings that the receiver has as open and that are, as they are now."""
        if self._alerts is None:
            return []
        return [self._alerts.open[key] for key in self._delivered if key in self._alerts.open]

    def _compare(self, before: Notice, notice: Notice, at_ms: int) -> None:
        rises = SEVERITIES.index(notice.severity) < SEVERITIES.index(before.severity)
        if rises or (self.policy.every_severity and notice.severity != before.severity):
            # In its place in the order, if it waits already.
            self._waiting[notice.key] = replace(notice, event=NoticeEvent.CHANGED, at_ms=at_ms)
        else:
            self._waiting.pop(notice.key, None)

    def _close(self, before: Notice, alerts: OpenAlerts) -> None:
        cause = alerts.explained.get(before.key)
        self._waiting.pop(before.key, None)
        self._waiting[before.key] = replace(before, event=NoticeEvent.CLOSED, at_ms=alerts.at_ms, cause=cause)

    def _is_closing(self, key: FindingKey) -> bool:
        notice = self._waiting.get(key)
        return notice is not None and notice.event is NoticeEvent.CLOSED

    def _bound(self) -> None:
        """Drops openings that nobody was sent, the mildest and latest first; an open one is back when there is room."""
        excess = len(self._waiting) - WAITING_MAX
        dropped: list[FindingKey] = []
        if excess > 0:
            unsent = [key for key in self._waiting if key not in self._delivered and key not in self._doubtful]
            dropped = sorted(unsent, key=lambda key: SEVERITIES.index(self._waiting[key].severity))[-excess:]
        for key in dropped:
            del self._waiting[key]
        without_room = frozenset(dropped)
        self.superseded += len(without_room - self._without_room)
        self._without_room = without_room
