"""Age of what a finding says, where that is not of now. Pure."""

from __future__ import annotations

from typing import Final

# A finding that holds is written again every 10 s, and a round may take some seconds more.
CURRENT_MS: Final = 25_000


def unseen_ms(seen_ms: int, closed_ms: int | None, now_ms: int) -> int | None:
    """How long ago an open finding was seen to hold; None: now, or it is closed.

    One that was seen before rests on facts of then: a right that shows it is missing, its topic or the backend is away,
    or its partition rests and its offsets are listed seldom.
    """
    age_ms = now_ms - seen_ms
    return age_ms if closed_ms is None and age_ms > CURRENT_MS else None
