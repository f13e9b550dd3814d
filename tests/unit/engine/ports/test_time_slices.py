"""Work in turns: how long one is, who comes next, and what is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from backend.engine.ports.time_slices import BUSY_SLICE_MS, SLICE_MS, Steps, TimeSlicer, Unfinished, in_parts

T = TypeVar("T")


class Clock:
    """Time that passes only by the steps of work."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms

    def work(self, steps: int, log: list[str] | None = None, name: str = "") -> Steps[str]:
        for _ in range(steps):
            self.now_ms += 1.0
            if log is not None:
                log.append(name)
            yield
        return f"{name}{steps}"


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


def test_what_ends_within_its_first_turn_is_not_waited_for() -> None:
    clock = Clock()
    assert TimeSlicer(clock).begin(clock.work(10)) == "10"


def test_what_takes_longer_goes_on_after_others_had_a_turn() -> None:
    async def main() -> tuple[str, int]:
        clock, turns_of_others = Clock(), 0
        slicer = TimeSlicer(clock)
        begun = slicer.begin(clock.work(105))
        assert isinstance(begun, Unfinished)
        assert clock.now_ms == SLICE_MS

        def other() -> None:
            nonlocal turns_of_others
            turns_of_others += 1
            loop.call_soon(other)

        loop = asyncio.get_running_loop()
        loop.call_soon(other)
        return await slicer.finish(begun), turns_of_others

    result, turns_of_others = run(main())
    assert result == "105"
    assert turns_of_others >= 105 // SLICE_MS


def test_long_works_take_turns_and_new_ones_get_a_short_first_one() -> None:
    async def main() -> list[str]:
        clock = Clock()
        log: list[str] = []
        slicer = TimeSlicer(clock)
        first = asyncio.create_task(slicer.do(clock.work(200, log, "a")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        before = clock.now_ms
        assert isinstance(slicer.begin(clock.work(200)), Unfinished)
        assert clock.now_ms == before + BUSY_SLICE_MS
        await asyncio.gather(first, slicer.do(clock.work(200, log, "b")))
        return log

    log = run(main())
    assert sorted(set(log)) == ["a", "b"]
    # Neither has to wait until the other has ended.
    assert log.index("b") < len(log) - 1 - log[::-1].index("a")


def test_an_error_is_told_in_whatever_turn_it_comes() -> None:
    clock = Clock()

    def fails(after: int) -> Steps[str]:
        yield from clock.work(after)
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        TimeSlicer(clock).begin(fails(3))
    with pytest.raises(ValueError, match="wrong"):
        run(TimeSlicer(clock).do(fails(100)))


def test_a_coroutine_lets_others_have_a_turn() -> None:
    async def main() -> int:
        clock, others = Clock(), 0

        def other() -> None:
            nonlocal others
            others += 1

        time_slice = TimeSlicer(clock).time_slice()
        for _ in range(100):
            clock.now_ms += 1.0
            asyncio.get_running_loop().call_soon(other)
            await time_slice.step()
        return others

    assert run(main()) >= 80


def test_items_in_parts() -> None:
    assert list(in_parts(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(in_parts((), 3)) == []
