"""A function fits on a screen: at most 70 lines, except for what is data rather than steps."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from tests.source_trees import source_nodes

LINES_MAX: Final = 70
ROOT: Final = Path(__file__).parents[2]
# Charts are described, one keyword a line: path and function. Migrations are left out: the first is the whole schema.
DESCRIPTIONS: Final = [
    ("app/components/cluster/activity_timeline.py", "figure"),
    ("app/components/cluster/throughput.py", "figure"),
    ("app/components/follower/phase_timeline.py", "figure"),
    ("app/components/partition/partition_heatmap.py", "figure"),
    ("app/components/partition/range_list.py", "figure"),
    ("app/components/remote/open_copies.py", "figure"),
]


def long_functions(path: Path) -> list[tuple[str, str]]:
    functions = (node for node in source_nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [
        (path.relative_to(ROOT).as_posix(), function.name)
        for function in functions
        if (function.end_lineno or function.lineno) - function.lineno + 1 > LINES_MAX
    ]


def test_no_function_is_longer_than_a_screen_and_each_exemption_is_needed() -> None:
    paths = [path for folder in ("app", "backend", "spark") for path in (ROOT / folder).rglob("*.py")]
    assert len(paths) > 500
    assert sorted(function for path in paths for function in long_functions(path)) == DESCRIPTIONS
