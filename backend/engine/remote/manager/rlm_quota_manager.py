"""Limits of a broker's copies to the remote tier and reads from it (KIP-956; `RLMQuotaManager`, `RLMQuotaMetrics`).

A copy waits before its segment until the rate is within the bound, then counts the whole segment at once. A read that
finds the rate above the bound answers without records; bytes read are counted afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from backend.engine.common.rates import WindowedRate, Windows
from backend.engine.ports import Clock

# Kafka's metrics.num.samples and metrics.sample.window.ms.
SAMPLES: Final = 2
SAMPLE_WINDOW_MS: Final = 30_000


class ThrottleTimes:
    """Average and maximum of throttle times over the last minute (Kafka's Avg and Max)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # (start of the window, count, sum, maximum), the newest last; replaced as a whole, since a scrape may read it.
        self._samples: tuple[tuple[float, int, float, float], ...] = ()

    def record(self, throttle_ms: float) -> None:
        """One wait of a copy or a read."""
        now_ms = self._clock.monotonic_ms()
        samples = self._recent(now_ms)
        if samples and now_ms - samples[-1][0] < SAMPLE_WINDOW_MS:
            start_ms, count, total, most = samples[-1]
            samples = (*samples[:-1], (start_ms, count + 1, total + throttle_ms, max(most, throttle_ms)))
        else:
            samples = (*samples, (now_ms, 1, throttle_ms, throttle_ms))
        self._samples = samples[-SAMPLES:]

    def _recent(self, now_ms: float) -> tuple[tuple[float, int, float, float], ...]:
        return tuple(sample for sample in self._samples if now_ms - sample[0] < SAMPLES * SAMPLE_WINDOW_MS)

    @property
    def average_ms(self) -> float:
        """0 without any."""
        recent = self._recent(self._clock.monotonic_ms())
        count = sum(sample[1] for sample in recent)
        return sum(sample[2] for sample in recent) / count if count else 0.0

    @property
    def max_ms(self) -> float:
        """0 without any."""
        return max((sample[3] for sample in self._recent(self._clock.monotonic_ms())), default=0.0)


class RlmQuota:
    """One direction's bytes per second. `bound` is asked each time: it is a dynamic setting."""

    def __init__(self, clock: Clock, windows: Windows, bound: Callable[[], int]) -> None:
        self._clock = clock
        self._rate = WindowedRate(windows, simple=True)
        self._bound = bound
        self.throttled = ThrottleTimes(clock)

    def record(self, size_bytes: int) -> None:
        """Counts bytes that are moved now."""
        self._rate.record(size_bytes, self._clock.monotonic_ms())

    def throttle_ms(self) -> int:
        """Time until the rate is within the bound again; 0 when it is."""
        return self._rate.throttle_ms(self._bound(), self._clock.monotonic_ms())

    @property
    def bytes_per_second(self) -> float:
        """The rate that is held against the bound."""
        return self._rate.rate(self._clock.monotonic_ms())
