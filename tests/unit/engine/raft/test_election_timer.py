"""A voter checks its deadline seldom while it is idle, and misses none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from immutables import Map

from backend.engine.ports import tasks
from backend.engine.raft import election as q
from backend.engine.raft.election_timer import IDLE_TICK_MS, TICK_MS, ElectionTimer
from backend.engine.raft.raft_state import RaftRole, RaftState, Timing, VoterProgress
from tests.simulation.loop import VirtualLoop
from tests.simulation.machine import VirtualClock

TIMING = Timing(election_timeout_ms=1_000, fetch_timeout_ms=6_000, backoff_max_ms=1_000)
FOLLOWER = RaftState(
    2, (1, 2, 3), TIMING, RaftRole.FOLLOWER, 4, leader_id=1, leader_contacted=True, deadline_ms=6_000.0
)


class Node:
    """A clock over a state that a test changes, on virtual time; counts the reads of the state."""

    def __init__(self, state: RaftState) -> None:
        self.loop = VirtualLoop()
        self.looks = 0
        self.state = state
        self.clock = ElectionTimer(VirtualClock(lambda: self.loop.now_ms, 0), self._current_state)

    def _current_state(self) -> RaftState:
        self.looks += 1
        return self.state

    def due_at_ms(self, events: dict[float, RaftState]) -> float:
        """When the clock says that something is due, while the state changes at these times."""

        def change(state: RaftState) -> None:
            self.state = state
            self.clock.deadline_moved()

        async def main() -> float:
            for at_ms, state in events.items():
                tasks.call_later(at_ms, partial(change, state))
            await self.clock.due()
            return self.loop.now_ms

        return self.loop.play(main())


def heard_at(ms: float) -> RaftState:
    return replace(FOLLOWER, deadline_ms=ms + TIMING.fetch_timeout_ms)


def test_a_follower_that_hears_its_leader_looks_twice_a_second() -> None:
    node = Node(FOLLOWER)
    heard = {float(ms): heard_at(ms) for ms in range(0, 60_000, 500)}
    assert node.due_at_ms(heard) >= 59_500 + TIMING.fetch_timeout_ms
    # A minute of calm, and the time-out after it in small steps; each check reads the state twice.
    calm, silent = 60_000 / IDLE_TICK_MS, TIMING.fetch_timeout_ms / TICK_MS
    assert node.looks < 4 * (calm + silent)


def test_a_silent_leader_is_given_up_within_a_tick_of_its_time() -> None:
    assert TIMING.fetch_timeout_ms <= Node(FOLLOWER).due_at_ms({}) <= TIMING.fetch_timeout_ms + TICK_MS


def test_a_deadline_that_comes_nearer_is_not_slept_through() -> None:
    resigned = replace(FOLLOWER, leader_contacted=False, deadline_ms=120.0)
    assert 120.0 <= Node(FOLLOWER).due_at_ms({110.0: resigned}) <= 120.0 + 2 * TICK_MS


def test_a_node_that_fails_is_not_waited_for() -> None:
    node = Node(FOLLOWER)

    async def main() -> float:
        tasks.call_later(70.0, node.clock.wake)
        await node.clock.due()
        return node.loop.now_ms

    assert node.loop.play(main()) == 70.0


def test_a_leader_is_calm_while_a_majority_fetches() -> None:
    progress = Map({2: VoterProgress(9, 100.0), 3: VoterProgress(9, 9_000.0)})
    leader = RaftState(1, (1, 2, 3), TIMING, RaftRole.LEADER, 4, leader_id=1, progress=progress)
    assert q.hears_others(leader, 9_400.0)
    assert not q.hears_others(leader, 9_000.0 + TIMING.fetch_timeout_ms / 4 + 1)
    assert not q.hears_others(replace(leader, role=RaftRole.CANDIDATE), 9_400.0)
    assert not q.hears_others(replace(leader, voters=(1,), progress=Map()), 9_400.0)


def test_a_clock_that_comes_late_says_by_how_much() -> None:
    async def main() -> float:
        clock = ElectionTimer(VirtualClock(lambda: asyncio.get_running_loop().time() * 1000, 0), lambda: FOLLOWER)
        waiting = asyncio.create_task(clock.due())
        await asyncio.sleep(0)
        clock._planned_ms -= 200.0  # as after a pause of the process
        return await waiting

    loop = VirtualLoop()
    assert loop.play(main()) == 200.0
