"""The pages, in the order in which a reader meets them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
# A later page may use what an earlier one has made: the topic `orders` of README.
ORDER: Final = (
    "README.md",
    "docs/questions.md",
    "docs/cli.md",
    "docs/operations.md",
    "docs/settings.md",
    "docs/alerts.md",
    "docs/lab.md",
    "docs/pipeline.md",
    "docs/database.md",
    "docs/quorum.md",
    "docs/security.md",
    "docs/remote-plugins.md",
    "docs/attach.md",
    "docs/spark-cluster.md",
)


def pages() -> list[str]:
    """README and everything below docs/, relative to the repository."""
    every = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    return [*ORDER, *(page for page in every if page not in ORDER)]


def text_of(page: str) -> str:
    return (ROOT / page).read_text()
