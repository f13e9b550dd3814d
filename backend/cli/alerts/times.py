"""Durations and moments as people write them on the command line. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION: Final = re.compile(r"(?:(\d{1,5})d)?(?:(\d{1,5})h)?(?:(\d{1,5})m)?(?:(\d{1,5})s)?")
MINUTES_MAX: Final = 43_200


def parse_minutes(text: str) -> int | None:
    """`90m`, `2h`, `1d12h` as minutes, a part of one as a whole; None: it is no duration, none at all, or over 30 d."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        return None
    seconds = sum(int(number or 0) * unit for number, unit in zip(match.groups(), _UNITS.values(), strict=True))
    minutes = -(-seconds // 60)
    return minutes if 1 <= minutes <= MINUTES_MAX else None


def parse_moment(text: str) -> int | None:
    """`2026-12-01T22:00` or `2026-12-01 22:00+01:00` in ms since the epoch; UTC when it names no zone. None: none."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    at_ms = int(moment.timestamp() * 1000)
    return at_ms if at_ms >= 0 else None
