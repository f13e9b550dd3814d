"""Pools of the remote log manager: bounds hold even if a caller gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from backend.engine.ports import tasks
from backend.engine.remote.bounded_pool import BoundedPool, PoolFull, to_its_end
from tests.unit.engine.virtual_time import run_virtual


class Work:
    """Pieces of work that end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.gate = asyncio.Event()

    def piece(self, name: str) -> Callable[[], Coroutine[Any, Any, str]]:
        async def run() -> str:
            self.begun.append(name)
            await to_its_end(tasks.start(self.gate.wait(), name=name))
            self.ended.append(name)
            return name

        return run


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def play(scene: Callable[[Work], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await scene(Work())

    run_virtual(run())


def test_no_more_run_than_the_size_and_no_more_wait_than_the_queue_holds() -> None:
    async def scene(work: Work) -> None:
        pool = BoundedPool(lambda: 2, pending_max=1)
        running = [tasks.start(pool.run(work.piece(name)), name=name) for name in "abc"]
        await settle()
        assert (work.begun, pool.running, pool.pending) == (["a", "b"], 2, 1)
        with pytest.raises(PoolFull):
            await pool.run(work.piece("d"))
        work.gate.set()
        assert await tasks.gather(running) == ["a", "b", "c"]
        assert (pool.running, pool.pending, pool.idle_fraction) == (0, 0, 1.0)

    play(scene)


def test_who_gives_up_while_waiting_leaves_the_queue_at_once() -> None:
    async def scene(work: Work) -> None:
        pool = BoundedPool(lambda: 1, pending_max=1)
        first, second = (tasks.start(pool.run(work.piece(name)), name=name) for name in "ab")
        await settle()
        second.cancel()
        await settle()
        assert pool.pending == 0
        third = tasks.start(pool.run(work.piece("c")), name="c")
        work.gate.set()
        assert await tasks.gather([first, third]) == ["a", "c"]
        assert work.begun == ["a", "c"]

    play(scene)


def test_a_place_is_free_only_when_the_call_to_the_storage_has_ended() -> None:
    async def scene(work: Work) -> None:
        pool = BoundedPool(lambda: 1)
        first = tasks.start(pool.run(work.piece("a")), name="a")
        second = tasks.start(pool.run(work.piece("b")), name="b")
        await settle()
        first.cancel()
        await settle()
        assert (work.begun, pool.running) == (["a"], 1)
        work.gate.set()
        assert await second == "b"
        await settle()
        assert first.cancelled()
        # The work ended with the call it was at.
        assert work.ended == ["b"]
        assert pool.running == 0

    play(scene)


def test_a_failure_nobody_waits_for_frees_the_place_and_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(work: Work) -> None:
        async def fails() -> None:
            await work.gate.wait()
            raise ValueError("nobody hears this")

        pool = BoundedPool(lambda: 1)
        running = tasks.start(pool.run(lambda: to_its_end(tasks.start(fails(), name="call"))), name="fails")
        await settle()
        running.cancel()
        await settle()
        work.gate.set()
        await settle()
        assert pool.running == 0

    play(scene)
    assert not caplog.records
