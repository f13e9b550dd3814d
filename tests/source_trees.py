"""Syntax trees of the product's modules, parsed once for all tests that look at the code."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


@cache
def source_tree(path: Path) -> ast.Module:
    """The tree of a file; shared, and so not to be changed.

    Trees stay: walks of the garbage collector through their millions of nodes would take longer than the tests.
    """
    with no_collection():
        tree = ast.parse(path.read_text())
        gc.freeze()
    return tree


@cache
def source_nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's tree, in the order of `ast.walk`, which takes as long as reading the file."""
    with no_collection():
        return tuple(ast.walk(source_tree(path)))


@contextmanager
def no_collection() -> Iterator[None]:
    """For work on all trees, which stay: walks of the garbage collector through them would be most of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
