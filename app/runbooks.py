"""The runbooks, one page an incident: docs/runbooks of the checkout, or their copy in an installed wheel."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent
_PLACES: Final = (_PACKAGE.parent / "docs" / "runbooks", _PACKAGE / "docs" / "runbooks")


@cache
def slugs() -> tuple[str, ...]:
    """Of every runbook there is, in alphabetical order."""
    return tuple(sorted(path.stem for path in _folder().glob("*.md")))


def read(slug: str) -> str | None:
    """The page as Markdown; None when there is no such runbook. ``slug`` may come from a link."""
    return (_folder() / f"{slug}.md").read_text() if slug in slugs() else None


def _folder() -> Path:
    return next((place for place in _PLACES if place.is_dir()), _PLACES[0])
