"""Rates over sliding windows: the arithmetic of quotas (Kafka: `Rate`, `SimpleRate`, `TokenBucket`).

The caller gives the time; nothing here reads a clock. Rates are per second, in the unit of what is recorded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

MS_PER_S: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows over which a rate is sampled: `count`, the current one included, of `size_ms` (quota.window.*)."""

    count: int = 11
    size_ms: int = 1000


class WindowedRate:
    """The rate over the last windows. At most `count` + 1 samples are kept, 24 bytes of numbers each."""

    __slots__ = ("_samples", "_simple", "_windows")

    def __init__(self, windows: Windows, *, simple: bool = False) -> None:
        """The time before the first record counts as idle, all windows but one; `simple`: just the first window
        (Kafka's SimpleRate, which replication quotas use)."""
        self._windows = windows
        self._simple = simple
        # [start of the window, time of its last record, sum]
        self._samples: deque[list[float]] = deque()

    def record(self, value: float, now_ms: float) -> None:
        """Counts a value."""
        windows = self._windows
        if not self._samples or now_ms - self._samples[-1][0] >= windows.size_ms:
            self._samples.append([now_ms, now_ms, 0.0])
            if len(self._samples) > windows.count + 1:
                self._samples.popleft()
        sample = self._samples[-1]
        sample[1] = now_ms
        sample[2] += value

    def _measured(self, now_ms: float) -> tuple[float, float]:
        """Sum, and the time it is taken over. Changes nothing: metrics are read on another thread."""
        windows = self._windows
        oldest_ms = now_ms - windows.count * windows.size_ms
        recent = [sample for sample in self._samples if sample[1] > oldest_ms]
        elapsed_ms = now_ms - recent[0][0] if recent else 0.0
        total = sum(sample[2] for sample in recent)
        if self._simple:
            return total, max(elapsed_ms, float(windows.size_ms))
        missing = windows.count - 1 - int(elapsed_ms // windows.size_ms)
        return total, max(elapsed_ms + max(0, missing) * windows.size_ms, 1.0)

    def rate(self, now_ms: float) -> float:
        """Per second."""
        total, window_ms = self._measured(now_ms)
        return total / window_ms * MS_PER_S

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """Ms in which nothing may be recorded for the rate to fall to the bound (QuotaUtils.throttleTime); 0 within it.

        With the rate O over the window W, O * W / (W + X) = bound gives X = (O - bound) / bound * W.
        """
        total, window_ms = self._measured(now_ms)
        rate = total / window_ms * MS_PER_S
        return 0 if rate <= bound else round((rate - bound) / bound * window_ms)


class TokenBucket:
    """Permits that come back at a rate, up to as many as the windows hold (KIP-599); one request may overdraw it."""

    __slots__ = ("_rate", "_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows, rate: float, now_ms: float) -> None:
        """Full."""
        self._windows = windows
        self._rate = rate
        self._tokens = self._burst
        self._updated_ms = now_ms

    @property
    def _burst(self) -> float:
        return self._rate * self._windows.count * self._windows.size_ms / MS_PER_S

    def tokens(self, now_ms: float) -> float:
        """The tokens that are left; below 0 when overdrawn."""
        gained = self._rate * (now_ms - self._updated_ms) / MS_PER_S
        self._tokens = min(self._burst, self._tokens + gained)
        self._updated_ms = now_ms
        return self._tokens

    def set_rate(self, rate: float, now_ms: float) -> None:
        """The quota has changed; what is left stays, within the new burst."""
        self.tokens(now_ms)
        self._rate = rate

    def take(self, count: float, now_ms: float) -> None:
        """Takes permits, also ones that are not there; a negative count gives them back."""
        self._tokens = min(self._burst, self.tokens(now_ms) - count)

    def throttle_ms(self, now_ms: float) -> int:
        """Until nothing is overdrawn any more; 0 when nothing is."""
        tokens = self.tokens(now_ms)
        return 0 if tokens >= 0 else round(-tokens / self._rate * MS_PER_S)
