"""A run of the tests fails for what it leaves in the folder of the project."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.checked import OUTSIDE
from tests.litter import left_behind, names

pytestmark = getattr(pytest.mark, OUTSIDE)


def test_new_files_and_empty_folders_are_named_unless_git_ignores_them(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("kept\n")
    (tmp_path / "old").touch()
    before = names(tmp_path)
    assert left_behind(before, tmp_path) == []
    for name in ("kept", "x", ".cache"):
        (tmp_path / name).mkdir()
    (tmp_path / "a.log").touch()
    assert left_behind(before, tmp_path) == ["a.log", "x"]
