"""Needs attention: the open findings, worst first, and on top of them what the product itself does not see. Pure.

The findings are those that the control plane has stored, the same for pages, commands, receivers and Prometheus: the
page judges nothing by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.components.cluster.health_text import BROKERS_SILENT, CLUSTER_AWAY, Blindness
from app.components.shared import format as fmt
from backend.store.blind_spots import OF_A_SILENT_CLUSTER
from backend.store.finding_age import unseen_ms
from backend.store.maintenance_window import MaintenanceWindow, maintenance_until
from backend.store.queries.overview import FindingRow

SEVERITIES: Final = ("critical", "warning", "notice")
ROWS_MAX: Final = 6
# Each row has six elements; Activity and `ebbline findings` have all.
DRAWN_MAX: Final = 50
# Of what a cause explains, as many are listed under it; a link leads to all.
EXPLAINED_MAX: Final = 10
# Blindness is said with its age as of now; a finding of the same thing says nothing more.
SAID_BY_BLINDNESS: Final[Mapping[str, frozenset[str]]] = {
    "observer-down": frozenset({"backend-down", "observer-down", "samples-stale"}),
    "pipeline-behind": frozenset({"pipeline-down", "pipeline-never", "pipeline-waiting"}),
    "pipeline-down": frozenset({"pipeline-down", "pipeline-never", "pipeline-waiting"}),
}
"""By slug of a finding: the blind spots that say the same."""
# It says when it was opened and what to do, and may be muted.
SAID_BY_FINDING: Final = "rights-missing"
PARTITION_LINKS: Final[Mapping[str, str]] = {
    "copy-dangling": "Ledger",
    "copy-hung": "Open copy",
    "delete-lag": "Ledger",
    "follower-stuck": "Replicas",
    "truncation-refused": "Replicas",
}
"""Labels of the links to a finding's partition, by slug; of all others it is `Open partition`."""
PAGE_LINKS: Final[Mapping[str, tuple[str, str, str]]] = {
    "broker-away": ("Partitions", "partitions", ""),
    "copy-dangling": ("Open copies", "remote", ""),
    "disk-runway": ("Partitions", "partitions", ""),
    "move-foreign": ("Moves", "reassign", ""),
    # Config lists the folders, with the plan that removes one.
    "set-aside": ("Folders", "config", "brokers"),
    "throttle-left": ("Clear throttle", "reassign", ""),
}
"""Label, page and its section, for findings that have no partition."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One row of the card. ``partition`` or ``page``, there a ``section``, is where its link leads.

    ``age_ms``: since it was opened; ``action``: what to do. ``finding_id`` is of a stored finding, which can be muted
    and taken over; ``covered``: it is in maintenance. ``explained``: what it is the cause of, the worst
    first, of ``explained_count`` the first few.
    """

    slug: str
    object: str
    severity: str
    title: str
    detail: str
    action: str = ""
    age_ms: int | None = None
    link: str = ""
    page: str = ""
    partition: str = ""
    section: str = ""
    finding_id: int | None = None
    taken_by: str = ""
    covered: bool = False
    explained: tuple[Alert, ...] = ()
    explained_count: int = 0


def problems(
    blindness: Sequence[Blindness],
    findings: Sequence[FindingRow],
    windows: Sequence[MaintenanceWindow],
    now_ms: int,
) -> list[Alert]:
    """All that needs attention, our own blindness first, then by severity; last comes what is in maintenance.

    A finding that is muted is not shown; one that is explained by another stands under it.
    """
    # Each silent broker is a finding.
    own = [
        Alert(b.slug, "ebbline", b.status, b.title.rstrip("."), f"{b.sentence} {b.note}".strip())
        for b in blindness
        if b.slug != BROKERS_SILENT and not (b.slug == SAID_BY_FINDING and b.slug in {f.slug for f in findings})
    ]
    blind_slugs, explained = {alert.slug for alert in own}, explained_by(findings)
    shown = [
        _with_explained(_stored(finding, windows, now_ms), explained.get((finding.slug, finding.object), ()))
        for finding in findings
        if finding.cause_slug is None
        and (finding.muted_until_ms or 0) <= now_ms
        and not blind_slugs & SAID_BY_BLINDNESS.get(finding.slug, frozenset())
    ]
    if any(alert.slug == CLUSTER_AWAY and not alert.covered for alert in shown):
        own = [alert for alert in own if alert.slug not in OF_A_SILENT_CLUSTER]
    return [*own, *sorted(shown, key=lambda alert: (alert.covered, SEVERITIES.index(alert.severity)))]


