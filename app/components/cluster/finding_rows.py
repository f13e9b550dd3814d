"""Findings as rows, to be read or taken away as a file: all, also those that a card folds away. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pandas as pd

from app.components.cluster import alerts
from app.components.cluster.alerts import Alert
from backend.store.queries.overview import FindingRow

_COLUMNS: Final = (
    "severity", "rule", "object", "what", "why", "do", "since", "explained by", "muted until", "looks after it",
)  # fmt: skip


def frame(findings: Sequence[FindingRow], moment: Callable[[int], str], blind: Sequence[Alert] = ()) -> pd.DataFrame:
    """The lines of the card that are no stored findings, then all that are; `moment` writes a time with its date."""
    rows = [_blind(line) for line in blind] + [_row(finding, moment) for finding in findings]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _blind(line: Alert) -> tuple[str, ...]:
    return (line.severity, line.slug, line.object, line.title, line.detail, line.action, "", "", "", "")


def _row(finding: FindingRow, moment: Callable[[int], str]) -> tuple[str, ...]:
    cause = "" if finding.cause_slug is None else f"{finding.cause_slug} of {finding.cause_object}"
    return (
        finding.severity,
        finding.slug,
        finding.object,
        finding.sentence,
        alerts.line_of(finding).detail,
        finding.action,
        moment(finding.opened_ms),
        cause,
        "" if finding.muted_until_ms is None else moment(finding.muted_until_ms),
        finding.acknowledged_by or "",
    )
