"""The rule about replication throttles that were left behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from backend.control.findings.finding_context import WARNING, Candidate, FindingContext, ThrottleSetting, count
from backend.control.findings.held_replicas import ALL_BROKERS, VALUE_CHARS_MAX, described, holding_throttles
from backend.control.findings.kafka_commands import command
from backend.control.findings.still_offsets import PartitionKey

THROTTLES_NAMED_MAX: Final = 5
THROTTLES_STORED_MAX: Final = 100
BETWEEN_DIRECTORIES: Final = "replica.alter.log.dirs.io.max.bytes.per.second"


def throttles_left(context: FindingContext) -> Iterable[Candidate]:
    """Replication throttles that no move uses: they slow ordinary replication down. One act sets several, so all that
    are left are one finding. Throttles of a move that has just ended are removed by its --verify.
    """
    moving = {row.topic for row in context.partitions if row.adding_replicas or row.removing_replicas}
    left = [
        throttle
        for throttle in context.throttles
        if throttle.topic not in moving
        and (throttle.topic is not None or not moving)
        and throttle.key not in context.move_throttles
    ]
    if not left:
        return
    texts = [described(throttle) for throttle in left]
    more = f", and {len(left) - THROTTLES_NAMED_MAX} more" if len(left) > THROTTLES_NAMED_MAX else ""
    yield Candidate(
        slug="throttle-left",
        object="cluster",
        severity=WARNING,
        sentence=f"{count(len(left), 'throttle')} without a move",
        why=f"{'; '.join(texts[:THROTTLES_NAMED_MAX])}{more}. No replica moves there.",
        action=f"Remove them, since they hold ordinary replication back: {'; '.join(_removals(context, left))}.",
        facts={
            "throttles": [
                {"name": t.name, "value": t.value[:VALUE_CHARS_MAX], "topic": t.topic, "broker_id": t.broker_id}
                for t in left[:THROTTLES_STORED_MAX]
            ]
        },
        for_ms=round(context.thresholds.throttle_left_s * 1000),
        also_about=tuple(_held_partitions(context, left)),
    )


def _removals(context: FindingContext, left: Sequence[ThrottleSetting]) -> Iterable[str]:
    """The plan for limits of replication; those of moves between log directories are no matter of it."""
    between = [throttle for throttle in left if throttle.name == BETWEEN_DIRECTORIES]
    if len(between) < len(left):
        yield "ebbline plan clear-throttle"
    for throttle in between[:THROTTLES_NAMED_MAX]:
        entity = "--entity-default" if throttle.broker_id == ALL_BROKERS else f"--entity-name {throttle.broker_id}"
        change = f"--alter --entity-type brokers {entity} --delete-config {BETWEEN_DIRECTORIES}"
        yield command(context, "kafka-configs.sh", change)


def _held_partitions(context: FindingContext, left: Sequence[ThrottleSetting]) -> Iterable[PartitionKey]:
    """Partitions with a replica outside the ISR that these throttles hold back."""
    by_topic: dict[str | None, list[ThrottleSetting]] = defaultdict(list)
    for throttle in left:
        by_topic[throttle.topic].append(throttle)
    for row in context.partitions:
        outside = set(row.replicas) - set(row.isr) if row.topic in by_topic else ()
        if any(holding_throttles(by_topic[row.topic] + by_topic[None], row, broker_id) for broker_id in outside):
            yield row.topic, row.partition
