"""Folders of the product are closed to other users; what a person shared, or shares with everybody, stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.runtime.private_files import close_to_others


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("permissions", [0o755, 0o775, 0o777, 0o701])
def test_a_folder_that_every_user_could_enter_is_closed_and_that_is_said(tmp_path: Path, permissions: int) -> None:
    tmp_path.chmod(permissions)
    line = close_to_others(tmp_path)
    assert line is not None
    assert str(tmp_path) in line
    assert mode(tmp_path) == 0o700
    assert close_to_others(tmp_path) is None


@pytest.mark.parametrize("permissions", [0o700, 0o750, 0o2770, 0o1777])
def test_what_a_person_shared_with_a_group_or_everybody_stays(tmp_path: Path, permissions: int) -> None:
    tmp_path.chmod(permissions)
    assert close_to_others(tmp_path) is None
    assert mode(tmp_path) == permissions


def test_a_folder_that_is_not_there_or_not_ours_is_told_or_left(tmp_path: Path) -> None:
    assert close_to_others(tmp_path / "none") is None
    line = close_to_others("/proc/sys")  # even root cannot change its mode
    assert line is not None
    assert "chmod 700" in line


@pytest.mark.parametrize("module", ["backend.startup.backend_entry", "app.run", "spark.job"])
@pytest.mark.outside
def test_every_program_of_the_product_keeps_its_files_private(module: str) -> None:
    """Without what `ebbline up` tells them they end at once, but not before they have set how files are made."""
    program = (
        f"import os, runpy, sys; os.umask(0o022); sys.argv = ['x']\n"
        f"try: runpy.run_module({module!r}, run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print(oct(os.umask(0)))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EBBLINE_")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "0o77", done.stderr
