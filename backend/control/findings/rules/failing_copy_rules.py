"""The rule about copies to the remote tier that fail: one finding for the store, or for each broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from backend.control.findings.copy_failures import (
    REPEATED_FOR_MS,
    TOGETHER_FOR_MS,
    CopyFailures,
    FailingBroker,
    failing_brokers,
)
from backend.control.findings.finding_context import (
    CRITICAL,
    REMOTE_STORE,
    WARNING,
    Candidate,
    FindingContext,
    count,
    ids,
)
from backend.control.formatting import in_time
from backend.tiering.segment_state import HUNG_MS_MIN, SegmentState

# Names of a topic, a segment and an operation take 350 at most, the store's reason 400; what is left is the object.
ERROR_CHARS_MAX: Final = 1_000
# Of hundreds of partitions the first say where to look.
NAMED_MAX: Final = 10


def failing_copies(context: FindingContext) -> Iterable[Candidate]:
    """Copies of a broker, or of all, fail and none has finished since; a warning where some still get through, and of a
    single failure.
    """
    brokers = failing_brokers(context)
    stopped = [broker for broker in brokers if broker.blocked_since_ms is not None]
    together_ms = context.for_ms("copy-failing", TOGETHER_FOR_MS)
    if len(stopped) >= 2 and any(broker.is_blocked(together_ms) for broker in stopped):
        yield _candidate(stopped, REMOTE_STORE, CRITICAL)
        brokers = [broker for broker in brokers if broker.blocked_since_ms is None]
    for broker in brokers:
        blocked = broker.is_blocked(context.for_ms("copy-failing", REPEATED_FOR_MS))
        if blocked and _is_its_own(context, broker):
            yield _candidate([broker], f"broker {broker.broker_id}", CRITICAL)
        elif broker.fails_in_part and not blocked:
            yield _candidate([broker], f"broker {broker.broker_id}", WARNING)


def _is_its_own(context: FindingContext, broker: FailingBroker) -> bool:
    """Whether the cause is the broker and not the store, where other brokers fail at their next try: others have
    finished copies long after its first failure, or had the time for it. A copy that ends just after it may have been
    written before the store broke; one that is open for long may be about to fail, as clients of a store try again by
    themselves.
    """
    since_ms = broker.blocked_since_ms or 0
    finished = [(copy.broker_id, copy.at_ms) for copy in context.finished_copies]
    finished += [(event.broker_id, event.at_ms) for event in context.copy_events if event.outcome == "finished"]
    # Copies that finish after its newest failure say that the store works again, and nothing of its next try.
    newest_ms = max((f.times_ms[0] for f in broker.failures), default=since_ms)
    by_others = (at_ms for broker_id, at_ms in finished if broker_id != broker.broker_id)
    others = any(since_ms + TOGETHER_FOR_MS < at_ms < newest_ms for at_ms in by_others)
    open_since_ms = [
        segment.copy_started_ms
        for segment in context.open_segments
        if segment.state is SegmentState.COPY_SEGMENT_STARTED
        and segment.copy_broker_id != broker.broker_id
        and broker.known_ms - segment.copy_started_ms >= TOGETHER_FOR_MS
    ]
    waits = any(broker.known_ms - started_ms < HUNG_MS_MIN for started_ms in open_since_ms)
    return others or (broker.known_ms - since_ms >= broker.retried_ms and not waits)


def _candidate(brokers: Sequence[FailingBroker], object_: str, severity: str) -> Candidate:
    failures = [failures for broker in brokers for failures in broker.failures]
    number = sum(len(f.times_ms) for f in failures)
    first_ms, last_ms = min(f.times_ms[-1] for f in failures), max(f.times_ms[0] for f in failures)
    known_ms = max(broker.known_ms for broker in brokers)
    error = _newest_error(failures)
    where = f"broker {ids(broker.broker_id for broker in brokers)}"
    single = failures[0].name if len(failures) == 1 else None
    topics = {f.topic for f in failures}
    copies = count(number, "copy", "copies")
    what = single or count(len(failures), "partition")
    why = f"{copies} of {what} failed on {where} in the last {in_time(known_ms - first_ms)}"
    others = severity != CRITICAL and brokers[0].others_finish
    why += "; others of this broker finish." if others else ", and none has finished since."
    why += f" Last error: {_shortened(error)}" if error else " The reason stands in the broker's log only."
    return Candidate(
        slug="copy-failing",
        object=object_,
        severity=severity,
        sentence="Copies to the remote storage fail"
        if object_ == REMOTE_STORE
        else f"Copies fail on {where}" + (f": {single}" if single else ""),
        why=why,
        action=f"Check the object store's credentials, room and reach from {where}. Local data grows until copies work"
        " again; nothing is lost while the local disks last.",
        facts={
            "failures": number,
            "partitions": len(failures),
            "first": [f.name for f in failures[:NAMED_MAX]],
            "brokers": [broker.broker_id for broker in brokers],
            "first_ms": first_ms,
            "last_ms": last_ms,
            "error": error,
        },
        topic=topics.pop() if len(topics) == 1 else None,
        partition=failures[0].partition if single else None,
        broker_id=None if object_ == REMOTE_STORE else brokers[0].broker_id,
    )


def _newest_error(failures: Iterable[CopyFailures]) -> str | None:
    newest = max((f for f in failures if f.error), key=lambda f: f.times_ms[0], default=None)
    return None if newest is None else newest.error


def _shortened(error: str) -> str:
    """An error, long enough that its reason is never cut off."""
    return error if len(error) <= ERROR_CHARS_MAX else f"{error[:ERROR_CHARS_MAX]}…"
