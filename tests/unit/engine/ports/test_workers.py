"""Worker threads: their work ends even if the caller gives up, and no caller waits for ever."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from backend.engine.ports import tasks
from backend.engine.ports.workers import ThreadWorkers


def play(scene: Callable[[ThreadWorkers], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        workers = ThreadWorkers(1)
        try:
            await asyncio.wait_for(scene(workers), 20.0)
        finally:
            workers.close()

    asyncio.run(run())


def fails() -> None:
    raise OSError("the disk is gone")


def test_a_result_and_a_failure_reach_the_one_who_waits() -> None:
    async def scene(workers: ThreadWorkers) -> None:
        assert await workers.run(threading.get_ident) != threading.get_ident()
        with pytest.raises(OSError, match="gone"):
            await workers.run(fails)

    play(scene)


@pytest.mark.parametrize("failing", [False, True])
def test_who_is_cancelled_meanwhile_is_so_once_the_work_has_ended(
    failing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(workers: ThreadWorkers) -> None:
        gate = threading.Event()

        def work() -> None:
            gate.wait()
            if failing:
                fails()

        async def waits() -> None:
            await workers.run(work)

        waiting = tasks.start(waits(), name="waits")
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0.05)
        assert not waiting.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    play(scene)
    assert not caplog.records


def test_who_waits_for_work_that_never_began_hears_of_it_when_the_workers_close() -> None:
    async def scene(workers: ThreadWorkers) -> None:
        gate = threading.Event()
        running, queued = workers.run(gate.wait), workers.run(threading.get_ident)
        threading.Timer(0.05, gate.set).start()
        workers.close()
        assert await running
        with pytest.raises(asyncio.CancelledError):
            await queued

    play(scene)


def test_who_asks_after_the_end_is_cancelled_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(workers: ThreadWorkers) -> None:
        async def step() -> None:
            await workers.run(fails)

        workers.close()
        # As a step that goes through although its caller was cancelled: nobody looks at its end.
        nobody_waits = tasks.start(step(), name="step")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert nobody_waits.cancelled()

    play(scene)
    gc.collect()
    assert caplog.records == []
