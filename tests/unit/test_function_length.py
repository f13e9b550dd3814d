"""A function fits on a screen: at most 70 lines, except for what is data rather than steps."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from tests.source_trees import source_tree

LINES_MAX: Final = 70
ROOT: Final = Path(__file__).parents[2]
# Charts are described, one keyword a line. The first migration is left out: it is the whole schema.
DESCRIPTIONS: Final = frozenset(
    {
        "activity_timeline.figure",
        "open_copies.figure",
        "partition_heatmap.figure",
        "phase_timeline.figure",
        "range_list.figure",
        "throughput.figure",
    }
)


def long_functions(path: Path) -> set[str]:
    functions = (
        node for node in ast.walk(source_tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {
        f"{path.stem}.{function.name}"
        for function in functions
        if (function.end_lineno or function.lineno) - function.lineno + 1 > LINES_MAX
    }


def test_no_function_is_longer_than_a_screen() -> None:
    paths = [path for folder in ("app", "backend", "spark") for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 500
    assert set().union(*map(long_functions, paths)) <= DESCRIPTIONS
