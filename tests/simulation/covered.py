"""Which lines of the engine a simulated run carries out: those inside functions, since importing runs all others."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import backend.engine.log
import backend.engine.remote
import backend.engine.replica

PACKAGES: Final = (backend.engine.log, backend.engine.remote, backend.engine.replica)


class Covered:
    """Counts while it is a context."""

    def __init__(self) -> None:
        self._lines = dict(_function_lines())
        self._hit: dict[str, set[int]] = defaultdict(set)

    def __enter__(self) -> Covered:
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Callable[[FrameType, str, Any], Any] | None:
        return self._on_line if frame.f_code.co_filename in self._lines else None

    def _on_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self._hit[frame.f_code.co_filename].add(frame.f_lineno)
        return self._on_line

    def report(self) -> Iterator[tuple[str, int, int, list[int]]]:
        """(module, lines carried out, lines, lines missed), worst first; then each package as a whole."""
        rows = []
        for path, lines in self._lines.items():
            missed = sorted(lines - self._hit[path])
            rows.append((f"{Path(path).parent.name}/{Path(path).name}", len(lines) - len(missed), len(lines), missed))
        yield from sorted(rows, key=lambda row: row[1] - row[2])
        for package in PACKAGES:
            name = package.__name__.rpartition(".")[2]
            own = [row for row in rows if row[0].startswith(name + "/")]
            yield name, sum(row[1] for row in own), sum(row[2] for row in own), []


def _function_lines() -> Iterator[tuple[str, set[int]]]:
    for package in PACKAGES:
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            path = importlib.import_module(module.name).__file__
            assert path is not None
            code = compile(Path(path).read_text(), path, "exec")
            yield path, set(_lines(code, inside=False))


def _lines(code: CodeType, *, inside: bool) -> Iterator[int]:
    """Lines of functions, comprehensions and lambdas; a class's own lines run when it is imported."""
    if inside:
        first = code.co_firstlineno
        yield from (line for _, _, line in code.co_lines() if line is not None and line != first)
    for constant in code.co_consts:
        if inspect.iscode(constant):
            is_function = bool(constant.co_flags & inspect.CO_NEWLOCALS)
            yield from _lines(constant, inside=is_function)
