"""One timer for all deadlines: never early, in order, nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from backend.engine.ports import Clock, tasks
from backend.engine.replica.deadlines import Deadlines
from tests.unit.engine.virtual_time import clock_here, run_virtual


class Waiting:
    def __init__(self, log: list[str], name: str, clock: Clock) -> None:
        self.log, self.name, self.clock = log, name, clock
        self.expired_ms: float | None = None

    def expire(self) -> None:
        self.log.append(self.name)
        self.expired_ms = self.clock.monotonic_ms()


def test_deadlines_expire_in_order_and_never_early() -> None:
    async def run() -> None:
        clock = clock_here()
        deadlines = Deadlines(clock)
        log: list[str] = []
        start_ms = clock.monotonic_ms()
        waiting = {delay: Waiting(log, str(delay), clock) for delay in (40, 5, 20, 0)}
        for delay, operation in waiting.items():
            deadlines.add(operation, delay)
        while len(log) < 4:
            await asyncio.sleep(0.005)
        assert log == ["0", "5", "20", "40"]
        for delay, operation in waiting.items():
            assert operation.expired_ms is not None
            assert operation.expired_ms - start_ms >= delay
        assert len(deadlines) == 0

    run_virtual(run())


def test_a_removed_deadline_never_expires() -> None:
    async def run() -> None:
        deadlines = Deadlines(clock_here())
        log: list[str] = []
        removed, other = Waiting(log, "one", clock_here()), Waiting(log, "other", clock_here())
        due = deadlines.add(removed, 5)
        deadlines.add(other, 5)
        deadlines.remove(removed, due)
        deadlines.remove(removed, due)
        while not log:
            await asyncio.sleep(0.005)
        assert log == ["other"]

    run_virtual(run())


def test_nobody_is_woken_for_requests_that_were_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that waits 100 ms and is answered every millisecond."""

    async def run() -> None:
        clock = MovedClock()
        deadlines = Deadlines(clock)
        armed: list[float] = []
        later = tasks.call_later

        def call_later(delay_ms: float, callback: Callable[[], object]) -> tasks.TimerHandle:
            armed.append(clock.now_ms + delay_ms)
            return later(60_000, callback)

        monkeypatch.setattr(tasks, "call_later", call_later)
        log: list[str] = []
        for _ in range(1_000):
            answered = Waiting(log, "answered", clock_here())
            due = deadlines.add(answered, 100)
            clock.now_ms += 1
            if clock.now_ms >= armed[-1]:
                deadlines._fire()
            deadlines.remove(answered, due)
        assert len(armed) <= 1_000 / 100 + 2
        deadlines.add(Waiting(log, "late", clock_here()), 100)
        while not log:
            assert clock.now_ms < armed[-1]
            clock.now_ms = armed[-1]
            deadlines._fire()
        assert log == ["late"]
        assert 1_100 <= clock.now_ms <= 1_102
        deadlines.close()

    run_virtual(run())


def test_close_leaves_no_timer() -> None:
    async def run() -> None:
        deadlines = Deadlines(clock_here())
        log: list[str] = []
        deadlines.add(Waiting(log, "late", clock_here()), 1)
        deadlines.close()
        await asyncio.sleep(0.02)
        assert log == []

    run_virtual(run())


class MovedClock:
    now_ms = 0.0

    def time_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return self.now_ms


class StillClock:
    def time_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return 123_456.7


@pytest.mark.parametrize("delay_ms", [0, 1, 63, 64, 500, 30_000, 86_400_000])
def test_a_deadline_is_late_by_at_most_a_64th(delay_ms: float) -> None:
    async def run() -> None:
        deadlines = Deadlines(StillClock())
        due = deadlines.add(Waiting([], "", clock_here()), delay_ms)
        deadlines.close()
        exact = 123_456.7 + delay_ms
        assert exact <= due <= exact + max(1.0, delay_ms / 64)

    run_virtual(run())
