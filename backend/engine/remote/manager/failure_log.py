"""Failures of reads from the remote tier, logged once a second and reported seldom.

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


class FailureLimit:
    """Lets a failure of each subject pass once an interval, and counts the others."""

    def __init__(self, clock: Clock, interval_ms: int) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        # Subject → (time of the last that passed, failures since then).
        self._passed: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def left_out(self, subject: str) -> int | None:
        """Failures since the last that passed, when this one passes; None: it is left out as well."""
        now_ms = self._clock.monotonic_ms()
        passed_ms, left_out = self._passed.get(subject, (-math.inf, 0))
        if now_ms - passed_ms < self._interval_ms:
            self._passed[subject] = (passed_ms, left_out + 1)
            return None
        self._passed[subject] = (now_ms, 0)
        self._passed.move_to_end(subject)
        if len(self._passed) > SUBJECTS_MAX:
            self._passed.popitem(last=False)
        return left_out


class FailureLog:
    """Warnings, at most one a second for each subject; the next one says how many were left out."""

    def __init__(self, clock: Clock) -> None:
        self._limit = FailureLimit(clock, INTERVAL_MS)

    def warn(self, subject: str, detail: str, error: Exception) -> None:
        """`subject` is what failed, `detail` what exactly was asked of it this time."""
        left_out = self._limit.left_out(subject)
        if left_out is None:
            return
        before = f" ({left_out} more before it)" if left_out else ""
        _log.warning("%s %s failed: %s%s", subject, detail, error, before)
