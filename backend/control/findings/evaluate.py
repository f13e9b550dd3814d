"""Compares one round of rules with the open findings: some open, some stay, some close."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from backend.control.findings.catalogue import RULES, FindingRule
from backend.control.findings.finding_context import SEVERITIES, Candidate, FindingContext, FindingKey
from backend.store.queries.findings import Finding
from backend.store.storable import storable, storable_key

# More lines of one rule are of no use: 20 rules of 500 objects are 10,000 rows of about 1 kB, 10 MB.
OBJECTS_MAX: Final = 500
# A finding that stays as it is is written this often all the same, so that its age can be trusted.
SEEN_INTERVAL_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one round for the database; `waiting`: since when each candidate has held, for the next round."""

    opened: Sequence[Candidate] = ()
    kept: Sequence[tuple[Finding, Candidate]] = ()  # of which something changed, or which are due
    closed: Sequence[Finding] = ()
    waiting: Mapping[FindingKey, int] = field(default_factory=dict)

    @property
    def worth_a_look(self) -> bool:
        """Whether a page that shows findings has something new to show."""
        return bool(self.opened or self.closed) or any(
            (finding.severity, finding.sentence) != (candidate.severity, candidate.sentence)
            for finding, candidate in self.kept
        )


def candidates(context: FindingContext, rules: Iterable[FindingRule] = RULES) -> dict[FindingKey, Candidate]:
    """Candidates that hold now, one per slug and object (the first that a rule gives), at most `OBJECTS_MAX` per slug.

    Of more than that, the worst stay.
    """
    result: dict[FindingKey, Candidate] = {}
    for rule in rules:
        for candidate in map(_as_stored, rule(context)):
            result.setdefault(candidate.key, candidate)
    if len(result) <= OBJECTS_MAX:
        return result
    per_slug: Counter[str] = Counter()
    kept = {}
    for key, candidate in sorted(result.items(), key=lambda item: SEVERITIES.index(item[1].severity)):
        per_slug[candidate.slug] += 1
        if per_slug[candidate.slug] <= OBJECTS_MAX:
            kept[key] = candidate
    return kept


def _as_stored(candidate: Candidate) -> Candidate:
    """With the names as they come back from the database, with which it is compared."""
    current = (candidate.object, candidate.sentence, candidate.action)
    stored = (storable_key(candidate.object), storable(candidate.sentence), storable(candidate.action))
    if current == stored:
        return candidate
    return replace(candidate, object=stored[0], sentence=stored[1], action=stored[2])


def evaluate(
    context: FindingContext,
    open_findings: Iterable[Finding],
    waiting: Mapping[FindingKey, int],
    rules: Iterable[FindingRule] = RULES,
) -> Changes:
    """Compares candidates with open findings; an open one stays open without waiting its `for_ms` again."""
    current = candidates(context, rules)
    open_by_key = {(finding.slug, finding.object): finding for finding in open_findings}
    since = {key: waiting.get(key, context.at_ms) for key in current}
    ripe = {key for key, c in current.items() if key in open_by_key or context.at_ms - since[key] >= c.for_ms}
    superfluous = {(c.replaces, c.object) for key, c in current.items() if key in ripe and c.replaces}
    shown = {key: c for key, c in current.items() if key in ripe and key not in superfluous}
    return Changes(
        opened=[candidate for key, candidate in shown.items() if key not in open_by_key],
        kept=[
            (open_by_key[key], candidate)
            for key, candidate in shown.items()
            if key in open_by_key and _to_write(open_by_key[key], candidate, context.at_ms)
        ],
        closed=[finding for key, finding in open_by_key.items() if key not in shown],
        waiting=since,
    )


def _to_write(finding: Finding, candidate: Candidate, at_ms: int) -> bool:
    now = (candidate.severity, candidate.sentence, candidate.action)
    before = (finding.severity, finding.sentence, finding.action)
    return now != before or at_ms - finding.seen_ms >= SEEN_INTERVAL_MS
