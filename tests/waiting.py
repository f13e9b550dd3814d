"""Waiting in tests: until something is so, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PAUSE_S = 0.05
PAUSE_MAX_S = 0.5


def pause(began_s: float) -> None:
    """As long as the probe that began then took, within limits: one that asks brokers leaves them time to work."""
    time.sleep(min(max(PAUSE_S, time.monotonic() - began_s), PAUSE_MAX_S))


def wait_until(what: str, probe: Callable[[], T], timeout_s: float = 60.0) -> T:
    """First true answer of ``probe``; AssertionError naming ``what`` after the time."""
    deadline = time.monotonic() + timeout_s
    while True:
        began_s = time.monotonic()
        answer = probe()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        pause(began_s)


def wait_until_none(what: str, probe: Callable[[], list[str]], timeout_s: float = 60.0) -> None:
    """Waits until ``probe`` finds nothing more; AssertionError with what it still finds after the time."""
    deadline = time.monotonic() + timeout_s
    while True:
        began_s = time.monotonic()
        result = probe()
        if not result:
            return
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}; {len(result)} left: {result[:3]}"
        pause(began_s)
