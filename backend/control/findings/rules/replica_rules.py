"""Rules about replicas: those that do not join, moves that do not end, leaders with little data, logs that differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from backend.control.findings.finding_context import (
    CRITICAL,
    THROTTLED,
    WARNING,
    Candidate,
    FindingContext,
    ids,
    name_of,
)
from backend.control.findings.held_replicas import described, holding_throttles
from backend.control.findings.holds import default_for_ms
from backend.control.findings.kafka_commands import cancel_moves
from backend.control.formatting import in_time
from backend.store.writes.samples import PartitionSample, ReplicaSample
from backend.tiering.follower_phase import KEEPS_ACKNOWLEDGED, FollowerPhase
from backend.tiering.phase_inference import bootstrap_trap

FLAG: Final = "follower.fetch.last.tiered.offset.enable"
# A throttle lets the replicas of a move through one after the other.
TURN_MS: Final = 10_000
THIN_FOR_MS: Final = default_for_ms("thin-leader")
# Of the embedded engine: a log that it could not write.
OFFLINE_LOG: Final = " is offline: "
LOST_LOG: Final = "log-offline"


def stuck_followers(context: FindingContext) -> Iterable[Candidate]:
    """A replica outside the ISR without progress; names the traps of Kafka 4.3.1 and the way out."""
    partitions = {(row.topic, row.partition): row for row in context.partitions}
    for replica in context.replicas:
        partition = partitions.get((replica.topic, replica.partition))
        if partition is None or replica.phase is None or not _still(context, partition, replica):
            continue
        if partition.leader < 0:
            continue  # it has nobody to follow: `offline`
        if _keeps_acknowledged(replica):
            continue  # below
        # The last record may be old: where the follower reports a failure, since then.
        failed_ms = replica.phase_since_ms if replica.phase == FollowerPhase.FAILED else None
        moved_ms = max(_moved_ms(context, replica), failed_ms or 0)
        since_ms = max(0, context.listed_ms(replica.topic, replica.partition) - moved_ms)
        name = f"{name_of(replica)} on broker {replica.broker_id}"
        rule, why, action = _why_stuck(context, partition, replica)
        if rule == THROTTLED and replica.broker_id in partition.adding_replicas:
            continue  # a move that is limited: `move-stalled`
        yield Candidate(
            slug="follower-stuck",
            object=name,
            severity=WARNING,  # producers that are refused are `below-min-isr`
            sentence=f"Follower stuck: {name}",
            why=f"{why} For {in_time(since_ms)}.",
            action=action,
            facts={"rule": rule, "phase": replica.phase, "source": replica.phase_source, "since_ms": since_ms},
            topic=replica.topic,
            partition=replica.partition,
            broker_id=replica.broker_id,
            for_ms=0
            if replica.phase == FollowerPhase.FAILED
            else round(context.thresholds_of(replica.topic).stuck_s * 1000),
            depends_on=frozenset({partition.leader}),
        )


def _still(context: FindingContext, partition: PartitionSample, replica: ReplicaSample) -> bool:
    """Outside the ISR, behind, and its log end had not moved when it was listed last.

    Its phase would not do: a fetcher that tries again every second goes through all of them each time.
    """
    if replica.in_isr or partition.log_end_offset is None or partition.leader == replica.broker_id:
        return False
    behind = (replica.log_end_offset or 0) < partition.log_end_offset
    # Not "before": after the wall clock was set back, the last move lies in the future.
    return behind and _moved_ms(context, replica) != context.listed_ms(replica.topic, replica.partition)


def _moved_ms(context: FindingContext, replica: ReplicaSample) -> int:
    listed_ms = context.listed_ms(replica.topic, replica.partition)
    return context.moved_ms.get((replica.topic, replica.partition, replica.broker_id), listed_ms)


def _why_stuck(context: FindingContext, partition: PartitionSample, replica: ReplicaSample) -> tuple[str, str, str]:
    """(rule, evidence, action)."""
    evidence: Mapping[str, Any] = replica.evidence if isinstance(replica.evidence, dict) else {}
    if partition.tiered and not replica.log_end_offset and partition.local_log_start_offset:
        trap = bootstrap_trap(
            context.flags.get(replica.broker_id),
            partition.pending_reason,
            partition.log_start_offset,
            partition.local_log_start_offset,
        )
        if trap is not None:
            rule, why = trap
            return rule, why, f"Turn {FLAG} off on broker {replica.broker_id}; then it joins."
    # Of one that fetches the reason is that of its last truncation.
    reason = None if replica.phase == FollowerPhase.FETCHING else evidence.get("reason")
    reported = evidence.get("error") or reason
    throttles = holding_throttles(context.throttles, partition, replica.broker_id)
    if throttles and not reported and not replica.error:
        why = f"A throttle holds it back: {', '.join(map(described, throttles))}."
        return THROTTLED, why, f"Remove the throttles of {replica.topic}, or raise them: ebbline plan clear-throttle."
    why = str(reported or evidence.get("sentence") or replica.error or "It does not say why.")
    if OFFLINE_LOG in why:
        action = (
            f"Look at the log directory of broker {replica.broker_id}; when it works, restart the broker: it copies the"
            " partition again."
        )
        return LOST_LOG, why, action
    reads = "cannot read the metadata or the remote object" if partition.tiered else "does not get on"
    action = f"Look in broker {replica.broker_id}'s log why its fetcher {reads}."
    return str(evidence.get("rule") or "no-progress"), why, action


def _keeps_acknowledged(replica: ReplicaSample) -> bool:
    evidence = replica.evidence if isinstance(replica.evidence, dict) else {}
    return replica.phase == FollowerPhase.FAILED and evidence.get("rule") == KEEPS_ACKNOWLEDGED


def refused_truncations(context: FindingContext) -> Iterable[Candidate]:
    """A follower that would have to give up acknowledged records to follow its leader, and does not.

    Only the embedded engine reports it: Kafka's followers cut their logs.
    """
    leaders = {(row.topic, row.partition): row.leader for row in context.partitions}
    for replica in context.replicas:
        if replica.in_isr or not _keeps_acknowledged(replica):
            continue
        leader = leaders.get((replica.topic, replica.partition), -1)
        name = f"{name_of(replica)} on broker {replica.broker_id}"
        evidence: Mapping[str, Any] = replica.evidence if isinstance(replica.evidence, dict) else {}
        yield Candidate(
            slug="truncation-refused",
            object=name,
            severity=CRITICAL,
            sentence=f"Leader lacks acknowledged records: {name} keeps them",
            why=f"{str(evidence.get('reason') or 'The follower stopped.').rstrip('.')}.",
            action=f"Remove nothing; stop producers of {replica.topic}. To keep broker {replica.broker_id}'s records"
            f" let it lead: stop broker {leader}, elect uncleanly, start it again; records that broker {leader} took"
            " since are dropped. Of several followers, the follower with the highest log must be the first of the"
            " replica list. The runbook says how to decide.",
            facts={"rule": KEEPS_ACKNOWLEDGED, "leader": leader, "log_end_offset": replica.log_end_offset},
            topic=replica.topic,
            partition=replica.partition,
            broker_id=replica.broker_id,
        )


def stalled_moves(context: FindingContext) -> Iterable[Candidate]:
    """A reassignment whose new replica makes no progress, or which was asked to go back and cannot."""
    moves = [row for row in context.partitions if row.adding_replicas or row.removing_replicas]
    if not moves:
        return
    replicas = {(r.topic, r.partition, r.broker_id): r for r in context.replicas}
    filling = _filling_brokers(context)
    for row in moves:
        going_back = sorted(set(row.adding_replicas) & set(row.removing_replicas))
        stalled = [
            replica
            for broker_id in row.adding_replicas
            if (replica := replicas.get((row.topic, row.partition, broker_id))) is not None
            and (replica.error is not None or _still(context, row, replica))
            and not (broker_id in filling and holding_throttles(context.throttles, row, broker_id))
        ]
        if not stalled and not going_back:
            continue
        limits = context.thresholds_of(row.topic)
        name, brokers = name_of(row), ids(going_back or (replica.broker_id for replica in stalled))
        if going_back:
            why = (
                f"Broker {brokers} is being added and removed at once: asking for the old replicas does not end a move"
                " in Kafka 4.3, not even once the new replica is in sync."
            )
            action = f"Cancel the reassignment of {name}: {cancel_moves(context, [row])}."
        else:
            throttles = [t for r in stalled for t in holding_throttles(context.throttles, row, r.broker_id)]
            why = f"The new replica on broker {brokers} makes no progress and is not in sync."
            action = f"See why its follower is stuck, or cancel the move: {cancel_moves(context, [row])}."
            if throttles:
                why += f" A throttle limits it: {', '.join(map(described, dict.fromkeys(throttles)))}."
                action = "Raise the throttle, or cancel the move with the tool that began it."
        yield Candidate(
            slug="move-stalled",
            object=name,
            severity=WARNING,
            sentence=f"Move stalled: {name} to broker {brokers}",
            why=why,
            action=action,
            facts={
                "rule": "added-and-removed" if going_back else "no-progress",
                "adding": list(row.adding_replicas),
                "removing": list(row.removing_replicas),
            },
            topic=row.topic,
            partition=row.partition,
            for_ms=round((limits.move_undone_s if going_back else limits.move_stalled_s) * 1000),
            depends_on=frozenset({row.leader, *(replica.broker_id for replica in stalled)}),
        )


def _filling_brokers(context: FindingContext) -> set[int]:
    """Brokers of which some new replica has made progress of late."""
    return {
        broker_id
        for row in context.partitions
        for broker_id in row.adding_replicas
        if _rests_ms(context, row, broker_id) < TURN_MS
    }


def _rests_ms(context: FindingContext, row: PartitionSample, broker_id: int) -> int:
    """How long a replica had not moved when it was listed last; long, if it was never seen to."""
    moved_ms = context.moved_ms.get((row.topic, row.partition, broker_id))
    return TURN_MS if moved_ms is None else context.listed_ms(row.topic, row.partition) - moved_ms


def thin_leaders(context: FindingContext) -> Iterable[Candidate]:
    """A leader that holds less than half of what an in-sync follower holds locally: its readers go to the remote tier.

    That is a replica which was bootstrapped from the tiered offset (KIP-1023) and then became leader (KIP-1303).
    """
    depths: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for replica in context.replicas:
        if replica.in_isr and replica.error is None:
            start, end = replica.local_log_start_offset, replica.log_end_offset
            if start is not None and end is not None:
                depths[replica.topic, replica.partition][replica.broker_id] = end - start
    for row in context.tiered:
        depth = depths[row.topic, row.partition]
        own = depth.get(row.leader)
        if own is None:
            continue
        best = max(depth, key=lambda broker_id: (depth[broker_id], -broker_id))
        if own >= depth[best]:
            continue  # the leader holds most, as nearly always: its topic's thresholds are not asked for
        limits = context.thresholds_of(row.topic)
        if depth[best] < limits.thin_records or own >= depth[best] * limits.thin_share:
            continue
        yield Candidate(
            slug="thin-leader",
            object=name_of(row),
            severity=WARNING,
            sentence=f"Thin leader: {name_of(row)} on broker {row.leader}",
            why=f"It holds {own} records locally, broker {best} holds {depth[best]}; readers of what lies between go to"
            " the remote tier.",
            action=f"Move leadership to broker {best}, or wait until local retention has filled.",
            facts={"leader_records": own, "best_broker_id": best, "best_records": depth[best]},
            topic=row.topic,
            partition=row.partition,
            broker_id=row.leader,
            for_ms=THIN_FOR_MS,
        )


def divergence(context: FindingContext) -> Iterable[Candidate]:
    """Logs that contradict each other: an in-sync replica of another epoch, or an upload whose records no replica has
    any more.
    """
    for replica in context.replicas:
        evidence = replica.evidence if isinstance(replica.evidence, dict) else {}
        at = evidence.get("disagrees_with_leader_at")
        if at is None or not replica.in_isr or replica.error is not None:
            continue
        name = f"{name_of(replica)} on broker {replica.broker_id}"
        yield Candidate(
            slug="divergence",
            object=name,
            severity=CRITICAL,
            sentence=f"Replica differs from its leader: {name}",
            why=f"It is in the ISR, and its leader epoch at offset {at} is not the leader's.",
            action="Keep both logs; compare them from that offset on before you decide which one is true.",
            facts={"offset": at},
            topic=replica.topic,
            partition=replica.partition,
            broker_id=replica.broker_id,
            for_ms=round(context.thresholds_of(replica.topic).divergence_s * 1000),
        )
    for row in context.tiered:
        pending, local = row.earliest_pending_upload_offset, row.local_log_start_offset
        if row.pending_reason is not None or pending is None or local is None or not 0 <= pending < local:
            continue
        yield Candidate(
            slug="divergence",
            object=name_of(row),
            severity=CRITICAL,
            sentence=f"Records neither local nor remote: {name_of(row)}",
            why=f"The first offset that waits for its upload is {pending}, the leader's local log starts at {local}.",
            action=f"Look for a replica that still holds [{pending}, {local}) before retention removes it.",
            facts={"pending_offset": pending, "local_log_start_offset": local},
            topic=row.topic,
            partition=row.partition,
            broker_id=row.leader,
            for_ms=round(context.thresholds_of(row.topic).divergence_s * 1000),
        )
