"""Wall and monotonic time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Time as the engine sees it; a simulator moves it by hand."""

    def time_ms(self) -> int:
        """Milliseconds since the Unix epoch (may jump)."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's clocks."""

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0
