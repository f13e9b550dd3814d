"""Findings as rows, to be read or taken away as a file: all, also those that a card folds away. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from app.components.cluster import alerts
from app.components.cluster.health_text import Blindness
from backend.store.queries.overview import FindingRow


def frame(
    findings: Sequence[FindingRow], moment: Callable[[int], str], blindness: Sequence[Blindness] = ()
) -> pd.DataFrame:
    """The blind spots of the product, then the findings in their order; `moment` writes a time with its date."""
    rows = [_blind(spot) for spot in blindness] + [_row(finding, moment) for finding in findings]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


_COLUMNS = (
    "severity", "rule", "object", "what", "why", "do", "since", "explained by", "muted until", "looks after it",
)  # fmt: skip


def _blind(spot: Blindness) -> tuple[str, ...]:
    why = f"{spot.sentence} {spot.note}".strip()
    return (spot.status, spot.slug, "ebbline", spot.title.rstrip("."), why, "", "", "", "", "")


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
