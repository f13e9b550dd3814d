"""Rules about copying to, and standing in the remote tier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from backend.control.findings.copy_times import is_expected, slow_together
from backend.control.findings.finding_context import (
    NAMED_MAX,
    NOTICE,
    REMOTE_STORE,
    WARNING,
    Candidate,
    FindingContext,
    count,
    first_names,
    local_retention_bytes,
    name_of,
    setting,
)
from backend.control.findings.holds import default_for_ms
from backend.control.formatting import in_bytes, in_time
from backend.control.observer.cluster_totals import pending_bytes
from backend.store.queries.lineage import FinishedSegment
from backend.store.queries.partitions import SegmentRow
from backend.store.writes.samples import ReplicaSample
from backend.tiering.epoch_lineage import Copy, replaced, segment_lineage
from backend.tiering.segment_state import HUNG_MS_MIN, SegmentState

LEFTOVERS_FOR_MS: Final = default_for_ms("copy-dangling", "of topics that are there")
LOCAL_DEBT_FOR_MS: Final = default_for_ms("local-debt")
LEAK_FOR_MS: Final = default_for_ms("segment-leak")  # `finding_contexts.LINEAGE_INTERVAL_MS`
# Clocks of brokers that keep time differ by less; a leak of this age is seen a moment later.
CLOCKS_DIFFER_MS: Final = 5_000


def open_copies(context: FindingContext) -> Iterable[Candidate]:
    """Copies that take far too long: hung with their leader, or dangling because they will never finish.

    A copy never finishes when its author leads no more, when it failed, and when a later one has begun since.
    """
    if context.ledger_ms is None:
        return
    leaders = {(row.topic, row.partition): (row.leader, row.topic_id) for row in context.partitions}
    leftovers: list[SegmentRow] = []
    # Of a store that is slow as a whole `copy-slow` is the finding.
    together = {segment.segment_id for segment in slow_together(context)}
    for segment in context.open_segments:
        if segment.state is not SegmentState.COPY_SEGMENT_STARTED:
            continue
        key = (segment.topic, segment.partition)
        age_ms, leader = context.ledger_ms - segment.copy_started_ms, leaders.get(key)
        if leader is None or leader[1] != segment.topic_id:
            if age_ms > context.for_ms("copy-dangling", HUNG_MS_MIN, segment.topic):
                yield _of_deleted_topic(context, segment, age_ms, leader)
        elif segment.superseded or leader[0] != segment.copy_broker_id:
            if age_ms > context.for_ms("copy-dangling", HUNG_MS_MIN):
                leftovers.append(segment)
        elif _is_late(context, segment, age_ms) and segment.segment_id not in together:
            yield _hung(segment, age_ms, context.p99_ms.get(key))
    if leftovers:
        yield _leftovers(context, context.ledger_ms, leftovers)


def _is_late(context: FindingContext, segment: SegmentRow, age_ms: int) -> bool:
    for_ms = context.set_for_ms("copy-hung", segment.topic)
    return not is_expected(context, segment) if for_ms is None else age_ms > for_ms


def _leftovers(context: FindingContext, ledger_ms: int, segments: Sequence[SegmentRow]) -> Candidate:
    """Copies that failed, or whose author leads no more: one finding of them all, since nobody has to do a thing.

    Each restart and each move of leaders cuts some off.
    """
    names = sorted({name_of(segment) for segment in segments})
    oldest_ms = ledger_ms - min(segment.copy_started_ms for segment in segments)
    size_bytes = sum(segment.segment_size_bytes for segment in segments)
    return Candidate(
        slug="copy-dangling",
        object=REMOTE_STORE,
        severity=NOTICE,
        sentence=f"{count(len(segments), 'copy', 'copies')} will never finish",
        why=f"Of {first_names(names)}, the oldest begun {in_time(oldest_ms)} ago: their brokers lead no"
        f" more, they failed, or later copies have begun since. They have at most {in_bytes(size_bytes)} in the store.",
        action="Nothing is lost: retention removes them when their offsets expire; without a limit they stay.",
        facts={"count": len(segments), "first": names[:NAMED_MAX], "oldest_ms": oldest_ms, "size_bytes": size_bytes},
        depends_on=frozenset(segment.copy_broker_id for segment in segments),
        for_ms=LEFTOVERS_FOR_MS if context.set_for_ms("copy-dangling") is None else 0,
    )


def _of_deleted_topic(
    context: FindingContext, segment: SegmentRow, age_ms: int, leader: tuple[int, str | None] | None
) -> Candidate:
    """Apache Kafka removes leftovers while it deletes their topic, and never again."""
    now = "its partition is gone" if leader is None else "its topic was deleted and made again"
    if not context.kafka_rules:
        return _dangling(segment, age_ms, now, "Nothing is lost: the brokers remove it with its deleted topic.")
    return _dangling(
        segment,
        age_ms,
        now,
        "Nothing removes what it copied; that costs storage only. Check with an administrator's rights that no topic"
        f" has topic id {segment.topic_id} and that its topic was to be deleted: then its objects may go, by hand.",
    )


def _dangling(segment: SegmentRow, age_ms: int, now: str, action: str) -> Candidate:
    return Candidate(
        slug="copy-dangling",
        object=name_of(segment),
        severity=NOTICE,
        sentence=f"Copy dangling: {name_of(segment)}",
        why=f"Begun {in_time(age_ms)} ago by broker {segment.copy_broker_id}; {now}.",
        action=action,
        facts={"segment_id": segment.segment_id, "age_ms": age_ms, "copy_broker_id": segment.copy_broker_id},
        topic=segment.topic,
        partition=segment.partition,
        broker_id=segment.copy_broker_id,
    )


def _hung(segment: SegmentRow, age_ms: int, p99_ms: int | None) -> Candidate:
    against_p99 = "p99 not known yet" if not p99_ms else f"{round(age_ms / p99_ms)}× its p99"
    return Candidate(
        slug="copy-hung",
        object=name_of(segment),
        severity=WARNING,  # it becomes critical as a full disk or as reads that fail
        sentence=f"Copy hung: {name_of(segment)} on broker {segment.copy_broker_id}",
        why=f"Open for {in_time(age_ms)}, {against_p99}.",
        action=f"Look whether the object store answers broker {segment.copy_broker_id}; else move leadership away.",
        facts={"segment_id": segment.segment_id, "age_ms": age_ms, "p99_ms": p99_ms},
        topic=segment.topic,
        partition=segment.partition,
        broker_id=segment.copy_broker_id,
    )


def local_debt(context: FindingContext) -> Iterable[Candidate]:
    """Copied data that local retention should have removed from the leader's disk."""
    for row in context.tiered:
        topic = context.topic(row.topic)
        pending, limit, segment = pending_bytes(row), local_retention_bytes(topic), setting(topic, "segment.bytes")
        if pending is None or limit is None or segment is None or row.local_log_bytes is None:
            continue
        if (topic and (topic.config or {}).get("remote.log.copy.disable")) == "true":
            continue  # local retention is as long as total retention then
        excess = row.local_log_bytes - max(limit, pending) - segment
        if excess > 0:
            yield Candidate(
                slug="local-debt",
                object=name_of(row),
                severity=WARNING,
                sentence=f"Local data past its retention: {name_of(row)}",
                why=f"{in_bytes(excess)} more than local retention ({in_bytes(limit)}) and one segment allow are"
                " on the leader's disk, and are copied already.",
                action=f"Look in broker {row.leader}'s log whether its log cleaner runs.",
                facts={"excess_bytes": excess, "local_retention_bytes": limit, "pending_bytes": pending},
                topic=row.topic,
                partition=row.partition,
                broker_id=row.leader,
                for_ms=LOCAL_DEBT_FOR_MS,
            )


