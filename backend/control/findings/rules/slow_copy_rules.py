"""The rule about copies that fall behind: sealed segments wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from backend.control.findings.copy_times import (
    COPY_LIMIT,
    STORE_PARTITIONS_MIN,
    copy_limit_sentence,
    is_expected,
    slow_together,
    task_interval_ms,
)
from backend.control.findings.finding_context import (
    NAMED_MAX,
    REMOTE_STORE,
    WARNING,
    Candidate,
    FindingContext,
    count,
    first_names,
    ids,
    local_retention_bytes,
    name_of,
    setting,
)
from backend.control.findings.holds import AFTER_OUTAGE, default_for_ms
from backend.control.findings.sealed_data import is_paused, sealed_by_size, sealed_by_time
from backend.control.findings.still_offsets import PartitionKey, StillOffset
from backend.control.formatting import grouped, in_bytes, in_time
from backend.control.observer.cluster_totals import pending_bytes
from backend.store.queries.partitions import SegmentRow
from backend.store.writes.samples import PartitionSample
from backend.tiering.segment_state import SegmentState

SLOW_FOR_MS: Final = default_for_ms("copy-slow", "more waits than local retention allows")
BACKLOG_FOR_MS: Final = default_for_ms("copy-slow", AFTER_OUTAGE)
HELD_MS: Final = 3_000
STORE_ACTION: Final = (
    "See how long the store takes for a write, and what the way to it carries; where it is well, compare the produce"
    " rate with the brokers' copier threads."
)
# More copier threads would share the same limit.
LIMIT_ACTION: Final = (
    f"Raise {COPY_LIMIT} where less is copied than produced (the page Config shows and sets it). Where copies do not"
    " come near it, see how long the store takes for a write, and what the way to it carries."
)
# Task intervals of the leader without a copy, and where local retention is passed meanwhile.
STILL_INTERVALS: Final = 4
# Sealed data that waits needs so long at the limit: a limit for peaks lets a segment or two pass in less.
LIMIT_HOLDS_S: Final = 20.0
FULL_STILL_INTERVALS: Final = 2


def slow_copies(context: FindingContext) -> Iterable[Candidate]:
    """More sealed data waits for its upload than local retention allows, or none of it has been copied for long.

    Where it is so of several brokers, what they share is slow: the store, or the way to it. A limit of copies that
    holds back one partition holds back the others soon: it is one finding from the first one on.
    """
    slow = list(_slow_partitions(context))
    together = slow_together(context)
    if together:
        yield from (candidate for candidate in slow if candidate.facts["copy_disabled"])
        yield _slow_store(context, together)
        return
    running = [candidate for candidate in slow if not candidate.facts["copy_disabled"]]
    brokers = {candidate.broker_id for candidate in running}
    if len(brokers) < 2 or len(running) < STORE_PARTITIONS_MIN:
        held_back = _brokers_at_their_limit(context, running)
        running = [candidate for candidate in running if candidate.broker_id in held_back]
    shared = {candidate.key for candidate in running}
    yield from (candidate for candidate in slow if candidate.key not in shared)
    if running:
        yield _slow_cluster(context, running)


def _brokers_at_their_limit(context: FindingContext, waiting: Sequence[Candidate]) -> set[int]:
    sealed: dict[int, int] = defaultdict(int)
    for candidate in waiting:
        if candidate.broker_id is not None and candidate.broker_id in context.copy_limits:
            sealed[candidate.broker_id] += candidate.facts["sealed_bytes"]
    return {id_ for id_, sealed_bytes in sealed.items() if sealed_bytes >= LIMIT_HOLDS_S * context.copy_limits[id_]}


def _slow_cluster(context: FindingContext, waiting: Sequence[Candidate]) -> Candidate:
    """The partitions that wait, as one finding of what they share."""
    brokers = sorted({candidate.broker_id for candidate in waiting if candidate.broker_id is not None})
    names = [candidate.object for candidate in waiting]
    sealed = sum(candidate.facts["sealed_bytes"] for candidate in waiting)
    limits = copy_limit_sentence(context, brokers)
    return Candidate(
        slug="copy-slow",
        object=REMOTE_STORE,
        severity=WARNING,
        sentence="Copying to the remote storage is behind",
        why=f"At least {in_bytes(sealed)} in sealed segments wait, of {count(len(names), 'partition')} of broker"
        f" {ids(brokers)}: {first_names(names)}.{limits}",
        action=LIMIT_ACTION if limits else STORE_ACTION,
        facts={"sealed_bytes": sealed, "count": len(names), "first": names[:NAMED_MAX], "brokers": brokers},
        for_ms=BACKLOG_FOR_MS if context.just_back else SLOW_FOR_MS,
    )


def _slow_store(context: FindingContext, segments: Sequence[SegmentRow]) -> Candidate:
    """Copies of several brokers that take far longer than usual, before anything has piled up."""
    names = sorted({name_of(segment) for segment in segments})
    brokers = sorted({segment.copy_broker_id for segment in segments})
    oldest_ms = (context.ledger_ms or context.at_ms) - min(segment.copy_started_ms for segment in segments)
    limits = copy_limit_sentence(context, brokers)
    return Candidate(
        slug="copy-slow",
        object=REMOTE_STORE,
        severity=WARNING,
        sentence="Copying to the remote storage is slow",
        why=f"Copies of {count(len(names), 'partition')} of broker {ids(brokers)} are open for up to"
        f" {in_time(oldest_ms)}, far longer than usual: {first_names(names)}.{limits}",
        action=LIMIT_ACTION if limits else STORE_ACTION,
        facts={"open_ms": oldest_ms, "count": len(names), "first": names[:NAMED_MAX], "brokers": brokers},
        for_ms=SLOW_FOR_MS,
    )


def _slow_partitions(context: FindingContext) -> Iterable[Candidate]:
    by_size, by_time, copying = sealed_by_size(context), sealed_by_time(context), _usual_copies(context)
    for row in context.tiered:
        key, topic = (row.topic, row.partition), context.topic(row.topic)
        sealed, pending = max(by_size.get(key, 0), by_time.get(key, 0)), pending_bytes(row)
        segment = setting(topic, "segment.bytes")
        if not sealed or pending is None:
            continue
        paused = is_paused(topic)
        limit, still = local_retention_bytes(topic), context.still.get(key)
        listed_ms = context.listed_ms(*key)
        if still is not None and still.stable is not None and listed_ms - still.stable.since_ms >= HELD_MS:
            continue  # nothing above an open transaction may be copied: `transaction-open`
        waits = None if still is None else still.pending
        # One segment that was sealed a moment ago waits as a matter of course.
        is_full = limit is not None and sealed >= limit
        full = "" if limit is None else f"local retention is {in_bytes(limit)}, so nothing local can go"
        still_ms = -1 if waits is None else listed_ms - waits.since_ms
        if context.back_ms is not None:
            still_ms = min(still_ms, context.back_ms)  # nothing could be copied before
        if is_full and segment is not None and sealed >= segment:
            yield _slow(context, row, sealed, pending, full, limit=limit, paused=paused)
        elif still_ms >= (still_for_ms := _still_for_ms(context, row, is_full=is_full)) and waits is not None:
            if paused or key in copying:
                continue
            # A segment that is sealed by time alone may have been a moment ago.
            for_ms = 0 if key in by_size else still_for_ms
            reason = f"none of it has been copied for {in_time(still_ms)}, from offset {grouped(waits.offset)} on"
            reason = f"{full}; {reason}" if is_full else reason
            yield _slow(context, row, sealed, pending, reason, limit=limit, still=waits, for_ms=for_ms)


def _still_for_ms(context: FindingContext, row: PartitionSample, *, is_full: bool) -> int:
    """A broker that looks less often than Kafka's default does is given more time."""
    interval_ms, limits = task_interval_ms(context, row.leader), context.thresholds_of(row.topic)
    if is_full:
        return max(round(limits.copy_full_still_s * 1000), FULL_STILL_INTERVALS * interval_ms)
    return max(round(limits.copy_still_s * 1000), STILL_INTERVALS * interval_ms)


