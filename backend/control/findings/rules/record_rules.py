"""The rule about records of internal topics that their readers cannot read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from backend.control.findings.finding_context import WARNING, Candidate, FindingContext

_EVENTS: Final = "events"
EVENTS_TOPIC: Final = "__ebbline_events"


def unreadable_records(context: FindingContext) -> Iterable[Candidate]:
    """Somebody wrote what is no record, or says nothing, into an internal topic: its readers passed it over."""
    for reader, number in context.passed_over.items():
        own = reader == _EVENTS
        log = "the backend's log" if own else "the broker's log"
        yield Candidate(
            slug="records-unreadable",
            object=f"topic {EVENTS_TOPIC}" if own else reader,
            severity=WARNING,
            sentence="Events that cannot be read"
            if own
            else f"Records of internal topics that cannot be read: {reader}",
            why=f"{number} passed over since the start; {log} names the place.",
            action="Find out which client writes into internal topics, and let only brokers do so.",
            facts={"passed_over": number},
            broker_id=None if own else int(reader.rpartition(" ")[2]),
        )
