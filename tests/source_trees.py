"""Syntax trees of the product's modules, parsed once for all tests that look at the code."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


@cache
def source_tree(path: Path) -> ast.Module:
    """The tree of a file; shared, and so not to be changed."""
    return ast.parse(path.read_text())
