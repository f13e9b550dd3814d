"""Tests that are known to fail by chance: they are run, and a failure is reported as expected and does not count.

Empty is the goal. At most five, each with the day when it was put here and why it fails; all others count at once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MOST: Final = 5


class Unsteady(NamedTuple):
    """``since`` is a day as 2026-11-25."""

    since: str
    reason: str


# By the test's name as pytest prints it, with or without its parameters in brackets.
UNSTEADY: Final[dict[str, Unsteady]] = {
    "tests/properties/remote/test_expiration_model.py::test_retention_deletes_only_what_it_does_not_keep": Unsteady(
        "2026-11-28",
        "One run of dozens finds a case with overlapping copies in which what is left is a copy below retention.bytes;"
        " of 20,000 cases each run does. Whether the model or retention counts wrongly is not decided yet.",
    ),
}


def unsteady(test: str) -> Unsteady | None:
    """The entry of a test, by its whole name or that without parameters."""
    return UNSTEADY.get(test) or UNSTEADY.get(test.partition("[")[0])
