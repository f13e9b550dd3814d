"""Each path that CONTRIBUTING.md names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PATH = re.compile(r"`([\w.]+/[\w./]+)`")


def test_each_path_exists() -> None:
    paths = [path for path in _PATH.findall((ROOT / "CONTRIBUTING.md").read_text()) if "NAME" not in path]
    assert len(paths) > 50
    # A path is written from the root, or from its package `backend/engine`.
    assert not [path for path in paths if not (ROOT / path).exists() and not (ROOT / "backend/engine" / path).exists()]
