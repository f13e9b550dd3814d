"""Failures of reads from the remote tier, logged once a second.

Consumers come back at once: fifty of them at a store that refuses everything would write thousands of lines a second.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from typing import Final

from backend.engine.ports import Clock

INTERVAL_MS: Final = 1000
# Subjects that are remembered, at 300 bytes each; the oldest is dropped first and may be logged again too soon.
SUBJECTS_MAX: Final = 1000

_log = logging.getLogger(__name__)


class FailureLog:
    """Warnings, at most one a second for each subject; the next one says how many were left out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Subject → (time of its last line, failures since then).
        self._logged: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def warn(self, subject: str, detail: str, error: Exception) -> None:
        """`subject` is what failed, `detail` what exactly was asked of it this time."""
        now_ms = self._clock.monotonic_ms()
        told_ms, left_out = self._logged.get(subject, (-math.inf, 0))
        if now_ms - told_ms < INTERVAL_MS:
            self._logged[subject] = (told_ms, left_out + 1)
            return
        self._logged[subject] = (now_ms, 0)
        self._logged.move_to_end(subject)
        if len(self._logged) > SUBJECTS_MAX:
            self._logged.popitem(last=False)
        before = f" ({left_out} more before it)" if left_out else ""
        _log.warning("%s %s failed: %s%s", subject, detail, error, before)
