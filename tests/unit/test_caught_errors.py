"""Product code that catches every error says beside the line why it does, and where the error goes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.source_trees import source_nodes

ROOT = Path(__file__).parents[2]
PRODUCT = ("app", "backend", "spark", "migrations")


def unexplained(path: Path) -> list[int]:
    """The lines of `except Exception` without a comment on the line or between it and the first statement."""
    lines = path.read_text().splitlines()
    handlers = [node for node in source_nodes(path) if isinstance(node, ast.ExceptHandler)]
    every_error = [node for node in handlers if isinstance(node.type, ast.Name) and node.type.id == "Exception"]
    return [
        node.lineno
        for node in every_error
        if not any("# " in line for line in lines[node.lineno - 1 : node.body[0].lineno - 1])
    ]


@pytest.mark.parametrize("package", PRODUCT)
def test_code_that_catches_every_error_says_why(package: str) -> None:
    places = {
        f"{path.relative_to(ROOT)}:{line}" for path in (ROOT / package).rglob("*.py") for line in unexplained(path)
    }
    assert places == set()
