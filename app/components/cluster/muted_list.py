"""Findings that are muted, as lines of a card. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.components.cluster import alerts
from app.components.shared import markup
from backend.store.queries.overview import FindingRow

DRAWN_MAX: Final = 50
# As the audit names it; a mute lasts thirty days at most.
ACTION: Final = "mute finding"
MUTE_MS_MAX: Final = 30 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class MutedLine:
    """A finding that sends nothing: until when, by whom; ``is_open`` False: its silence is of the next one."""

    finding_id: int
    severity: str
    title: str
    until_ms: int
    by: str
    is_open: bool


def lines(findings: Sequence[FindingRow], actors: Mapping[str, str], now_ms: int) -> list[MutedLine]:
    """Open ones first, then by the end of their silence. ``actors``: who muted, by object of the audit."""
    made = [
        MutedLine(
            finding.id,
            alerts.line_of(finding).severity,
            finding.sentence,
            finding.muted_until_ms,
            actors.get(f"{finding.slug} {finding.object}", ""),
            finding.closed_ms is None,
        )
        for finding in findings
        if finding.id is not None and finding.muted_until_ms is not None and finding.muted_until_ms > now_ms
    ]
    return sorted(made, key=lambda line: (not line.is_open, line.until_ms))


def line_html(line: MutedLine, clock: Callable[[int | None], str]) -> str:
    """One line: what, until when, by whom."""
    by = f" by {line.by}" if line.by else ""
    note = f"muted until {clock(line.until_ms)}{by}" + ("" if line.is_open else " · not open now")
    return (
        f'<div class="eb-explained">{markup.mark(line.severity)} {markup.text(line.title)}'
        f' <span class="eb-clause">{markup.text(note)}</span></div>'
    )
