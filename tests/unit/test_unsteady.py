"""The list of unsteady tests stays short, and says why each is on it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unsteady import MOST, UNSTEADY

ROOT = Path(__file__).parents[2]


def test_unsteady_tests_are_few_exist_and_have_a_day_and_a_reason() -> None:
    assert len(UNSTEADY) <= MOST
    for test, entry in UNSTEADY.items():
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), test
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", entry.since), test
        assert len(entry.reason) > 20, test
