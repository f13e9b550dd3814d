"""No message of the engine advises to remove what may be the only copy of something.

`delete the replica's folder to copy it again` was followed once, on the last member of an ISR.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.source_trees import source_nodes

BACKEND: Final = Path(__file__).parents[2] / "backend"
ADVICE: Final = re.compile(
    r"\b(delete|remove|empty|erase|discard|wipe)\b[^.;:]{0,40}\b(folder|directory|log|file|replica|segment)",
    re.IGNORECASE,
)
# No advice: what a setting and a number mean, and what is wrong with a request.
ALLOWED: Final = ("delete old segments, keep", "attempts to delete a remote segment", "includes an empty replica list")


def texts(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """String literals, each f-string as one, without docstrings."""
    documented = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented | parts:
            yield node.value


def test_no_message_advises_to_remove_a_copy() -> None:
    advice = [
        f"{path.relative_to(BACKEND)}: {text}"
        for path in sorted((BACKEND / "engine").rglob("*.py"))
        for text in texts(source_nodes(path))
        if ADVICE.search(text) and not any(allowed in text for allowed in ALLOWED)
    ]
    assert advice == []