def leaked_segments(context: FindingContext) -> Iterable[Candidate]:
    """Remote segments that retention never counts: outside the leader's epochs, or forgotten by its index.

    The ledger is read after the leaders were asked: a segment that was copied meanwhile may end above the log end of
    then, and is left out.
    """
    if context.finished is None:
        return
    chains = {(r.topic, r.partition): r for r in context.replicas if r.role == "leader" and _chain_known(r)}
    by_partition: dict[tuple[str, int], list[FinishedSegment]] = defaultdict(list)
    for segment in context.finished:
        leader = chains.get((segment.topic, segment.partition))
        listed_ms = context.listed_ms(segment.topic, segment.partition)
        if leader is not None and _was_there(segment, leader.answered_ms or listed_ms):
            by_partition[segment.topic, segment.partition].append(segment)
    for key, segments in sorted(by_partition.items()):
        outside, why = _outside(segments, chains[key])
        orphaned = _replaced(segments) if context.kafka_rules else []
        lost = {s.segment_id: s for s in (*outside, *orphaned)}
        if not lost:
            continue
        size = sum(s.segment_size_bytes for s in lost.values())
        if orphaned:
            first = orphaned[0]
            why = (
                f"{first.segment_id} [{first.start_offset}, {first.end_offset + 1}) was replaced in the index of its"
                " epoch by a later copy, as after two unclean elections; its offsets may be unreadable in Kafka 4.3."
            )
        yield Candidate(
            slug="segment-leak",
            object=f"{key[0]}-{key[1]}",
            severity=WARNING,
            sentence=f"{count(len(lost), 'remote segment')} that retention does not see: {key[0]}-{key[1]}",
            why=f"{in_bytes(size)}. {why}",
            action="Leave them: they cost storage only, and go when the log start passes their end by itself."
            " Delete nothing for them: consumers can read what lies below their end.",
            facts={
                "outside": len(outside),
                "orphaned": len(orphaned),
                "bytes": size,
                "segment_ids": sorted(lost)[:20],
                "end_offset_max": max(s.end_offset for s in lost.values()),
            },
            topic=key[0],
            partition=key[1],
            for_ms=LEAK_FOR_MS,
        )


