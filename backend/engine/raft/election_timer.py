"""Wakes a voter at its deadline, and measures how late: a stalled node could not hear the others meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from backend.engine.ports import Clock, tasks
from backend.engine.raft.election import hears_others
from backend.engine.raft.raft_state import RaftState

TICK_MS: Final = 50.0
# While the others are heard nothing is due for seconds: twenty checks a second would be half of what an idle node does.
# The price: of a hold-up in between only what is left after the next check is noticed, at most a quarter of the fetch
# timeout goes unnoticed.
IDLE_TICK_MS: Final = 500.0
# A clock that comes so much too late was held up: no node could be heard meanwhile. Half a tick, because on a machine
# that has too much to do many short delays in a row keep a node from hearing as one long one does.
STALL_MS: Final = TICK_MS / 2


class ElectionTimer:
    """One for a node. All on the loop's thread."""

    def __init__(self, clock: Clock, state: Callable[[], RaftState]) -> None:
        self._clock = clock
        self._state = state
        self._due: tasks.Future[float] | None = None
        self._timer: tasks.TimerHandle | None = None
        self._planned_ms = 0.0

    async def due(self) -> float:
        """Returns at the deadline, or when the clock comes too late; by how much.

        The checks are callbacks: a task that woke up for each would be a sixth of what an idle node costs.
        """
        self._due = tasks.future()
        self._schedule_check(self._clock.monotonic_ms())
        try:
            return await self._due
        finally:
            self._due = None
            if self._timer is not None:
                self._timer.cancel()

    def deadline_moved(self) -> None:
        """Call it whenever the state has changed: a check at the idle interval may be too late for the new deadline."""
        now_ms = self._clock.monotonic_ms()
        if self._due is None or self._timer is None or self._planned_ms <= now_ms + TICK_MS:
            return
        if self._state().deadline_ms < self._planned_ms:
            self._timer.cancel()
            self._schedule_check(now_ms)

    def wake(self) -> None:
        """Ends the wait of `due` now."""
        if self._due is not None and not self._due.done():
            self._due.set_result(0.0)

    def _check(self) -> None:
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - self._planned_ms
        if late_ms <= STALL_MS and now_ms < self._state().deadline_ms:
            self._schedule_check(now_ms)
        elif self._due is not None and not self._due.done():
            self._due.set_result(late_ms)

    def _schedule_check(self, now_ms: float) -> None:
        state, pause_ms = self._state(), TICK_MS
        if hears_others(state, now_ms):
            calm_ms = min(IDLE_TICK_MS, state.timing.fetch_timeout_ms / 4)
            pause_ms = max(TICK_MS, min(calm_ms, state.deadline_ms - now_ms))
        self._planned_ms = now_ms + pause_ms
        self._timer = tasks.call_later(pause_ms, self._check)
