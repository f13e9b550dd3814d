"""Rules about data of the product itself: its database, and unreadable records of internal topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from backend.control.findings.finding_context import CRITICAL, READING_ENDS, WARNING, Candidate, FindingContext, count
from backend.control.findings.rules.metadata_rules import METADATA_TOPIC

# So long it is said that the database was put back; what it lacks is asked for on the next working day.
SAID_MS: Final = 86_400_000


def lost_databases(context: FindingContext) -> Iterable[Candidate]:
    """The file was lost within the last day, and this is what stands in its place."""
    recent = [restored for restored in context.restored if context.at_ms - restored.at_ms < SAID_MS]
    if not recent:
        return
    worst = max(recent, key=lambda restored: (bool(restored.missing), restored.at_ms))
    yield Candidate(
        slug="database-lost",
        object="database",
        severity=CRITICAL if worst.missing else WARNING,
        sentence="The database was lost and put back" + (", not all of it" if worst.missing else ""),
        why=f"{worst.sentence}." + (f" Missing: {worst.missing}." if worst.missing else " Nothing is missing."),
        action="Find out who removed or damaged the file; make tokens that are missing again, and look at the plans.",
        facts={"restored_ms": worst.at_ms, "missing": worst.missing},
    )


def unreadable_records(context: FindingContext) -> Iterable[Candidate]:
    """An internal topic holds something that is no record, or a record without meaning: its readers passed it over.

    Brokers of Apache Kafka do not: their ConsumerTask ends at such a record of the remote log's metadata, and again
    after each restart, as it begins with the oldest record (played on 4.3.1).
    """
    readers: dict[str, dict[str, int]] = {}
    for (topic, reader), number in context.passed_over.items():
        readers.setdefault(topic, {})[reader] = number
    for topic, counts in readers.items():
        texts = [f"{number} by {reader}" for reader, number in sorted(counts.items())]
        if topic == METADATA_TOPIC and context.kafka_rules:
            yield _reading_ends(counts)
            continue
        yield Candidate(
            slug="records-unreadable",
            object=f"topic {topic}",
            severity=WARNING,
            sentence=f"Records of {topic} that cannot be read",
            why=f"Passed over: {', '.join(texts)}; their logs name the places.",
            action="Find out which client writes into internal topics, and let only brokers do so.",
            facts={"passed_over": counts},
            topic=topic,
        )


def _reading_ends(counts: Mapping[str, int]) -> Candidate:
    number = max(counts.values())
    return Candidate(
        slug="records-unreadable",
        object=f"topic {METADATA_TOPIC}",
        severity=CRITICAL,
        sentence=f"Brokers stop at a record of {METADATA_TOPIC} that they cannot read",
        why=f"{count(number, 'record')} there cannot be read. A broker of Apache Kafka ends its reading of the topic at"
        " such a record: nothing is copied any more and local logs grow, and a broker that starts or becomes a leader"
        " knows of no remote segment behind it.",
        action="Restart no broker and move no leader: it would read the record again. Let only brokers write into the"
        " topic: take the right away from every other client. Give local disks room, and keep all of the topic's"
        " records: they are the only map of the remote storage. Only a build of Kafka that passes the record over"
        " reads on.",
        facts={"passed_over": dict(counts), "rule": READING_ENDS},
        topic=METADATA_TOPIC,
    )
