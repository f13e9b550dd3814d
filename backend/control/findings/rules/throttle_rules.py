"""The rule about replication throttles that were left behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from backend.control.findings.finding_context import WARNING, Candidate, FindingContext, ThrottleSetting, count

# Of a list of replicas a value has 8 bytes each.
VALUE_CHARS_MAX: Final = 200
THROTTLES_NAMED_MAX: Final = 5
THROTTLES_STORED_MAX: Final = 100


def throttles_left(context: FindingContext) -> Iterable[Candidate]:
    """Replication throttles that no move uses: they slow ordinary replication down. One act sets several, so all that
    are left are one finding.
    """
    moving = {row.topic for row in context.partitions if row.adding_replicas or row.removing_replicas}
    left = [
        throttle
        for throttle in context.throttles
        if throttle.topic not in moving and (throttle.topic is not None or not moving)
    ]
    if not left:
        return
    texts = [f"{throttle.name} of {_place(throttle)} is {throttle.value[:VALUE_CHARS_MAX]}" for throttle in left]
    more = f", and {len(left) - THROTTLES_NAMED_MAX} more" if len(left) > THROTTLES_NAMED_MAX else ""
    yield Candidate(
        slug="throttle-left",
        object="cluster",
        severity=WARNING,
        sentence=f"{count(len(left), 'throttle')} without a move",
        why=f"{'; '.join(texts[:THROTTLES_NAMED_MAX])}{more}. No replica moves there.",
        action="Remove them, since they hold ordinary replication back: ebbline plan clear-throttle.",
        facts={
            "throttles": [
                {"name": t.name, "value": t.value[:VALUE_CHARS_MAX], "topic": t.topic, "broker_id": t.broker_id}
                for t in left[:THROTTLES_STORED_MAX]
            ]
        },
        for_ms=round(context.thresholds.throttle_left_s * 1000),
    )


def _place(throttle: ThrottleSetting) -> str:
    if throttle.topic is not None:
        return throttle.topic
    return f"broker {throttle.broker_id}" if throttle.broker_id != -1 else "all brokers"
