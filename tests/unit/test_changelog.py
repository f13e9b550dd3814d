"""CHANGELOG.md: short lines under versions with dates; the newest version is that of the product."""

import re
from datetime import date
from pathlib import Path

from backend import __version__

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "CHANGELOG.md").read_text().splitlines()
LINE_MAX = 160
SECTIONS = ("Added", "Changed", "Fixed", "Removed")


def _versions() -> list[tuple[tuple[int, ...], date]]:
    headings = [re.fullmatch(r"## (\d+\.\d+\.\d+) - (\S+)", line) for line in LINES if line.startswith("## ")]
    assert headings[0] is None
    assert LINES[[line.startswith("## ") for line in LINES].index(True)] == "## Unreleased"
    versions = []
    for heading in headings[1:]:
        assert heading is not None
        versions.append((tuple(map(int, heading[1].split("."))), date.fromisoformat(heading[2])))
    return versions


def test_versions_stand_newest_first_with_their_dates() -> None:
    versions = _versions()
    assert versions == sorted(versions, reverse=True)
    assert len({number for number, _ in versions}) == len(versions)


def test_the_newest_version_is_that_of_the_project() -> None:
    number, _ = _versions()[0]
    assert __version__ == ".".join(map(str, number))


def test_a_change_is_one_short_line_in_a_section() -> None:
    assert [line for line in LINES if len(line) > LINE_MAX] == []
    assert {line[4:] for line in LINES if line.startswith("### ")} <= set(SECTIONS)
    # A line that is neither heading nor change nor empty is the sentence under a version; it goes on in no second one.
    free = [i for i, line in enumerate(LINES) if line and not re.match(r"#+ |(  )?- ", line)]
    assert [LINES[i] for i in free if LINES[i - 1] != "" or not LINES[i - 2].startswith("#")] == []
