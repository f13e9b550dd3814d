"""Notices of one round of rules: findings that opened, closed or became worse. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from backend.control.findings.evaluate import Changes
from backend.control.findings.finding_context import Candidate, FindingKey
from backend.store.queries.findings import Finding


class NoticeEvent(StrEnum):
    """The change of a finding; CHANGED is another severity."""

    OPENED = "opened"
    CHANGED = "changed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Notice:
    """One event of one finding, with the finding as it is then."""

    event: NoticeEvent
    at_ms: int
    slug: str
    object: str
    severity: str
    sentence: str
    action: str
    evidence: Any
    topic: str | None
    partition: int | None
    broker_id: int | None


def notices(changes: Changes, muted_until_ms: Mapping[FindingKey, int], at_ms: int) -> list[Notice]:
    """Notices of findings that are not muted, in the order opened, changed, closed."""
    result = [_notice(NoticeEvent.OPENED, at_ms, candidate) for candidate in changes.opened]
    result += [
        _notice(NoticeEvent.CHANGED, at_ms, candidate)
        for finding, candidate in changes.kept
        if finding.severity != candidate.severity
    ]
    result += [_notice(NoticeEvent.CLOSED, at_ms, finding) for finding in changes.closed]
    return [notice for notice in result if muted_until_ms.get((notice.slug, notice.object), 0) <= at_ms]


def open_counts(
    findings: Iterable[Finding], changes: Changes, muted_until_ms: Mapping[FindingKey, int], at_ms: int
) -> dict[tuple[str, str], int]:
    """Number of findings that are open and not muted, by (slug, severity), after these changes."""
    closed = {finding.id for finding in changes.closed}
    now = {(finding.slug, finding.object): finding.severity for finding in findings if finding.id not in closed}
    now |= {candidate.key: candidate.severity for _, candidate in changes.kept}
    now |= {candidate.key: candidate.severity for candidate in changes.opened}
    counts: dict[tuple[str, str], int] = {}
    for key, severity in now.items():
        if muted_until_ms.get(key, 0) <= at_ms:
            counts[key[0], severity] = counts.get((key[0], severity), 0) + 1
    return counts


def _notice(event: NoticeEvent, at_ms: int, what: Candidate | Finding) -> Notice:
    return Notice(
        event,
        at_ms,
        what.slug,
        what.object,
        what.severity,
        what.sentence,
        what.action,
        what.evidence,
        what.topic,
        what.partition,
        what.broker_id,
    )
