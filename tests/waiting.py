"""Waiting in tests: until something is so, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PAUSE_S = 0.05


def wait_until(what: str, probe: Callable[[], T], timeout_s: float = 60.0) -> T:
    """First true answer of ``probe``; AssertionError naming ``what`` after the time."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = probe()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(PAUSE_S)


def wait_until_none(what: str, probe: Callable[[], list[str]], timeout_s: float = 60.0) -> None:
    """Waits until ``probe`` finds nothing more; AssertionError with what it still finds after the time."""
    deadline = time.monotonic() + timeout_s
    while found := probe():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}; {len(found)} left: {found[:3]}"
        time.sleep(PAUSE_S)