def _slow(
    context: FindingContext,
    row: PartitionSample,
    sealed: int,
    pending: int,
    reason: str,
    *,
    limit: int | None,
    paused: bool = False,
    still: StillOffset | None = None,
    for_ms: int = 0,
) -> Candidate:
    limits = copy_limit_sentence(context, [row.leader])
    action = f"Compare with the produce rate; raise the copier threads of broker {row.leader}."
    if still is not None:
        action = f"Look in broker {row.leader}'s log why it copies nothing of {name_of(row)}."
    if limits:
        action = LIMIT_ACTION if still is None else f"{LIMIT_ACTION} {action}"
    return Candidate(
        slug="copy-slow",
        object=name_of(row),
        severity=WARNING,
        sentence=f"Copying is behind: {name_of(row)}",
        why=f"At least {in_bytes(sealed)} in sealed segments wait, of {in_bytes(pending)} not uploaded; {reason}."
        + (" Copying is paused on this topic (remote.log.copy.disable)." if paused else limits),
        action="Resume copying on the topic." if paused else action,
        facts={
            "sealed_bytes": sealed,
            "pending_bytes": pending,
            "local_retention_bytes": limit,
            "copy_disabled": paused,
            "pending_from": None if still is None else still.offset,
            "still_since_ms": None if still is None else still.since_ms,
        },
        topic=row.topic,
        partition=row.partition,
        broker_id=row.leader,
        for_ms=max(for_ms if still is not None else SLOW_FOR_MS, BACKLOG_FOR_MS if context.just_back else 0),
    )


def _usual_copies(context: FindingContext) -> set[PartitionKey]:
    """Partitions of which a copy is open that may well finish: a large segment under a quota takes its time."""
    return {
        (segment.topic, segment.partition)
        for segment in context.open_segments
        if segment.state is SegmentState.COPY_SEGMENT_STARTED
        and not segment.superseded
        and is_expected(context, segment)
    }
