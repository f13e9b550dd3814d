"""The list of what the dashboard must not repeat names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_each_point_of_the_list_names_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "dashboard.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / file).read_text()]
    assert missing == []
    points = re.findall(r"^\| (\d+) \|.*$", text, flags=re.MULTILINE)
    assert points == [str(number) for number in range(1, 21)]
    assert all("`tests/" in line for line in text.splitlines() if re.match(r"\| \d+ \|", line))
