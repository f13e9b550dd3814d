"""Rules about moves of replicas that no plan of ours has begun: kafka-reassign-partitions, Cruise Control, Strimzi."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from backend.control.findings.finding_context import (
    NAMED_MAX,
    NOTICE,
    Candidate,
    FindingContext,
    count,
    first_names,
    name_of,
)
from backend.control.findings.kafka_commands import cancel_moves

# Topics of the lab, which moves its replicas without a plan.
LAB_TOPICS: Final = "ebbline.lab."


def foreign_moves(context: FindingContext) -> Iterable[Candidate]:
    """All moves by other tools are one finding: who plans a move here must know of them."""
    moved = [
        row
        for row in context.partitions
        if (row.adding_replicas or row.removing_replicas)
        and (row.topic, row.partition) not in context.own_moves
        and not row.topic.startswith(LAB_TOPICS)
    ]
    if not moved:
        return
    names = [name_of(row) for row in moved]
    brokers = sorted({broker_id for row in moved for broker_id in row.adding_replicas})
    more = f" (and {count(len(moved) - NAMED_MAX, 'more partition')})" if len(moved) > NAMED_MAX else ""
    to_brokers = f" to broker {', '.join(map(str, brokers))}" if brokers else ""
    yield Candidate(
        slug="move-foreign",
        object="cluster",
        severity=NOTICE,
        sentence=f"Another tool moves replicas of {count(len(moved), 'partition')}",
        why=f"{first_names(names)}{to_brokers}. The move was not planned here.",
        action="Wait until it has ended before you plan moves of the same partitions; to end it now, cancel it with the"
        f" tool that began it. That of Kafka: {cancel_moves(context, moved[:NAMED_MAX])}{more}.",
        facts={"count": len(moved), "partitions": names[:NAMED_MAX], "to_brokers": brokers},
    )