def _was_there(segment: FinishedSegment, asked_ms: int) -> bool:
    """Whether its copy had finished before the leader was asked, by the brokers' clocks."""
    return segment.copy_finished_ms is None or segment.copy_finished_ms < asked_ms - CLOCKS_DIFFER_MS


def _chain_known(replica: ReplicaSample) -> bool:
    truncated = isinstance(replica.evidence, dict) and replica.evidence.get("epochs_cut")
    return bool(replica.leader_epochs) and replica.log_end_offset is not None and not truncated


def _outside(segments: Iterable[FinishedSegment], leader: ReplicaSample) -> tuple[list[FinishedSegment], str]:
    chain, log_start = leader.leader_epochs or (), leader.log_start_offset or 0
    outside, why = [], ""
    for segment in segments:
        if segment.end_offset < log_start:
            continue  # the next expiration deletes it
        own = [(int(epoch), int(start)) for epoch, start in segment.leader_epochs]
        verdict = segment_lineage(own, segment.end_offset, chain, leader.log_end_offset or 0)
        if not verdict.within:
            outside.append(segment)
            span = f"[{segment.start_offset}, {segment.end_offset + 1})"
            why = why or f"{segment.segment_id} {span}: {verdict.explanation}."
    return outside, why


def _replaced(segments: Sequence[FinishedSegment]) -> list[FinishedSegment]:
    """Segments that Kafka's index of epochs has forgotten."""
    lost = replaced(
        Copy(
            segment.segment_id,
            tuple((int(epoch), int(start)) for epoch, start in segment.leader_epochs),
            segment.end_offset + 1,
            segment.copy_finished_ms or 0,
        )
        for segment in segments
    )
    return [segment for segment in segments if segment.segment_id in lost]
