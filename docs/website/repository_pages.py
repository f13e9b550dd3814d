"""MkDocs hook: the pages of the site are Markdown files of the repository, each at its own path.

MkDocs takes one folder of documents. Here README, CONTRIBUTING, docs/ and backend/decisions/ belong together, and their
links are written as paths of the repository, so that they work where the repository is shown as well. The hook gives
MkDocs the files at those paths; links are then checked as they are written.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = ("*.md", "docs/**/*.md", "backend/*.md", "backend/decisions/**/*.md")
OTHER_FILES = ("docs/screenshots/*.png", "docs/website/*.css", "docs/website/*.js", "docs/examples/*.py")
# The order of search results: pages that lead to others first, decisions and the changelog last.
SEARCH_BOOSTS = {
    "docs/index.md": 8,
    "docs/questions.md": 3,
    "backend/decisions/": 0.3,
    "CHANGELOG.md": 0.3,
}
_CODE_IN_ROW = re.compile(r"`[^`]*`")
# A list right after a line of text: GitHub shows a list, Python-Markdown goes on with the paragraph.
_LIST_IN_TEXT = re.compile(r"^(?!\s|- |\d+\. |```|<!--|\|).+\n(?=- )", re.MULTILINE)
_log = logging.getLogger("mkdocs.hooks")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Returns the theme's files and those of the repository, in place of the folder of documents."""
    documents = {Path(file.abs_src_path) for file in files.documentation_pages(inclusion=lambda _: True)}
    theme = [file for file in files if file.abs_src_path and Path(file.abs_src_path) not in documents]
    kept = [file for file in theme if not Path(file.abs_src_path).is_relative_to(ROOT / "docs")]
    paths = sorted({path for pattern in (*PAGES, *OTHER_FILES) for path in ROOT.glob(pattern)})
    own = [
        File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls) for path in paths
    ]
    return Files([*kept, *own])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Returns the page with plain bars in the code of table rows: GitHub needs them escaped, Python-Markdown does not.

    A list that has no empty line before it is a warning, which ends the build. The page gets its place in the search.
    """
    boost = next((boost for path, boost in SEARCH_BOOSTS.items() if page.file.src_uri.startswith(path)), 1)
    page.meta["search"] = {"boost": boost}
    for text in _LIST_IN_TEXT.findall(re.sub(r"^```.*?^```", "```", markdown, flags=re.MULTILINE | re.DOTALL)):
        _log.warning("Doc file '%s' has a list without an empty line before it, after: %s", page.file.src_uri, text)
    return "\n".join(
        _CODE_IN_ROW.sub(lambda code: code[0].replace(r"\|", "|"), line) if line.startswith("|") else line
        for line in markdown.split("\n")
    )
