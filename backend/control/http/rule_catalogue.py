"""The rules there are as the API lists them, each with what it explains. Pure."""

from __future__ import annotations

from backend.control.findings.catalogue import SLUGS
from backend.control.findings.causes import EXPLANATIONS
from backend.control.http.alert_models import ExplanationAnswer, RuleAnswer


def rule_answers() -> list[RuleAnswer]:
    """All of them by name, with the rows of the table of causes that begin with each."""
    return [RuleAnswer(slug=slug, title=title, explains=_explains(slug)) for slug, title in SLUGS.items()]


def _explains(slug: str) -> list[ExplanationAnswer]:
    return [
        ExplanationAnswer(
            link=row.link,
            slugs=list(row.consequences),
            unseen_only=row.unseen_only,
            evidence_rules=None if row.rules is None else sorted(row.rules),
            cause_rule=row.cause_rule,
        )
        for row in EXPLANATIONS
        if row.cause == slug
    ]
