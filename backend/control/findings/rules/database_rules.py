"""Rules about this product's own database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from backend.control.findings.finding_context import CRITICAL, WARNING, Candidate, FindingContext

# So long it is said that the database was put back; what it lacks is asked for on the next working day.
SAID_MS: Final = 86_400_000


def lost_databases(context: FindingContext) -> Iterable[Candidate]:
    """The file was lost within the last day, and this is what stands in its place."""
    recent = [one for one in context.restored if context.at_ms - one.at_ms < SAID_MS]
    if not recent:
        return
    worst = max(recent, key=lambda one: (bool(one.missing), one.at_ms))
    yield Candidate(
        slug="database-lost",
        object="database",
        severity=CRITICAL if worst.missing else WARNING,
        sentence="The database was lost and put back" + (", not all of it" if worst.missing else ""),
        why=f"{worst.sentence}." + (f" Missing: {worst.missing}." if worst.missing else " Nothing is missing."),
        action="Find out who removed or damaged the file; make tokens that are missing again, and look at the plans.",
        facts={"restored_ms": worst.at_ms, "missing": worst.missing},
    )
