"""Programs in Go, built once from their folders; tests skip where there is no Go, or its modules cannot be had."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.oracle.apache_kafka import cache_folder

BUILD_TIMEOUT_S = 600.0


def build(folder: Path) -> Path:
    """The program of a module, built when its sources are new; skips the test when it cannot be."""
    sources = sorted(path for path in folder.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    program = cache_folder("go-programs", None) / f"{folder.parent.name}-{digest}"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is unavailable: it is not installed")
    program.parent.mkdir(parents=True, exist_ok=True)
    made = program.with_name(f"{program.name}.new")
    done = subprocess.run(
        [go, "build", "-buildvcs=false", "-o", str(made), "."],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0 and any(word in done.stderr for word in ("proxy", "dial tcp", "toolchain", "lookup")):
        pytest.skip(f"Go is unavailable: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    made.replace(program)
    return program
