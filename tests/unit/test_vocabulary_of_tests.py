"""The tests speak the product's language: their comments and docstrings begin with their subject.

`tests.unit.test_vocabulary` holds the product.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.source_trees import source_tree
from tests.unit.test_vocabulary import _RELATIVE_CLAUSE, ROOT, Text

_DIALECT_WORDS = re.compile(r"\b(anew|of its own|of their own|lets? rest|Facts:|neighbours?)(?!\w)")
# Files whose sentences are not held: two name the words that no other file may have; conftest.py is not rewritten.
NOT_HELD = ("tests/conftest.py", "tests/unit/test_vocabulary.py", "tests/unit/test_vocabulary_of_tests.py")


def _sources() -> Iterator[tuple[str, Path]]:
    for source in sorted((ROOT / "tests").rglob("*.py")):
        path = str(source.relative_to(ROOT))
        if path not in NOT_HELD:
            yield path, source


def _comments(code: str) -> Iterator[tuple[int, str]]:
    """The line and the text of each comment; a comment directly below another continues it."""
    begun, text, before = 0, "", -1
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] == before + 1:
            text += " " + token.string[1:].strip()
        else:
            if text:
                yield begun, text
            begun, text = token.start[0], token.string.lstrip("#: ")
        before = token.start[0]
    if text:
        yield begun, text


@cache
def _texts() -> tuple[Text, ...]:
    texts = []
    for path, source in _sources():
        texts += [Text(path, line, text) for line, text in _comments(source.read_text())]
        for node in ast.walk(source_tree(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node)
                if docstring:
                    texts.append(Text(path, getattr(node, "lineno", 1), docstring))
    return tuple(texts)


@pytest.mark.parametrize("kind", ["relative clause", "dialect"])
def test_a_comment_of_a_test_begins_with_its_subject(kind: str) -> None:
    assert len(_texts()) > 3000
    search = _RELATIVE_CLAUSE.match if kind == "relative clause" else _DIALECT_WORDS.search
    left = [f"{text.path}:{text.line}: {text.text[:100]}" for text in _texts() if search(text.text)]
    assert not left, "\n".join(left)
