"""A seed is a run: everything that happens in it happens again, in the same order, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.simulation.run import simulate

SEED = 5


def test_a_seed_gives_the_same_trace_again_and_another_seed_another() -> None:
    first = simulate(SEED)
    assert first.messages > 500
    assert simulate(SEED).trace_hash == first.trace_hash
    assert simulate(SEED + 1).trace_hash != first.trace_hash


def test_the_trace_does_not_depend_on_how_a_process_hashes_names_nor_on_who_watches() -> None:
    shown: list[str] = []
    expected = simulate(SEED, show=shown.append).trace_hash
    assert any("is up" in line or "is there" in line for line in shown)
    for hash_seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", str(SEED), "--quiet"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"trace {expected}" in done.stdout, done.stdout + done.stderr
