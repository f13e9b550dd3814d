"""The result of one run of a world: whether a property was violated, and what happened."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from backend.engine.common.log_context import NodeFilter
from backend.protocol.errors import KafkaError
from tests.simulation.checkers import Violation
from tests.simulation.loop import PROCESS
from tests.simulation.machine import Process, dispose
from tests.simulation.world import World

# Errors that the world causes; anything else in a log line is a mistake of the code.
EXPECTED: Final = (KafkaError, OSError, asyncio.CancelledError)


@dataclass(slots=True)
class Result:
    """The result of a seed."""

    seed: int
    trace_hash: str = ""
    violation: str | None = None
    checker: str | None = None
    virtual_ms: float = 0.0
    messages: int = 0
    acknowledged: int = 0
    reads: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.violation is None


class _Mistakes(logging.Handler):
    """Exceptions that the engine logged and that nothing in the world explains."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        process = PROCESS.get()
        if isinstance(process, Process) and not process.alive:
            return
        if error is not None and not isinstance(error, EXPECTED):
            self._world.failures.append(f"{record.name}: {record.getMessage()} ({error!r})")


class _Shown(logging.Handler):
    """The engine's own log lines, for a reader."""

    def __init__(self, world: World, show: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self._show = show
        self.addFilter(NodeFilter())

    def emit(self, record: logging.LogRecord) -> None:
        node = getattr(record, "node", "")
        self._show(f"{self._world.loop.now_ms:10.1f} ms    {node}{record.levelname} {record.getMessage()}")


@contextmanager
def _logging(world: World, show: Callable[[str], None] | None) -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = [_Mistakes(world)]
    root.setLevel(logging.ERROR)
    if show is not None:
        root.handlers.append(_Shown(world, show))
        root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@contextmanager
def collected_between_runs() -> Iterator[None]:
    """Cycles are collected before and after the run: objects that the collector closes must not act in a world.

    Objects that were there before the run stay frozen: the collector would walk through all of them after each run.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.enable()


def result_of(
    world: World,
    main: Coroutine[Any, Any, None],
    show: Callable[[str], None] | None,
    note_exception: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None] | None = None,
) -> Result:
    """Plays a world to the end of `main`; a violation is part of the result. The world is disposed of.

    `note_exception` gets what the loop's exception handler gets; each is a failure of the world otherwise.
    """
    result = Result(world.seed)

    def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        world.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    try:
        with _logging(world, show):
            world.loop.set_exception_handler(note_exception or note)
            try:
                world.loop.play(main)
            except Violation as violation:
                result.violation, result.checker = str(violation), violation.checker
            except AssertionError as error:
                result.violation, result.checker = f"{type(error).__name__}: {error}", type(error).__name__
            if result.violation is None and world.failures:
                result.violation, result.checker = f"unexpected: {world.failures[0]}", "NoMistakes"
            logging.disable()
            dispose(world)
    finally:
        logging.disable(logging.NOTSET)
    if result.violation is not None:
        world.trace.note(f"VIOLATION {result.violation}")
    result.trace_hash = world.trace.hash
    result.virtual_ms = world.loop.now_ms
    result.messages = world.trace.messages
    result.lines = list(world.trace.lines)
    return result
