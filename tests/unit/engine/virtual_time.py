"""Ports on the simulator's loop, whose time jumps to the next timer: hours pass in no time, always the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from backend.engine.ports import Clock, Ports, system_ports, tasks
from backend.engine.ports.random import SystemRandom
from tests.simulation.loop import VirtualLoop
from tests.unit.engine.log.logs import NOW_MS

T = TypeVar("T")


class LoopClock:
    """The loop's time; it begins at NOW_MS."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def time_ms(self) -> int:
        return NOW_MS + int(self.monotonic_ms())

    def monotonic_ms(self) -> float:
        return self._loop.now_ms


class InlineWorkers:
    """Work that takes no time, or as long as a test says."""

    def __init__(self) -> None:
        self.slow_s = 0.0

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        done = tasks.shielded_future()

        def carry_out() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        tasks.call_later(self.slow_s * 1000.0, carry_out)
        return done

    def grow(self, threads: int) -> None:
        return None

    def close(self) -> None:
        return None


def loop_here() -> VirtualLoop:
    """The virtual loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def clock_here() -> Clock:
    """The clock of the virtual loop that runs."""
    return LoopClock(loop_here())


def ports_here() -> Ports:
    """Ports on the time of the loop that runs: virtual on a virtual one, which allows no threads, else the system's."""
    loop = asyncio.get_running_loop()
    real = system_ports()
    if not isinstance(loop, VirtualLoop):
        return real
    real.workers.close()
    return replace(
        real,
        clock=LoopClock(loop),
        random=SystemRandom(1),
        workers=InlineWorkers(),
        more_workers=lambda threads: InlineWorkers(),
    )


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """The outcome of a test's coroutine on virtual time, on which `ports_here` then stands."""
    return VirtualLoop().play(work)


class FaultyStore:
    """An object store in memory, whose faults a test chooses."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        # Asked before and after each call with its name and key; raises what the caller is to see.
        self.before: Callable[[str, str], None] = lambda call, key: None
        self.after: Callable[[str, str], None] = lambda call, key: None
        # Listings do not show these yet.
        self.unlisted: set[str] = set()

    def _object(self, key: str) -> bytes:
        try:
            return self.objects[key]
        except KeyError:
            raise FileNotFoundError(key) from None

    def put_file(self, key: str, path: str) -> None:
        with open(path, "rb") as file:
            self.put(key, file.read())

    def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
        self.before("put", key)
        self.objects[key] = bytes(data)
        self.after("put", key)

    def get(self, key: str) -> bytes:
        self.before("get", key)
        return self._object(key)

    def get_range(self, key: str, start: int, size: int) -> bytes:
        self.before("get", key)
        return self._object(key)[start : start + size]

    def size(self, key: str) -> int:
        self.before("get", key)
        return len(self._object(key))

    def delete(self, key: str) -> None:
        self.before("delete", key)
        self.objects.pop(key, None)

    def list(self, prefix: str) -> list[tuple[str, int]]:
        return [(key, len(data)) for key, data in self.shown.items() if key.startswith(f"{prefix}/")]

    @property
    def shown(self) -> Mapping[str, bytes]:
        return {key: data for key, data in self.objects.items() if key not in self.unlisted}
