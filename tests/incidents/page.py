"""docs/incidents.md: a row for each incident, with what happened on both clusters. Pure text from values."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.incidents.expectations import Incident, Where
from tests.incidents.results import Result

INTRODUCTION: Final = """\
# Incidents, and what ebbline finds

Made by `make incidents`, which plays each incident on the embedded cluster (`ebbline up --process-per-broker`) and on a
real Apache Kafka with `ebbline up --attach` beside it, reads the findings each half second, and counts the notices at a
receiver. The findings that must come, how fast, with which severity, words and action, stand in
`tests/incidents/catalogue`; every other finding is false. Most of them came into the repository together with the rules
and were changed with them; the ten of `tests/incidents/catalogue/second_stranger.py` were written by somebody who had
not read the rules. An action is right when it was carried out, ended the finding, and every acknowledged record could
be read afterwards; – where none was carried out.

Found after: seconds from the first step that breaks something, or from the step that the incident names. Notices: sent,
of the number that is right (one when a cause opens, one when it closes). The commit is the one that was played.
"""
NOT_YET: Final = "not played yet"

# The beginning says which it is; the results have the whole, with what a command printed.
COMPLAINT_CHARS_MAX: Final = 160


def page(incidents: Sequence[Incident], results: Mapping[tuple[str, str], Result]) -> str:
    """The whole page."""
    return "\n".join(_lines(incidents, results)) + "\n"


def _lines(incidents: Sequence[Incident], results: Mapping[tuple[str, str], Result]) -> Iterator[str]:
    yield INTRODUCTION
    yield from _summary(incidents, results)
    for where, title in ((Where.EMBEDDED, "On the embedded cluster"), (Where.KAFKA, "On Apache Kafka")):
        yield f"\n## {title}\n"
        yield "| incident | found after | notices | false findings | right action | commit |"
        yield "|---|---|---|---|---|---|"
        for incident in incidents:
            if where in incident.on:
                yield _row(incident, results.get((incident.name, where.value)))
    yield "\n## Not played, and why\n"
    yield "| incident | where | why |"
    yield "|---|---|---|"
    for incident in incidents:
        for where, why in incident.why_not.items():
            yield f"| {cell(incident.title)} | {where.value} | {cell(why)} |"
        for where in incident.on:
            result = results.get((incident.name, where.value))
            if result is not None and result.not_played:
                why = f"on the machine of this run: {result.not_played}"
                yield f"| {cell(incident.title)} | {where.value} | {cell(why)} |"
    yield "\n## Where it fell short\n"
    yield from _shortcomings(incidents, results)


def _summary(incidents: Sequence[Incident], results: Mapping[tuple[str, str], Result]) -> Iterator[str]:
    columns = [_totals(incidents, results, where) for where in (Where.EMBEDDED, Where.KAFKA)]
    yield "| | embedded | Apache Kafka |"
    yield "|---|---|---|"
    for name in columns[0]:
        yield f"| {name} | {' | '.join(column[name] for column in columns)} |"


def _totals(incidents: Sequence[Incident], results: Mapping[tuple[str, str], Result], where: Where) -> dict[str, str]:
    here = [incident.name for incident in incidents if where in incident.on]
    rows = [results[name, where.value] for name in here if (name, where.value) in results]
    rows = [row for row in rows if not row.not_played]
    return {
        "played": f"{len(rows)} of {len(here)}",
        "as it should be": str(sum(row.passed for row in rows)),
        "recall": f"{sum(row.recall for row in rows) / len(rows):.0%}" if rows else "–",
        "false criticals": str(sum(row.false_criticals for row in rows)),
        "false findings": str(sum(len(row.false_findings) for row in rows)),
    }


def _row(incident: Incident, result: Result | None) -> str:
    title = cell(incident.title)
    if result is None or result.not_played:
        return f"| {title} | {NOT_YET} | | | | |"
    times = [f"`{name.partition(' ')[0]}` {seconds:g} s" for name, seconds in result.seconds.items()]
    times += [f"**never** `{name.partition(' ')[0]}`" for name in result.missed]
    # Results of before count one as right that nobody has carried out.
    right = result.right_action if incident.carries_out or result.right_action is False else None
    action = {True: "yes", False: "**no**", None: "–"}[right]
    false = "0" if not result.false_findings else f"**{len(result.false_findings)}**"
    notices = f"{result.notices} of {result.notices_expected}"
    when = cell("; ".join(times) or "nothing to find")
    return f"| {title} | {when} | {notices} | {false} | {action} | `{result.commit}` |"


def _shortcomings(incidents: Sequence[Incident], results: Mapping[tuple[str, str], Result]) -> Iterator[str]:
    if all(result.passed or result.not_played for result in results.values()):
        yield "Nowhere, in what was played."
    for incident in incidents:
        for where in Where:
            result = results.get((incident.name, where.value))
            if result is None or result.passed or result.not_played:
                continue
            parts = [f"never found: `{name}`" for name in result.missed]
            parts += [f"false: {cell(finding)}" for finding in result.false_findings]
            parts += [
                cell(textwrap.shorten(complaint, COMPLAINT_CHARS_MAX, placeholder=" …"))
                for complaint in result.complaints
            ]
            yield f"- {cell(incident.title)}, {where.value}: {'; '.join(parts)}"


def _beginning(complaint: str) -> str:
    return textwrap.shorten(complaint, COMPLAINT_CHARS_MAX, placeholder=" …")


def cell(text: str) -> str:
    """Text that stands in a cell or a line as it is."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
