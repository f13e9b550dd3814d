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
UNSTEADY: Final[dict[str, Unsteady]] = {}


def unsteady(test: str) -> Unsteady | None:
    """The entry of a test, by its whole name or that without parameters."""
    return UNSTEADY.get(test) or UNSTEADY.get(test.partition("[")[0])
