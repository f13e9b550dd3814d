"""Notices: findings as receivers are to have them after a round, and one event of one of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from backend.control.findings.evaluate import Changes
from backend.control.findings.finding_context import Candidate, FindingKey
from backend.store.maintenance_window import MaintenanceWindow, maintenance_until
from backend.store.queries.findings import Finding


class NoticeEvent(StrEnum):
    """The change of a finding; CHANGED is another severity."""

    OPENED = "opened"
    CHANGED = "changed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Notice:
    """One event of one finding, with the finding as it is then.

    `cause`: of one that closed because it is explained, the finding that explains it.
    """

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
    opened_ms: int = 0
    cause: FindingKey | None = None

    @property
    def key(self) -> FindingKey:
        return self.slug, self.object

    @property
    def why(self) -> str:
        """The evidence in words."""
        return str(self.evidence.get("sentence") or "") if isinstance(self.evidence, dict) else ""

    @property
    def explains(self) -> dict[str, Any] | None:
        """Findings that this one explains: their number, by slug, the first objects."""
        return self.evidence.get("explains") if isinstance(self.evidence, dict) else None


@dataclass(frozen=True, slots=True)
class OpenAlerts:
    """Open findings after a round, as receivers are to have them.

    `open` is sent. `withheld` is open as well, and muted or in maintenance: no word about it until that ends, unless it
    closes. `explained` sends nothing, since its cause does.
    """

    at_ms: int = 0
    open: Mapping[FindingKey, Notice] = field(default_factory=dict)
    withheld: frozenset[FindingKey] = frozenset()
    explained: Mapping[FindingKey, FindingKey] = field(default_factory=dict)


def open_alerts(
    findings: Iterable[Finding],
    changes: Changes,
    muted_until_ms: Mapping[FindingKey, int],
    windows: Sequence[MaintenanceWindow],
    at_ms: int,
) -> OpenAlerts:
    """The state after these changes of the findings that were open before."""
    closed = {finding.id for finding in changes.closed}
    now: dict[FindingKey, tuple[Candidate | Finding, int]] = {
        (finding.slug, finding.object): (finding, finding.opened_ms) for finding in findings if finding.id not in closed
    }
    now |= {candidate.key: (candidate, before.opened_ms) for before, candidate in changes.kept}
    now |= {candidate.key: (candidate, at_ms) for candidate in changes.opened}
    withheld = withheld_keys((finding for finding, _ in now.values()), muted_until_ms, windows, at_ms)
    explained = {key: finding.cause for key, (finding, _) in now.items() if finding.cause is not None}
    return OpenAlerts(
        at_ms,
        {
            key: _notice(finding, opened_ms)
            for key, (finding, opened_ms) in now.items()
            if key not in withheld and key not in explained
        },
        withheld - explained.keys(),
        explained,
    )


def withheld_keys(
    findings: Iterable[Candidate | Finding],
    muted_until_ms: Mapping[FindingKey, int],
    windows: Sequence[MaintenanceWindow],
    at_ms: int,
) -> frozenset[FindingKey]:
    """Keys of the findings that are muted or in maintenance."""
    if not muted_until_ms and not windows:
        return frozenset()
    return frozenset(
        (finding.slug, finding.object)
        for finding in findings
        if muted_until_ms.get((finding.slug, finding.object), 0) > at_ms
        or maintenance_until(windows, finding.slug, finding.topic, finding.broker_id, at_ms) is not None
    )


def open_counts(alerts: OpenAlerts) -> dict[tuple[str, str], int]:
    """Number of findings that are open, not muted, not in maintenance and not explained, by (slug, severity)."""
    return dict(Counter((notice.slug, notice.severity) for notice in alerts.open.values()))


def _notice(finding: Candidate | Finding, opened_ms: int) -> Notice:
    return Notice(
        NoticeEvent.OPENED,
        opened_ms,
        finding.slug,
        finding.object,
        finding.severity,
        finding.sentence,
        finding.action,
        finding.evidence,
        finding.topic,
        finding.partition,
        finding.broker_id,
        opened_ms,
    )