def explained_by(findings: Sequence[FindingRow]) -> dict[tuple[str, str], list[FindingRow]]:
    """The open findings by the (slug, object) of the one that explains them, the worst and oldest first."""
    result: dict[tuple[str, str], list[FindingRow]] = {}
    for row in sorted(findings, key=lambda row: (SEVERITIES.index(_severity(row)), row.opened_ms)):
        if row.cause_slug is not None and row.cause_object is not None:
            result.setdefault((row.cause_slug, row.cause_object), []).append(row)
    return result


def summary(alerts: Sequence[Alert]) -> str:
    """``4 problems, 2 notices · worst first``."""
    notices = sum(problem.severity == "notice" for problem in alerts)
    serious = len(alerts) - notices
    parts = [_count(serious, "problem")] if serious else []
    parts += [_count(notices, "notice")] if notices else []
    return ", ".join(parts) + (" · worst first" if len(alerts) > 1 else "")


@dataclass(frozen=True, slots=True)
class PageStatus:
    """The worst severity of what needs attention, and how many problems there are; None: there are none."""

    severity: str | None
    count: int


def page_status(alerts: Sequence[Alert]) -> PageStatus:
    """For the title of the browser's tab: problems that are not in maintenance."""
    serious = [alert.severity for alert in alerts if alert.severity != "notice" and not alert.covered]
    return PageStatus(min(serious, key=SEVERITIES.index, default=None), len(serious))


def not_drawn(alerts: Sequence[Alert]) -> str | None:
    """The label of the link to those that the card has no row for; None: it has one for each."""
    left = len(alerts) - DRAWN_MAX
    return None if left <= 0 else f"{fmt.count(left)} more in the table, in Activity and `ebbline findings` →"


def _count(number: int, noun: str) -> str:
    return f"{fmt.count(number)} {noun}{'' if number == 1 else 's'}"


def _with_explained(cause: Alert, findings: Sequence[FindingRow]) -> Alert:
    first = tuple(line_of(finding) for finding in findings[:EXPLAINED_MAX])
    return replace(cause, explained=first, explained_count=len(findings))


def _severity(finding: FindingRow) -> str:
    """That of a later version is a warning."""
    return finding.severity if finding.severity in SEVERITIES else "warning"


def _stored(finding: FindingRow, windows: Sequence[MaintenanceWindow], now_ms: int) -> Alert:
    """A stored finding, with its age where it is not of now, the end of its maintenance, and who looks after it."""
    until_ms = maintenance_until(windows, finding.slug, finding.topic, finding.broker_id, now_ms)
    alert = line_of(finding)
    age_ms = unseen_ms(finding.seen_ms, finding.closed_ms, now_ms)
    notes = [] if age_ms is None else [f"Last seen {fmt.duration(age_ms / 1000)} ago."]
    notes += [] if until_ms is None else [f"In maintenance for {fmt.duration((until_ms - now_ms) / 1000)} more."]
    notes += [f"{finding.acknowledged_by} looks after it."] if finding.acknowledged_by else []
    return replace(
        alert,
        detail=" ".join(part for part in (alert.detail, *notes) if part),
        age_ms=max(0, now_ms - finding.opened_ms),
        finding_id=finding.id,
        taken_by=finding.acknowledged_by or "",
        covered=until_ms is not None,
    )


def line_of(finding: FindingRow) -> Alert:
    """A stored finding in its words, with where its link leads."""
    severity = _severity(finding)
    evidence = finding.evidence if isinstance(finding.evidence, dict) else {}
    detail = str(evidence.get("sentence", ""))
    line = Alert(finding.slug, finding.object, severity, finding.sentence, detail, finding.action)
    if finding.topic is not None and finding.partition is not None:
        label = PARTITION_LINKS.get(finding.slug, "Open partition")
        return replace(line, link=label, partition=f"{finding.topic}-{finding.partition}")
    link, page, section = PAGE_LINKS.get(finding.slug, ("", "", ""))
    return replace(line, link=link, page=page, section=section)
