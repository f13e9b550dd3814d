"""Open findings as they were last read, and as they go on while the database is away. Pure.

Messages go out meanwhile: a killed broker is no smaller matter while PostgreSQL restarts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from backend.control.findings.evaluate import Changes
from backend.control.findings.finding_context import CRITICAL, Candidate, FindingKey
from backend.control.findings.holds import default_for_ms
from backend.store.maintenance_window import MaintenanceWindow
from backend.store.queries.findings import Finding

DATABASE_AWAY_FOR_MS: Final = default_for_ms("database-away")
AWAY: Final[FindingKey] = ("database-away", "database")


@dataclass(frozen=True, slots=True)
class OpenInMemory:
    """`unstored_ms`: when findings opened that no table has yet, by key."""

    findings: Sequence[Finding] = ()
    muted_until_ms: Mapping[FindingKey, int] = field(default_factory=dict)
    windows: Sequence[MaintenanceWindow] = ()
    unstored_ms: Mapping[FindingKey, int] = field(default_factory=dict)

    def with_changes(self, changes: Changes, at_ms: int) -> OpenInMemory:
        """The findings once these changes have happened; new ones have negative numbers until they are stored."""
        closed = {(finding.slug, finding.object) for finding in changes.closed}
        kept = {(before.slug, before.object): _with(before, candidate) for before, candidate in changes.kept}
        findings = [
            kept.get((finding.slug, finding.object), finding)
            for finding in self.findings
            if (finding.slug, finding.object) not in closed
        ]
        findings += [_new(candidate, -number, at_ms) for number, candidate in enumerate(changes.opened, start=1)]
        unstored = {key: opened_ms for key, opened_ms in self.unstored_ms.items() if key not in closed}
        return replace(self, findings=findings, unstored_ms=unstored | {c.key: at_ms for c in changes.opened})

    @property
    def unstored(self) -> list[Finding]:
        """The open findings that no table has."""
        return [finding for finding in self.findings if (finding.slug, finding.object) in self.unstored_ms]

    def stored(self) -> OpenInMemory:
        """The same, once the tables have all of it."""
        return replace(self, unstored_ms={})

    def passed(self, current: Mapping[FindingKey, Candidate]) -> list[Finding]:
        """Findings that no table has and that are over now."""
        keys = {key for key in self.unstored_ms if key not in current}
        return [finding for finding in self.findings if (finding.slug, finding.object) in keys]


def database_away(reason: str, lost: str | None) -> Candidate:
    """The finding of a database that does not do what the product wants of it; `lost`: of a file that is gone."""
    if lost is not None:
        return Candidate(
            slug="database-lost",
            object="database",
            severity=CRITICAL,
            sentence=lost,
            why="It is restored from the newest copy within seconds, if there is one.",
            action="Put the file back; else it is restored by itself.",
        )
    return Candidate(
        slug=AWAY[0],
        object=AWAY[1],
        severity=CRITICAL,
        sentence="The product's own database is away",
        why=f"{reason} No history is written, pages show what was read last, and no plan can begin; brokers, and"
        " messages about who is alive, do not need it.",
        action="See whether its server runs, takes writes and has room, and end a program that holds it; the product"
        " tries again by itself.",
        for_ms=DATABASE_AWAY_FOR_MS,
    )


def _with(finding: Finding, candidate: Candidate) -> Finding:
    slug, object_ = candidate.cause or (None, None)
    return replace(
        finding,
        severity=candidate.severity,
        sentence=candidate.sentence,
        action=candidate.action,
        evidence=candidate.evidence,
        cause_slug=slug,
        cause_object=object_,
    )


def _new(candidate: Candidate, number: int, at_ms: int) -> Finding:
    slug, object_ = candidate.cause or (None, None)
    return Finding(
        id=number,
        slug=candidate.slug,
        object=candidate.object,
        topic=candidate.topic,
        partition=candidate.partition,
        broker_id=candidate.broker_id,
        severity=candidate.severity,
        sentence=candidate.sentence,
        action=candidate.action,
        evidence=candidate.evidence,
        opened_ms=at_ms,
        seen_ms=at_ms,
        closed_ms=None,
        acknowledged_ms=None,
        acknowledged_by=None,
        muted_until_ms=None,
        cause_slug=slug,
        cause_object=object_,
    )
