"""Notices at the receiver: one when a cause opens, one when it closes, none for what it explains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.incidents.expectations import Expected, Incident
from tests.incidents.patterns import allowances, fits
from tests.incidents.timeline import Key, SentNotice, Timeline

OPENED, CHANGED, CLOSED = "opened", "changed", "closed"


def notices_expected(incident: Incident) -> int:
    """The number of notices of all that is expected, without what is only allowed."""
    return sum(sum(_counts(expected).values()) for expected in incident.expected for _ in expected.objects)


def notice_complaints(incident: Incident, timeline: Timeline) -> Iterator[str]:
    """A sentence for each expected finding with another number of notices, and one for all that nobody expects."""
    notices = [notice for notice in timeline.notices if notice.at_s >= timeline.broke_s]
    used: set[SentNotice] = set()
    for expected in incident.expected:
        for pattern in expected.objects:
            own = [notice for notice in notices if _fits(expected, pattern, notice, timeline)]
            used.update(own)
            events = Counter(notice.event for notice in own)
            times = min(max(events[OPENED], 1), expected.opens)
            if events != (right := Counter({event: times * n for event, n in _counts(expected).items()})):
                yield f"notices of {expected.slug} {pattern}: {_text(events)} instead of {_text(right)}"
    extra: dict[Key, Counter[str]] = {}
    for notice in notices:
        if notice not in used:
            extra.setdefault(notice.key, Counter())[notice.event] += 1
    for (slug, object_), events in sorted(extra.items()):
        limits = [allowed.times for allowed in allowances(incident, (slug, object_), timeline.names)]
        if not limits:
            yield f"notices that nobody expects: {slug} {object_}, {_text(events)}"
        elif max(events.values()) > max(limits):
            yield f"notices of {slug} {object_}: {_text(events)}, more than {max(limits)} of a kind"


def heartbeat_complaints(incident: Incident, timeline: Timeline) -> Iterator[str]:
    """A backend that is gone sends no notice: the heartbeat that stops calls somebody."""
    if all(expected.sends for expected in incident.expected):
        return
    began_s, ended_s = timeline.broke_s, timeline.mending_s
    before = [beat_s for beat_s in timeline.beats if beat_s < began_s]
    while_away = [beat_s for beat_s in timeline.beats if began_s < beat_s and (ended_s is None or beat_s < ended_s)]
    if not before:
        yield "no heartbeat came, so none can stop"
    if while_away:
        yield f"the heartbeat went on: {len(while_away)} came"


def _counts(expected: Expected) -> dict[str, int]:
    if expected.under or not expected.sends:
        return {}
    changed = expected.at_worst not in ("", expected.severity)
    return (
        {OPENED: 1} | ({CHANGED: 1} if changed else {}) | ({CLOSED: 1} if expected.cleared_within_s is not None else {})
    )


def _fits(expected: Expected, pattern: str, notice: SentNotice, timeline: Timeline) -> bool:
    return fits(expected.slug, notice.slug, timeline.names) and fits(pattern, notice.object, timeline.names)


def _text(events: Counter[str]) -> str:
    return ", ".join(f"{number} {event}" for event, number in sorted(events.items())) or "none"
