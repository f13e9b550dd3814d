"""The list of slow files names files that exist, and for each a form that `make test` keeps."""

from __future__ import annotations

from pathlib import Path

from tests.slow import KEPT, SLOW

ROOT = Path(__file__).parents[2]


def test_each_slow_file_exists_and_leaves_a_form_to_make_test() -> None:
    for slow, kept in KEPT.items():
        assert (ROOT / slow).is_file(), slow
        assert (ROOT / kept).exists(), kept
        assert kept not in KEPT, f"{slow} leaves {kept}, which is slow as well"


def test_make_and_ci_run_both_halves() -> None:
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci/run").read_text()
    assert f'-m "not {SLOW}"' in makefile
    assert f"-m {SLOW}\n" in makefile
    assert "\nmake test\nmake test-slow\n" in ci
