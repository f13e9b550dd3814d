"""A maintenance window as a person fills it in: what is wrong with it, and what the API is asked. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

MINUTE_MS: Final = 60_000
# As the API.
MINUTES_MAX: Final = 43_200
LENGTHS: Final = {
    "30 minutes": 30,
    "1 hour": 60,
    "2 hours": 120,
    "4 hours": 240,
    "8 hours": 480,
    "1 day": 1_440,
    "3 days": 4_320,
    "1 week": 10_080,
}
UNTIL: Final = "Until …"
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*?\[\]!-]{1,249}")


@dataclass(frozen=True, slots=True)
class MaintenanceInput:
    """The fields of the form. ``begins_ms`` None: now; ``minutes`` None: it ends at ``ends_ms``."""

    begins_ms: int | None
    minutes: int | None
    ends_ms: int | None
    slug: str | None
    topic: str
    broker_id: int | None
    reason: str


def epoch_ms(clock: datetime | None, zone: tzinfo | None) -> int | None:
    """A date and time of the form, which has no zone, in that of the page."""
    return None if clock is None else round(clock.replace(tzinfo=zone or UTC).timestamp() * 1000)


def refusal(given: MaintenanceInput, now_ms: int) -> str:
    """A sentence about what is to be mended first; empty: nothing."""
    begins_ms = given.begins_ms if given.begins_ms is not None else now_ms
    if given.topic and not _PATTERN.fullmatch(given.topic):
        return "The pattern has letters, digits, and . _ - * ? [ ]."
    if given.minutes is None and given.ends_ms is None:
        return "Say when it ends."
    ends_ms = begins_ms + _minutes(given, now_ms) * MINUTE_MS
    if ends_ms <= max(begins_ms, now_ms):
        return "It would have ended already: give a later end."
    if ends_ms - begins_ms > MINUTES_MAX * MINUTE_MS:
        return "A window is thirty days long at most."
    return "" if given.reason else "Give a reason first."


def body(given: MaintenanceInput, now_ms: int) -> dict[str, Any]:
    """The request. Its length is in whole minutes, so that it ends at the given end or within a minute after it."""
    return {
        "begins_ms": given.begins_ms,
        "minutes": _minutes(given, now_ms),
        "slug": given.slug,
        "topic": given.topic or None,
        "broker_id": given.broker_id,
        "reason": given.reason,
    }


def _minutes(given: MaintenanceInput, now_ms: int) -> int:
    if given.minutes is not None:
        return given.minutes
    begins_ms = given.begins_ms if given.begins_ms is not None else now_ms
    return -((begins_ms - (given.ends_ms or begins_ms)) // MINUTE_MS)
