"""Settings of rules, applied to the candidates that rules give: hold, severity, off. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backend.control.findings.finding_context import Candidate, FindingKey
from backend.control.findings.holds import BY_AGE
from backend.control.findings.thresholds import RuleSettings


def adjusted(candidates: Mapping[FindingKey, Candidate], settings: RuleSettings) -> dict[FindingKey, Candidate]:
    """The candidates as they count: without those of a rule that is off, with the holds and severities that are set."""
    if not settings.settings:
        return dict(candidates)
    result = {}
    for key, candidate in candidates.items():
        setting = settings.of(candidate.slug, candidate.topic)
        if setting is None:
            result[key] = candidate
        elif not setting.off:
            result[key] = replace(
                candidate,
                for_ms=candidate.for_ms if setting.for_ms is None or candidate.slug in BY_AGE else setting.for_ms,
                severity=setting.severity or candidate.severity,
            )
    return result
