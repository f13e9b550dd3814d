"""The documentation as a site: it builds, a dead link or an unlisted page ends the build, no page asks another host."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from tests.docs.pages import ROOT

pytestmark = pytest.mark.outside  # a build takes more than a second
# Elements that a browser loads without a click: scripts, pictures, styles, frames.
FETCHED = re.compile(r"""<(?:script|img|iframe|source)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)\"""")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the pages, so that a test may spoil them."""
    for path in (*ROOT.glob("*.md"), *ROOT.glob("backend/*.md"), ROOT / "mkdocs.yml"):
        (tmp_path / path.relative_to(ROOT)).parent.mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "backend/decisions", tmp_path / "backend/decisions")
    return tmp_path


def make(tree: Path) -> Path:
    """Builds the site of the tree and returns its folder. Raises Abort where MkDocs has a warning."""
    config = load_config(str(tree / "mkdocs.yml"))
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return Path(config.site_dir)


def test_the_site_is_built_and_asks_no_other_host(tree: Path) -> None:
    site = make(tree)
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    fetched = {address for page in pages for pair in FETCHED.findall(page.read_text()) for address in pair if address}
    assert not [address for address in fetched if re.match(r"(https?:)?//", address)]
    assert "__index" in (site / "search" / "search_index.js").read_text()


def test_a_dead_link_and_an_unlisted_page_end_the_build(tree: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (tree / "docs/demo.md").open("a") as page:
        page.write("\n[one](nowhere.md), [two](settings.md#nowhere)\n")
    (tree / "docs/unlisted.md").write_text("# Unlisted\n")
    with caplog.at_level(logging.WARNING), pytest.raises(Abort, match="3 warnings"):
        make(tree)
    assert [fault for fault in ("nowhere.md", "#nowhere", "docs/unlisted.md") if fault not in caplog.text] == []
