"""Findings that are false: nobody expects or allows them, and no right cause explains them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.incidents.expectations import EXPLAINS, SEVERITIES, Incident
from tests.incidents.patterns import allowances, fits, is_expected
from tests.incidents.timeline import FindingsRead, Key, SeenFinding, Timeline
from tests.incidents.verdicts import FalseFinding

# `evaluate.OUTLASTS_MS` and `BACKLOG_OUTLASTS_MS`, a round and a read later.
OUTLASTS_S: Final = 24.0
BACKLOG_OUTLASTS_S: Final = 124.0
BACKLOG_SLUGS: Final = ("copy-slow", "delete-lag", "local-debt")


def false_findings(incident: Incident, timeline: Timeline) -> Iterator[FalseFinding]:
    """Each key once, with its worst severity."""
    result: dict[Key, FalseFinding] = {}
    for read in timeline.judged_reads():
        for finding in read.findings:
            because = _why_false(incident, finding, read, timeline)
            if because is None:
                continue
            before = result.get(finding.key)
            if before is None or SEVERITIES.index(finding.severity) < SEVERITIES.index(before.severity):
                result[finding.key] = FalseFinding(finding.slug, finding.object, finding.severity, because)
    yield from result.values()
    yield from (false for false in _opened_again(incident, timeline) if (false.slug, false.object) not in result)


def _why_false(incident: Incident, finding: SeenFinding, read: FindingsRead, timeline: Timeline) -> str | None:
    patterns = [(expected, pattern) for expected in incident.expected for pattern in expected.objects]
    for expected, pattern in patterns:
        if is_expected(expected, pattern, finding, timeline.names):
            same = [other for other in read.findings if is_expected(expected, pattern, other, timeline.names)]
            # Of several for one object the first read stands for all; the others are too many, unless nobody is called.
            if same[0].key == finding.key:
                return None
            if finding.cause is not None:
                return _why_unexplained(incident, finding, read, timeline)
            return f"a second finding beside {same[0].name}"
    limits = [allowed.severity for allowed in allowances(incident, finding.key, timeline.names)]
    if any(SEVERITIES.index(finding.severity) >= SEVERITIES.index(limit) for limit in limits):
        return None
    if finding.cause is not None:
        return _why_unexplained(incident, finding, read, timeline)
    return f"{limits[0]} at worst is right" if limits else "nobody expects it"


def _why_unexplained(incident: Incident, finding: SeenFinding, read: FindingsRead, timeline: Timeline) -> str | None:
    """A finding under a cause is right when the cause is, and may explain it."""
    assert finding.cause is not None
    slug, object_ = finding.cause
    explained = EXPLAINS.get(slug, frozenset())
    if "*" not in explained and finding.slug not in explained:
        return f"{slug} does not explain it"
    # A finding stays under its cause for some seconds after the cause has ended.
    since_s = read.at_s - (BACKLOG_OUTLASTS_S if finding.slug in BACKLOG_SLUGS else OUTLASTS_S)
    reads = [r for r in timeline.reads if since_s <= r.at_s <= read.at_s]
    seen = next(((other, r) for r in reversed(reads) for other in r.findings if other.key == (slug, object_)), None)
    if seen is None:
        return f"its cause, {slug} {object_}, is not open"
    return None if _why_false(incident, *seen, timeline) is None else f"its cause, {slug} {object_}, is false"


def _opened_again(incident: Incident, timeline: Timeline) -> Iterator[FalseFinding]:
    """Findings without a cause that closed and opened more often than is right: each time somebody is called."""
    openings: dict[Key, int] = {}
    severities: dict[Key, str] = {}
    before: frozenset[Key] = frozenset()
    for read in timeline.judged_reads():
        own = {finding.key: finding.severity for finding in read.findings if finding.cause is None}
        for key in own.keys() - before:
            openings[key] = openings.get(key, 0) + 1
        severities |= own
        before = frozenset(own)
    for (slug, object_), times in openings.items():
        right = [allowed.times for allowed in allowances(incident, (slug, object_), timeline.names)]
        right += [expected.opens for expected in incident.expected if fits(expected.slug, slug, timeline.names)]
        if times > max(right, default=1):
            yield FalseFinding(slug, object_, severities[slug, object_], f"it opened {times} times")
