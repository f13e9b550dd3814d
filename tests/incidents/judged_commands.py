"""The exit code and the text of `ebbline status` while an incident lasts: what a cron job trips over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.incidents.expectations import CRITICAL, NOTICE, Incident
from tests.incidents.timeline import Timeline

ALL_WELL: Final = "Nothing needs attention"
OK, ATTENTION, AWAY = 0, 1, 3


def status_codes(incident: Incident) -> frozenset[int]:
    """The right exit codes once all that is expected is there; several where the incident leaves it open."""
    slugs = {slug for expected in incident.expected for slug in expected.slug.split("|")}
    if "backend-down" in slugs:
        return frozenset({AWAY})
    if "database-away" in slugs:
        # The API answers from memory, or says that it cannot: docs/cli.md has both codes.
        return frozenset({ATTENTION, AWAY})
    severities = [(expected.at_worst or expected.severity).split("|") for expected in incident.expected]
    if any(set(alternatives) == {CRITICAL} for alternatives in severities):
        return frozenset({ATTENTION})
    return (
        frozenset({OK, ATTENTION}) if any(CRITICAL in alternatives for alternatives in severities) else frozenset({OK})
    )


def status_complaints(incident: Incident, timeline: Timeline) -> Iterator[str]:
    """Judges the last run before anybody acted; each run of a quiet incident, and of one in which the API is away, when
    commands are all that a person has.
    """
    limit_s = timeline.mending_s
    runs = [run for run in timeline.commands if run.at_s >= timeline.broke_s]
    if not incident.quiet:
        runs = [run for run in runs if limit_s is None or run.at_s <= limit_s]
        slugs = {slug for expected in incident.expected for slug in expected.slug.split("|")}
        if slugs & {"backend-down", "database-away"}:
            by_s = timeline.broke_s + max(expected.within_s for expected in incident.expected)
            runs = [run for run in runs[:-1] if run.at_s >= by_s] + runs[-1:]
        else:
            runs = runs[-1:]
    right = status_codes(incident)
    for run in runs:
        allowed_critical = any(allowed.severity == CRITICAL for allowed in incident.allowed)
        if run.code not in right and not (run.code == ATTENTION and allowed_critical):
            codes = " or ".join(map(str, sorted(right)))
            yield f"`ebbline status` ended with {run.code}, not with {codes}: {run.text[-700:]}"
        if ALL_WELL in run.text and any(expected.severity != NOTICE for expected in incident.expected):
            yield f'`ebbline status` said "{ALL_WELL}"'
