"""The end of one try to send a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from backend.control.alerts.notices import Notice
from backend.control.alerts.receiver_queue import Delivery
from backend.control.findings.finding_context import FindingKey


class SendOutcome(Enum):
    """The ways in which a try ends."""

    TAKEN = "taken"
    AGAIN = "again"
    """Later, with the newest state then."""
    REFUSED = "refused"
    """This message will never be taken; the next one may be."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """`reason` in a few words, without an address. `in_doubt`: the message may have arrived all the same."""

    outcome: SendOutcome
    reason: str | None = None
    in_doubt: bool = False


TAKEN: Final = SendResult(SendOutcome.TAKEN)


class AlertSender(Protocol):
    """Sends to one receiver. No call lasts longer than its timeout; nothing is raised."""

    async def send(self, delivery: Delivery, open_there: Mapping[FindingKey, Notice]) -> SendResult:
        """Sends a message; `open_there`: findings that the receiver has as open."""

    async def test(self) -> SendResult:
        """Sends a message that says that it is a test."""

    async def close(self) -> None:
        """Gives connections back."""
