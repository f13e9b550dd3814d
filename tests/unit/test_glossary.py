"""Each name that docs/glossary.md gives for a term is in the code."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def _rows() -> list[list[str]]:
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    return [line.strip("|").split(" | ") for line in lines if line.startswith("| ") and not line.startswith("| term")]


def _identifiers() -> set[str]:
    names: set[str] = set()
    for package in ("app", "backend", "spark"):
        for source in (ROOT / package).rglob("*.py"):
            names |= {source.stem, source.parent.name, *_IDENTIFIER.findall(source.read_text())}
    return names


def test_each_name_in_the_code_column_exists() -> None:
    names = _identifiers()
    named = [name for row in _rows() for name in re.findall(r"`([^`]+)`", row[3])]
    assert len(named) > 100
    assert not [name for name in named if not names.issuperset(_IDENTIFIER.findall(name))]


def test_a_term_stands_once_with_a_meaning() -> None:
    rows = _rows()
    assert not [term for term, count in Counter(row[0].strip().lower() for row in rows).items() if count > 1]
    assert not [row[0] for row in rows if len(row) != 4 or len(row[1].split()) < 4]
