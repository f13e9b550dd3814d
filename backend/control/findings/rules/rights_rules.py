"""Rules about what our principal may see: rights that are missing, and topics that are gone all at once."""

from __future__ import annotations

from collections.abc import Iterable

from backend.control.findings.finding_context import CRITICAL, WARNING, Candidate, FindingContext, count
from backend.control.findings.kafka_commands import command
from backend.control.formatting import in_time
from backend.control.gateway.requests.rights_requests import TOPICS, MissingRight


def missing_rights(context: FindingContext) -> Iterable[Candidate]:
    """Rights that docs/attach.md lists and our principal lacks: what they are for is not seen."""
    missing = context.missing_rights
    if not missing:
        return
    lines = [str(right) for right in missing]
    yield Candidate(
        slug="rights-missing",
        object="cluster",
        severity=CRITICAL if any(right.hides_tiers for right in missing) else WARNING,
        sentence=f"Rights are missing: {', '.join(lines)}",
        why="What they are for is not seen now, so nothing can be said of it; findings of before stay as they were.",
        action=f"Grant them to our principal, as an administrator: {'; '.join(_grant(context, r) for r in missing)}."
        " PRINCIPAL is its name; docs/attach.md says what each is for.",
        facts={"missing": lines},
    )


def _grant(context: FindingContext, right: MissingRight) -> str:
    kind, _, name = right.resource.partition(" ")
    resource = f"--{kind.lower()}" + (f" '{name.strip('`')}'" if name else "")
    return command(
        context,
        "kafka-acls.sh",
        f"--add --allow-principal User:PRINCIPAL --operation {right.operation} {resource}",
    )


def vanished_topics(context: FindingContext) -> Iterable[Candidate]:
    """Many topics are gone within a minute, though our principal may see all that there are."""
    gone = context.vanished_topics
    if gone is None or any(right.resource == TOPICS for right in context.missing_rights):
        return
    together = in_time(round(context.thresholds.gone_together_s * 1000))
    more = ", …" if gone.topics > len(gone.first) else ""
    yield Candidate(
        slug="topics-gone",
        object="cluster",
        severity=WARNING,
        sentence=f"{count(gone.topics, 'topic')} with {count(gone.partitions, 'partition')} are gone",
        why=f"Within {together}, {in_time(max(0, context.at_ms - gone.since_ms))} ago: {', '.join(gone.first)}{more}.",
        action="Ask who has deleted them, and take the rights to delete from whom that was an accident;"
        " if nobody has, see whether our address leads to the same cluster as before.",
        facts={"since_ms": gone.since_ms, "topics": gone.topics, "partitions": gone.partitions, "first": gone.first},
    )
