"""Cancelling and time-outs: what must not get lost between tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from backend.engine.ports import tasks
from tests.unit.engine.virtual_time import run_virtual


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(asyncio.wait_for(test(), 30))


def test_a_cancellation_that_comes_with_the_result_is_not_lost() -> None:
    async def play() -> None:
        answer: tasks.Future[int] = tasks.future()
        rounds = 0

        async def work() -> None:
            nonlocal rounds
            while True:
                await tasks.wait_for(answer if rounds == 0 else tasks.future(), 10_000)
                rounds += 1

        task = tasks.spawn(work(), name="worker")
        await tasks.sleep_ms(0)
        answer.set_result(1)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
        assert rounds == 0

    run(play)


def test_what_takes_too_long_is_cancelled_and_whoever_waited_is_not() -> None:
    async def play() -> None:
        answer: tasks.Future[int] = tasks.future()
        with pytest.raises(tasks.Timeout):
            await tasks.wait_for(answer, 0)
        assert answer.cancelled()
        task = tasks.current()
        assert task is not None
        assert not task.cancelling()
        assert await tasks.wait_for(_in_time(), 10_000) == 1

    async def _in_time() -> int:
        # The inner wait ends by its own time, the outer one is not over.
        with pytest.raises(tasks.Timeout):
            await tasks.wait_for(tasks.future(), 1)
        return 1

    run(play)


def test_a_cancellation_that_comes_with_the_timeout_is_not_lost() -> None:
    async def play() -> None:
        outer = tasks.spawn(_cancelled_in_time(), name="outer")
        await asyncio.wait([outer], timeout=5)
        assert outer.cancelled()

    async def _cancelled_in_time() -> None:
        task = tasks.current()
        assert task is not None
        late = tasks.future()
        # Both before the task runs again.
        late.add_done_callback(lambda _: task.cancel())
        await tasks.wait_for(late, 0)

    run(play)


def test_a_task_that_swallows_its_cancellation_is_asked_again() -> None:
    async def play() -> None:
        swallowed = 0

        async def stubborn() -> None:
            nonlocal swallowed
            while True:
                try:
                    await tasks.sleep_ms(60_000)
                except tasks.Cancelled:
                    swallowed += 1
                    if swallowed > 1:
                        raise

        task = tasks.spawn(stubborn(), name="stubborn")
        await tasks.sleep_ms(0)
        await tasks.cancel(task)
        assert task.done()
        assert swallowed == 2

    run(play)


def test_what_takes_too_long_is_cancelled_and_a_timeout() -> None:
    async def play() -> None:
        pending: tasks.Future[None] = tasks.future()
        with pytest.raises(tasks.Timeout):
            await tasks.wait_for(pending, 5)
        assert pending.cancelled()

    run(play)


def test_the_outcome_of_a_cancelled_task_is_dropped() -> None:
    async def play() -> None:
        async def fails_at_the_end() -> None:
            try:
                await tasks.sleep_ms(60_000)
            finally:
                raise RuntimeError("on the way out")

        task = tasks.start(fails_at_the_end(), name="fails")
        await tasks.sleep_ms(0)
        await tasks.cancel(task)
        assert isinstance(task.exception(), RuntimeError)
        await tasks.cancel(task)
        await tasks.cancel(None)

    run(play)


def test_first_leaves_the_others_running() -> None:
    async def play() -> None:
        future: tasks.Future[int] = tasks.future()
        other: tasks.Future[int] = tasks.future()
        tasks.call_soon(lambda: future.set_result(1))
        await tasks.first([future, other])
        assert future.done()
        assert not other.done()

    run(play)


def test_a_prompt_future_tells_within_what_sets_it_and_an_error_stays_there() -> None:
    async def play() -> None:
        heard: list[int] = []
        raised: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: raised.append(context["exception"]))

        def hear(outcome: tasks.Future[int]) -> None:
            heard.append(outcome.result())
            raise RuntimeError("a bug")

        answer: tasks.EagerFuture[int] = tasks.eager_future()
        answer.add_callback(hear)
        answer.set_result(7)
        assert heard == [7]
        assert await answer == 7
        await tasks.sleep_ms(0)
        assert heard == [7]
        assert [str(error) for error in raised] == ["a bug"]

    run(play)


def test_a_prompt_future_tells_of_an_exception_and_of_a_cancellation_later() -> None:
    async def play() -> None:
        heard: list[tasks.Future[int]] = []
        failed: tasks.EagerFuture[int] = tasks.eager_future()
        cancelled: tasks.EagerFuture[int] = tasks.eager_future()
        for future in (failed, cancelled):
            future.add_callback(heard.append)
        failed.set_exception(RuntimeError("no"))
        cancelled.cancel()
        assert heard == []
        await tasks.sleep_ms(0)
        assert heard == [failed, cancelled]
        assert str(failed.exception()) == "no"

    run(play)
