"""The lines of the engine's log, remote and replica packages that simulated runs execute.

Counted are the lines inside functions: importing a module runs all others. Not counted is what `LEFT_OUT` names, with
its reason, and the methods of protocols, which have no code.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import backend.engine.log
import backend.engine.remote
import backend.engine.replica

PACKAGES: Final = (backend.engine.log, backend.engine.remote, backend.engine.replica)
# Suites for plug-ins of others: tests, not product.
CONFORMANCE: Final = "remote.conformance."
# Modules and functions that no simulated run can reach, and why.
LEFT_OUT: Final[Mapping[str, str]] = {
    "remote.storage.checked_storage": "wraps storage plug-ins of others, never the built-in storage",
    "remote.plugin_metrics": "numbers of plug-ins of others; the built-in ones have none",
    "remote.metadata.segment_rows:_set_custom": "custom metadata of plug-ins of others; the built-in has none",
    "remote.metadata.segment_summary:summarize": "for metadata managers of others; the built-in one sums its own rows",
    "remote.plugins:_opened": "opens plug-ins of installed distributions",
    "remote.metadata.in_memory_metadata_manager": "metadata of one process, which no cluster shares",
    "remote.storage.object_store_manager:check_location": "opens a real store of objects, before a broker starts",
    "remote.storage.object_store_manager:_unusable": "a real store of objects that cannot be opened",
    "remote.storage.object_store_manager:_flag": "settings of a store behind an address",
    "remote.storage.object_store_manager:close": "empties the store: a setting for experiments",
    "remote.metadata.topic_based_metadata_manager:parse": "settings: what it refuses never starts",
    "remote.metadata.topic_based_metadata_manager:_number": "settings: what it refuses never starts",
    "remote.metadata.metadata_topic:parse": "settings: what it refuses never starts",
    "remote.metadata.metadata_topic:_positive": "settings: what it refuses never starts",
    "log.manager.log_manager:abandon": "ends a broker inside a living process; a simulated crash ends the process",
}

Lines = Mapping[str, frozenset[int]]


class Covered:
    """Counts while it is a context; a function all of whose lines have run costs nothing more."""

    def __init__(self) -> None:
        self._lines = function_lines()
        self._missed = {path: set(lines) for path, lines in self._lines.items()}
        self._done: set[CodeType] = set()

    def __enter__(self) -> Covered:
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Callable[[FrameType, str, Any], Any] | None:
        code = frame.f_code
        if code in self._done:
            return None
        missed = self._missed.get(code.co_filename)
        if not missed or not any(line in missed for _, _, line in code.co_lines()):
            self._done.add(code)
            return None
        return self._on_line

    def _on_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self._missed[frame.f_code.co_filename].discard(frame.f_lineno)
        return self._on_line

    @property
    def missed(self) -> Lines:
        """Lines that have not run, by module."""
        return {path: frozenset(lines) for path, lines in self._missed.items()}


def missed_by_all(runs: Iterable[Lines]) -> Lines:
    """The lines that none of some runs has executed."""
    together: dict[str, frozenset[int]] = {}
    for run in runs:
        together = {path: together.get(path, lines) & lines for path, lines in run.items()}
    return together


def report(missed: Lines) -> Iterator[tuple[str, int, int, list[int]]]:
    """(module, lines carried out, lines, lines missed), worst first; then each package, and all of them."""
    rows = []
    for path, lines in function_lines().items():
        left = sorted(missed[path])
        rows.append((f"{Path(path).parent.name}/{Path(path).name}", len(lines) - len(left), len(lines), left))
    yield from sorted(rows, key=lambda row: row[1] - row[2])
    for package in PACKAGES:
        name = package.__name__.rpartition(".")[2]
        own = [row for row in rows if row[0].startswith(name + "/")]
        yield name, sum(row[1] for row in own), sum(row[2] for row in own), []
    yield "all", sum(row[1] for row in rows), sum(row[2] for row in rows), []


def function_lines() -> Lines:
    """Lines of functions of each module."""
    by_path = {}
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            name = module.name.removeprefix("backend.engine.")
            if module.ispkg or name in LEFT_OUT or name.startswith(CONFORMANCE):
                continue
            path = importlib.import_module(module.name).__file__
            assert path is not None
            source = Path(path).read_text()
            code = compile(source, path, "exec")
            by_path[path] = frozenset(_lines(code, inside=False)) - frozenset(_uncounted_lines(source, name))
    return by_path


def _lines(code: CodeType, *, inside: bool) -> Iterator[int]:
    """Lines of functions, comprehensions and lambdas; a class's own lines run when it is imported."""
    if inside:
        first = code.co_firstlineno
        yield from (line for _, _, line in code.co_lines() if line is not None and line != first)
    for constant in code.co_consts:
        if inspect.iscode(constant):
            is_function = bool(constant.co_flags & inspect.CO_NEWLOCALS)
            yield from _lines(constant, inside=is_function)


def _uncounted_lines(source: str, module: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(source)):
        if (isinstance(node, ast.ClassDef) and any(_name(base) == "Protocol" for base in node.bases)) or (
            isinstance(node, ast.FunctionDef) and f"{module}:{node.name}" in LEFT_OUT
        ):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _name(base: ast.expr) -> str:
    return base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
