"""Tasks of the control plane: a fault begins them again, a stop ends them."""

from __future__ import annotations

import asyncio

from backend.control.supervised_tasks import keep_running


def test_a_task_that_fails_as_it_is_cancelled_is_not_started_again() -> None:
    runs = 0
    began = asyncio.Event()

    async def run() -> None:
        nonlocal runs
        runs += 1
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("a clean-up that fails takes the place of the cancellation")

    async def stop() -> bool:
        task = asyncio.ensure_future(keep_running("clean-up", run))
        await began.wait()
        task.cancel()
        await asyncio.wait([task], timeout=5)
        return task.done()

    assert asyncio.run(stop())
    assert runs == 1
