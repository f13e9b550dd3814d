"""The list of slow files names files that exist, and for each a form that `make test` keeps."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.slow import HALVES, KEPT, SLOW, half_of

ROOT = Path(__file__).parents[2]


def test_each_slow_file_exists_and_leaves_a_form_to_make_test() -> None:
    for slow, kept in KEPT.items():
        assert (ROOT / slow).is_file(), slow
        assert (ROOT / kept).exists(), kept
        assert kept not in KEPT, f"{slow} leaves {kept}, which is slow as well"


def test_each_slow_file_is_in_one_of_two_halves() -> None:
    sizes = Counter(map(half_of, KEPT))
    assert set(sizes) == set(HALVES)
    assert abs(sizes[HALVES[0]] - sizes[HALVES[1]]) <= 1
    assert "\nmake test\n" in (ROOT / ".ci/run").read_text()
    assert "\nmake test-slow HALF=" in (ROOT / ".ci/run").read_text()


@pytest.mark.parametrize(
    ("target", "chosen"),
    [
        (["tests"], f'-m "not {SLOW}"'),
        (["test-slow"], f"-m {SLOW}"),
        (["test-slow", "HALF=2"], f"-m {HALVES[1]}"),
        (["tests", "ARGS=tests/unit"], "tests/unit"),
    ],
)
@pytest.mark.outside
def test_make_chooses_the_files(target: list[str], chosen: str) -> None:
    printed = subprocess.run(["make", "--dry-run", *target], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout.rstrip().endswith(f"--no-loadscope-reorder {chosen}")
