"""The judge: an incident and the record of how it was played give a verdict. Pure; it knows no cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.incidents.expectations import SEVERITIES, Expected, Incident
from tests.incidents.false_findings import false_findings
from tests.incidents.judged_commands import status_complaints
from tests.incidents.judged_notices import heartbeat_complaints, notice_complaints, notices_expected
from tests.incidents.patterns import advises, is_expected, lacking, saying
from tests.incidents.timeline import SeenFinding, Timeline
from tests.incidents.verdicts import Verdict


def judge(incident: Incident, timeline: Timeline) -> Verdict:
    """Compares what was found with what had to be."""
    seconds: dict[str, float] = {}
    cleared_s: dict[str, float] = {}
    missed: list[str] = []
    complaints: list[str] = []
    actions: list[bool | None] = []
    for expected in incident.expected:
        for pattern in expected.objects:
            name = f"{expected.slug} {pattern}"
            sightings = [*_sightings(expected, pattern, timeline)]
            if not sightings:
                missed.append(name)
                actions.append(False)
                continue
            seconds[name] = max(0.0, sightings[0][0] - timeline.began_s(expected.since))
            if seconds[name] > expected.within_s:
                complaints.append(f"{name} came after {seconds[name]:.1f} s, not within {expected.within_s:g} s")
            complaints += _severity_complaints(name, expected, sightings)
            in_action = _action_complaints(name, expected, sightings, timeline)
            in_clearing = _clearing(name, expected, sightings, timeline, cleared_s)
            complaints += [*_word_complaints(name, expected, sightings, timeline), *in_action, *in_clearing]
            wrong = bool(in_action or in_clearing)
            actions.append(False if wrong else _is_carried_out(expected, timeline) or None)
    complaints += notice_complaints(incident, timeline)
    complaints += heartbeat_complaints(incident, timeline)
    complaints += status_complaints(incident, timeline)
    complaints += [f"`ebbline readers` lists no {group}" for group in incident.readers if group not in timeline.readers]
    lost = timeline.missing_records and not incident.loses
    if lost:
        complaints.append(f"{timeline.missing_records} acknowledged records are gone")
    return Verdict(
        expected=sum(len(expected.objects) for expected in incident.expected),
        missed=tuple(missed),
        false_findings=(*false_findings(incident, timeline),),
        seconds=seconds,
        cleared_s=cleared_s,
        notices=len(timeline.notices),
        notices_expected=notices_expected(incident),
        right_action=_right_action(actions, lost=bool(lost)) if incident.expected else None,
        complaints=tuple(complaints),
    )


def _is_carried_out(expected: Expected, timeline: Timeline) -> bool:
    """Whether a step mended it and it had to close then; else nothing shows that the action would end it."""
    return expected.is_acted_on and timeline.ended_s(expected.cleared_from) is not None


def _right_action(actions: Sequence[bool | None], *, lost: bool) -> bool | None:
    if lost or False in actions:
        return False
    return True if True in actions else None


def _sightings(expected: Expected, pattern: str, timeline: Timeline) -> Iterator[tuple[float, SeenFinding]]:
    for read in timeline.judged_reads():
        for finding in read.findings:
            if is_expected(expected, pattern, finding, timeline.names):
                yield read.at_s, finding


def _severity_complaints(name: str, expected: Expected, sightings: list[tuple[float, SeenFinding]]) -> Iterator[str]:
    first = sightings[0][1].severity
    if first not in expected.severity.split("|"):
        yield f"{name} opened as {first}, not as {expected.severity}"
    worst = min((finding.severity for _, finding in sightings), key=SEVERITIES.index)
    final = expected.at_worst or expected.severity
    if worst not in final.split("|"):
        yield f"{name} was {worst} at worst, not {final}"


def _word_complaints(
    name: str, expected: Expected, sightings: list[tuple[float, SeenFinding]], timeline: Timeline
) -> Iterator[str]:
    finding = _settled(sightings, timeline)
    without = lacking(expected.says, saying(finding), timeline.names)
    if without:
        yield f"{name} does not say {', '.join(without)}: {saying(finding)}"


def _action_complaints(
    name: str, expected: Expected, sightings: list[tuple[float, SeenFinding]], timeline: Timeline
) -> list[str]:
    finding = _settled(sightings, timeline)
    without = lacking(expected.action, finding.action, timeline.names)
    complaints = [f"{name}: its action lacks {', '.join(without)}: {finding.action}"] if without else []
    for word in expected.never:
        bad = next((seen for _, seen in sightings if advises(word, seen.action, timeline.names)), None)
        if bad is not None:
            complaints.append(f"{name}: its action says {word}: {bad.action}")
    return complaints


def _settled(sightings: list[tuple[float, SeenFinding]], timeline: Timeline) -> SeenFinding:
    """The finding as it was last read before anybody acted on it."""
    limit_s = timeline.mending_s
    before = [finding for at_s, finding in sightings if limit_s is None or at_s <= limit_s]
    return before[-1] if before else sightings[0][1]


def _clearing(
    name: str,
    expected: Expected,
    sightings: list[tuple[float, SeenFinding]],
    timeline: Timeline,
    cleared_s: dict[str, float],
) -> list[str]:
    """Notes when it closed; complaints when that was too late, or before its cause ended."""
    ended_s = timeline.ended_s(expected.cleared_from)
    if expected.cleared_within_s is None or ended_s is None:
        return []
    last_s = sightings[-1][0]
    closed_s = next((read.at_s for read in timeline.reads if read.at_s > last_s), None)
    if closed_s is None:
        return [f"{name} is still open at the end"]
    acting_s = timeline.labelled(expected.cleared_from).began_s if expected.cleared_from else timeline.mending_s
    if acting_s is not None and closed_s < acting_s:
        return [f"{name} closed {acting_s - closed_s:.1f} s before its cause ended"]
    cleared_s[name] = max(0.0, closed_s - ended_s)
    if cleared_s[name] > expected.cleared_within_s:
        return [f"{name} closed after {cleared_s[name]:.1f} s, not within {expected.cleared_within_s:g} s"]
    return []
