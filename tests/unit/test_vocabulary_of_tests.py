"""The tests speak the product's language: their comments begin with their subject, their names say what a thing is.

`tests.unit.test_vocabulary` holds the product.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.source_trees import no_collection, source_nodes
from tests.unit.test_vocabulary import _RELATIVE_CLAUSE, ROOT, Text, _nested, _texts_of

_DIALECT_WORDS = re.compile(r"\b(anew|of its own|of their own|lets? rest|Facts:|neighbours?)(?!\w)")
# Words that stand for any thing: what a test defines, sets or is given has the name of its thing.
EMPTY_NAMES = frozenset({"asked", "found", "known", "one", "tell", "told", "wanted"})
# Files whose sentences are not held: two name the words that no other file may have; conftest.py is not rewritten.
NOT_HELD = ("tests/conftest.py", "tests/unit/test_vocabulary.py", "tests/unit/test_vocabulary_of_tests.py")


def _sources() -> Iterator[tuple[str, Path]]:
    for source in sorted((ROOT / "tests").rglob("*.py")):
        path = str(source.relative_to(ROOT))
        if path not in NOT_HELD:
            yield path, source


@cache
def _texts() -> tuple[Text, ...]:
    with no_collection():
        return tuple(
            text for path, source in _sources() for text in _texts_of(path, source.read_text(), source_nodes(source))
        )


@pytest.mark.parametrize("kind", ["relative clause", "dialect"])
def test_a_comment_of_a_test_begins_with_its_subject(kind: str) -> None:
    assert len(_texts()) > 3000
    search = _RELATIVE_CLAUSE.match if kind == "relative clause" else _DIALECT_WORDS.search
    left = [f"{text.path}:{text.line}: {text.text[:100]}" for text in _texts() if search(text.text)]
    assert not left, "\n".join(left)


def test_a_name_of_a_test_is_that_of_its_thing() -> None:
    with no_collection():
        left = [
            f"{path}:{line}: {name}"
            for path, source in _sources()
            for name, line, _ in _nested(source_nodes(source))
            if name.strip("_") in EMPTY_NAMES
        ]
    assert not left, "\n".join(left)
