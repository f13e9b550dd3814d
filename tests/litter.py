"""Files that a run of the tests leaves in the folder of the project: tests write to their own folders alone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def names(root: Path = ROOT) -> frozenset[str]:
    """The files and folders directly in the project's folder, without hidden ones: caches of tools are hidden."""
    return frozenset(path.name for path in root.iterdir() if not path.name.startswith("."))


def left_behind(before: frozenset[str], root: Path = ROOT) -> list[str]:
    """The names that were not there before and that git does not ignore, sorted."""
    new = sorted(names(root) - before)
    if not new:
        return []
    try:
        ignored = subprocess.run(
            ["git", "check-ignore", *new], cwd=root, capture_output=True, text=True, check=False
        ).stdout.splitlines()
    except OSError:
        ignored = []
    return [name for name in new if name not in ignored]
