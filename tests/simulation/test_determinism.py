"""A seed is a run: everything that happens in it happens again, in the same order, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.run import simulate
from tests.simulation.trace import Trace

SEED = 5


def test_another_event_or_another_time_is_another_trace() -> None:
    now_ms = 1.0
    traces = [Trace(lambda: now_ms) for _ in range(4)]
    traces[1].note("a broker crashes")
    traces[2].message(1, b"a frame")
    now_ms = 2.0
    traces[3].message(1, b"a frame")
    assert len({trace.hash for trace in traces}) == 4


@pytest.mark.outside
def test_a_seed_is_the_same_run_again_whoever_watches_and_however_names_hash() -> None:
    first = simulate(SEED)
    assert first.messages > 500
    shown: list[str] = []
    assert simulate(SEED, show=shown.append).trace_hash == first.trace_hash
    assert any("is there" in line for line in shown)
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", str(SEED), "--quiet"],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"trace {first.trace_hash}" in done.stdout, done.stdout + done.stderr
