"""The alert rules, those that fire first. Pure: findings and runbooks → HTML and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.markup import Cell
from backend.store.queries.overview import FindingRow

WORST_FIRST: Final = ("critical", "warning", "notice")


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule and what it has found; ``since_ms`` None: it is quiet."""

    slug: str
    open: int
    severity: str | None
    since_ms: int | None

    @property
    def name(self) -> str:
        return self.slug.replace("-", " ").capitalize()


def rules(slugs: Sequence[str], findings: Sequence[FindingRow]) -> list[AlertRule]:
    """The worst first, then by name."""
    alert_rules = []
    for slug in slugs:
        open_findings = [finding for finding in findings if finding.slug == slug and finding.closed_ms is None]
        worst = min((_rank(finding.severity) for finding in open_findings), default=None)
        severity = None if worst is None else (*WORST_FIRST, "notice")[worst]
        alert_rules.append(
            AlertRule(
                slug, len(open_findings), severity, min((finding.opened_ms for finding in open_findings), default=None)
            )
        )
    return sorted(
        alert_rules, key=lambda rule: (_rank(rule.severity) if rule.severity else len(WORST_FIRST) + 1, rule.slug)
    )


def _rank(severity: str) -> int:
    return WORST_FIRST.index(severity) if severity in WORST_FIRST else len(WORST_FIRST)


def clause(alert_rules: Sequence[AlertRule]) -> str:
    """``15 rules · 3 firing``."""
    firing = sum(rule.since_ms is not None for rule in alert_rules)
    return f"{fmt.count(len(alert_rules))} rules · {f'{fmt.count(firing)} firing' if firing else 'all quiet'}"


def rules_html(alert_rules: Sequence[AlertRule], now_ms: int, shown: int) -> str:
    """One line a rule: name, and for how long it fires on how many things."""
    rows = [(Cell(rule.name), Cell(html=_pill(rule, now_ms))) for rule in alert_rules[:shown]]
    return markup.table([("Rule", "left"), ("State", "left")], rows, caption="Rules and whether they fire")


def _pill(rule: AlertRule, now_ms: int) -> str:
    if rule.since_ms is None:
        return markup.pill("quiet", "notice")
    many = f", {fmt.count(rule.open)} times" if rule.open > 1 else ""
    return markup.pill(f"firing {fmt.duration(max(0, now_ms - rule.since_ms) / 1000)}{many}", rule.severity)


def rows(alert_rules: Sequence[AlertRule], now_ms: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "rule": [rule.slug for rule in alert_rules],
            "firing": [rule.open for rule in alert_rules],
            "severity": [rule.severity or "" for rule in alert_rules],
            "for": [
                "" if rule.since_ms is None else fmt.duration(max(0, now_ms - rule.since_ms) / 1000)
                for rule in alert_rules
            ],
        }
    )
