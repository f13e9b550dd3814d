"""A decision is one page with a status, context, decision and consequences; longer matter is in its appendix."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

FOLDER = ROOT / "backend" / "decisions"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
APPENDICES = sorted(path for path in FOLDER.rglob("*.md") if path.parent != FOLDER)
PAGE_WORDS = 520
SOURCES = [
    path.relative_to(ROOT).as_posix()
    for top in ("app", "backend", "migrations", "spark", "tests")
    for pattern in ("*.py", "*.tsv")
    for path in (ROOT / top).rglob(pattern)
]


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_a_page_that_says_why(page: Path) -> None:
    text = page.read_text()
    assert re.match(r"# \d+\. .+\n\nStatus: (accepted|replaced by \d+|withdrawn), \d{4}-\d\d-\d\d\.", text)
    assert text.startswith(f"# {int(page.stem[:4])}. ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.split()) <= PAGE_WORDS


@pytest.mark.parametrize("appendix", APPENDICES, ids=lambda appendix: f"{appendix.parent.name}-{appendix.stem}")
def test_an_appendix_belongs_to_a_decision_that_links_it(appendix: Path) -> None:
    decision = FOLDER / appendix.name
    assert appendix.parent.name in ("measurements", "details")
    assert f"]({appendix.parent.name}/{appendix.name})" in decision.read_text()
    assert f"](../{appendix.name})" in appendix.read_text()


def test_the_index_lists_every_decision_and_appendix() -> None:
    listed = re.findall(r"\]\(([^)]+\.md)\)", (FOLDER / "README.md").read_text())
    assert sorted(listed) == sorted(path.relative_to(FOLDER).as_posix() for path in (*DECISIONS, *APPENDICES))


@pytest.mark.parametrize(
    "page", [*DECISIONS, *APPENDICES, ROOT / "backend/ARCHITECTURE.md"], ids=lambda page: page.stem
)
def test_each_source_file_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`([\w./]+\.(?:py|tsv))`", page.read_text())
    assert [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in SOURCES)] == []
