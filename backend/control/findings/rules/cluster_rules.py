"""Rules about brokers, disks, the metadata topic and throttles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from backend.control.findings.finding_context import (
    CRITICAL,
    NOTICE,
    WARNING,
    Candidate,
    FindingContext,
    count,
    ids,
    name_of,
    setting,
)
from backend.control.formatting import in_bytes, in_time
from backend.store.queries.findings import RECOVERIES_MAX
from backend.store.queries.overview import BrokerRow
from backend.store.samples import PartitionSample
from backend.tiering.durability import ELIGIBLE_LEADER_REPLICAS
from backend.tiering.ids import TopicPartition
from backend.tiering.pending import PendingReason

METADATA_TOPIC: Final = "__remote_log_metadata"
METADATA_REPLICATION: Final = 3
DISK_WARNING: Final = 0.85
DISK_CRITICAL: Final = 0.95
RUNWAY_MS: Final = 12 * 3_600_000
RUNWAY_CRITICAL_MS: Final = 2 * 3_600_000
# A leader looks at the remote tier within a task interval (30 s); ten of them are not a start any more.
# A first start makes the topic within seconds, but has copied nothing then.
METADATA_GONE_MS: Final = 5_000
METADATA_FAILED_MS: Final = 300_000
# Tools set the throttle, then begin the move; and a change is seen with the next look at all settings.
THROTTLE_HOLD_MS: Final = 15_000
# A voter with a new disk fetches a snapshot of 100,000 partitions and counts again within seconds.
CATCHING_UP_HOLD_MS: Final = 10_000


def brokers_away(context: FindingContext) -> Iterable[Candidate]:
    """A broker does not answer, or the controller keeps it from leading."""
    led = Counter(partition.leader for partition in context.partitions)
    for broker in context.brokers:
        name = f"broker {broker.broker_id}"
        if not broker.reachable:
            lead = f" Leads {count(led[broker.broker_id], 'partition')}." if led[broker.broker_id] else ""
            yield Candidate(
                slug="broker-away",
                object=name,
                severity=CRITICAL,
                sentence=f"Broker {broker.broker_id} does not answer",
                why=f"Silent for {in_time(context.at_ms - broker.seen_ms)}. {broker.error or ''}".strip() + lead,
                action="Look whether its process runs and its listener can be reached, then start it again.",
                facts={"seen_ms": broker.seen_ms, "leads": led[broker.broker_id]},
                broker_id=broker.broker_id,
            )
        elif broker.fenced:
            yield Candidate(
                slug="broker-fenced",
                object=name,
                severity=WARNING,
                sentence=f"Broker {broker.broker_id} is fenced",
                why="The controller keeps it from leading until it has caught up and its heartbeats arrive.",
                action="Wait while it starts; if it stays fenced, look at its connection to the controller.",
                broker_id=broker.broker_id,
            )


def offline(context: FindingContext) -> Iterable[Candidate]:
    """A partition without a leader."""
    for row in context.partitions:
        if row.leader >= 0:
            continue
        named, last = _who_may_lead(context, row)
        partition = TopicPartition(row.topic, row.partition)
        unusable = {
            replica: context.offline_logs[partition, replica]
            for replica in row.replicas
            if (partition, replica) in context.offline_logs
        }
        damage = "".join(f" Broker {replica} runs and cannot use its log: {why}." for replica, why in unusable.items())
        yield Candidate(
            slug="offline",
            object=name_of(row),
            severity=CRITICAL,
            sentence=f"No leader: {name_of(row)}",
            why=f"Nobody can read or write it. {last}{damage}",
            action=f"{_return_of(context, named, unusable)}; an unclean election may lose records.",
            facts={"isr": list(row.isr), "replicas": list(row.replicas), "waits_for": sorted(named)}
            | ({"unusable": {str(replica): why for replica, why in unusable.items()}} if unusable else {}),
            topic=row.topic,
            partition=row.partition,
        )


def _who_may_lead(context: FindingContext, row: PartitionSample) -> tuple[Collection[int], str]:
    """The brokers whose return gives the partition a leader, and in words what is known of them."""
    if row.isr:
        return row.isr, f"Last in sync: broker {ids(row.isr)}."
    eligible = context.eligible.get(TopicPartition(row.topic, row.partition))
    if eligible is None:
        who = "an eligible replica leads once it is back, or the best log of those that were eligible"
        return row.replicas, f"Nobody is in sync; {who}."
    if eligible.elr:
        return eligible.elr, f"Eligible with every acknowledged record: broker {ids(eligible.elr)}."
    if len(eligible.last_known) > 1:
        return eligible.last_known, (
            f"All that were in sync stopped uncleanly (broker {ids(eligible.last_known)}); their logs are compared"
            " before the best of them leads."
        )
    if eligible.last_known:
        return (
            eligible.last_known,
            f"Broker {ids(eligible.last_known)} was in sync last: nobody leads before it is back.",
        )
    return row.replicas, "No replica is known to have every acknowledged record."


def _return_of(context: FindingContext, named: Collection[int], unusable: Collection[int]) -> str:
    """The way to bring these brokers back; those that run cannot use their log (`unusable`), have another disk than the
    one asked for, or are about to lead."""
    running = {broker.broker_id for broker in context.brokers if broker.reachable and not broker.fenced}
    away = [partition for partition in named if partition not in running]
    if away:
        return f"Start broker {ids(away)}"
    damaged = [partition for partition in named if partition in unusable]
    if damaged:
        return (
            f"Delete nothing. Mend the disk of broker {ids(damaged)}, or put the file back from a copy of it, and start"
            " the broker again"
        )
    return f"Look in the log of broker {ids(named)} whether the disk that held the partition is there"


def without_elr(context: FindingContext) -> Iterable[Candidate]:
    """The cluster could keep eligible leader replicas (KIP-966) and does not: one lost disk may lose everything."""
    feature = context.feature_levels.get(ELIGIBLE_LEADER_REPLICAS)
    if feature is None or feature.level >= 1 or feature.max_level < 1 or len(context.brokers) < 2:
        return
    yield Candidate(
        slug="elr-off",
        object="cluster",
        severity=WARNING,
        sentence="Eligible leader replicas are off: a disk that is lost while brokers are down stops partitions",
        why=f"{ELIGIBLE_LEADER_REPLICAS} is at level {feature.level}: the last broker in sync alone may lead. If its"
        " disk is lost while the others are down, nobody leads, whole as the other copies are.",
        action="Raise it once all brokers run this version: ebbline quorum upgrade.",
        facts={"level": feature.level, "max_level": feature.max_level},
    )


def voters_catching_up(context: FindingContext) -> Iterable[Candidate]:
    """A voter of the metadata quorum that lost its copy and does not count yet: the others are all there is."""
    voters = [replica for replica in context.quorum_replicas if replica.role == "voter"]
    counted = sum(replica.counted for replica in voters)
    majority = len(voters) // 2 + 1
    for voter in voters:
        if voter.counted:
            continue
        name = f"broker {voter.node_id}"
        last = "" if counted > majority else " If one more is lost, there is no majority, and no metadata can change."
        yield Candidate(
            slug="voter-catching-up",
            object=name,
            severity=WARNING if counted > majority else CRITICAL,
            sentence=f"Voter {voter.node_id} of the metadata quorum does not count yet",
            why=f"It has lost its copy of the metadata, or got an older one. {counted} of {len(voters)} voters count,"
            f" {majority} must agree.{last}",
            action=f"Keep the other voters running and touch none of their folders until ebbline quorum describe shows"
            f" voter {voter.node_id} as caught up; if it does not move, look at its log.",
            facts={"voters": len(voters), "counted": counted, "log_end_offset": voter.log_end_offset},
            broker_id=voter.node_id,
            for_ms=CATCHING_UP_HOLD_MS,
        )


def disks(context: FindingContext) -> Iterable[Candidate]:
    """A log directory that is offline, nearly full, or full within hours at the present rate."""
    for broker in context.brokers:
        for directory in broker.log_dirs or []:
            if directory.get("error"):
                yield Candidate(
                    slug="disk-offline",
                    object=f"broker {broker.broker_id}",
                    severity=CRITICAL,
                    sentence=f"Log directory offline: {directory.get('path', '?')} on broker {broker.broker_id}",
                    why=f"The broker says {directory['error']}.",
                    action="Repair the disk, then start the broker again.",
                    facts={"path": directory.get("path")},
                    broker_id=broker.broker_id,
                )
            else:
                yield from _full(context, broker, directory)


def set_aside(context: FindingContext) -> Iterable[Candidate]:
    """Replica folders that a broker keeps although nobody uses them: they may be the only copy, and take room."""
    for broker in context.brokers:
        kept = [
            (directory.get("path"), one)
            for directory in broker.log_dirs or []
            for one in directory.get("set_aside") or []
        ]
        if not kept:
            continue
        # The oldest of each directory are stored, and how many and how large all of them are.
        folders = sum(directory.get("set_aside_count") or 0 for directory in broker.log_dirs or [])
        total_bytes = sum(directory.get("set_aside_bytes") or 0 for directory in broker.log_dirs or [])
        oldest = min((one for _, one in kept), key=lambda one: int(one["since_ms"]))
        age_ms = max(0, context.at_ms - int(oldest["since_ms"]))
        yield Candidate(
            slug="set-aside",
            object=f"broker {broker.broker_id}",
            severity=NOTICE,
            sentence=f"{count(folders, 'replica folder')} set aside on broker {broker.broker_id}",
            why=f"{in_bytes(total_bytes)}, for {in_time(age_ms)}; the oldest is {oldest['name']}: {oldest['reason']}.",
            action="See that nothing in them is missed (Config, Brokers, or ebbline set-aside); then remove them by a"
            f" plan that sets ebbline.remove.set.aside of broker {broker.broker_id} to their names.",
            facts={"folders": [{"path": path, **one} for path, one in kept], "size_bytes": total_bytes},
            broker_id=broker.broker_id,
        )


# Partitions that a sentence names.
_NAMED_MAX: Final = 3


def unclean_recoveries(context: FindingContext) -> Iterable[Candidate]:
    """Leaders elected by comparing logs: every replica in sync had stopped uncleanly. One crash is one finding."""
    if not context.recoveries:
        return
    incomplete = [one for one in context.recoveries if not one.complete]
    shown = incomplete or context.recoveries
    named = ", ".join(f"{one.topic}-{one.partition}" for one in shown[:_NAMED_MAX])
    more = "" if len(shown) <= _NAMED_MAX else f" and {len(shown) - _NAMED_MAX} more"
    if incomplete:
        why = f"Of {named}{more} fewer than min.insync.replicas of the logs that had every acknowledged record could be"
        why += " compared: after a kill none is missing, after a power failure some may be."
        action = "Compare with what producers know; keep the disks that did not come back."
    else:
        why = f"Their logs were compared and the best leads ({named}{more}): nothing acknowledged is missing, but what"
        why += " no disk had yet would be after a power failure."
        action = "Find out why all brokers ended at once; nothing has to be done here."
    at_least = " or more" if len(context.recoveries) == RECOVERIES_MAX else ""
    yield Candidate(
        slug="unclean-recovery",
        object="cluster",
        severity=WARNING if incomplete else NOTICE,
        sentence=f"{count(len(context.recoveries), 'leader')}{at_least} elected by comparing logs",
        why=why,
        action=action,
        facts={"partitions": len(context.recoveries), "incomplete": len(incomplete)},
    )


def _full(context: FindingContext, broker: BrokerRow, directory: Mapping[str, Any]) -> Iterable[Candidate]:
    total, usable = directory.get("total_bytes"), directory.get("usable_bytes")
    if not total or usable is None:
        return
    share = 1 - usable / total
    rate = context.disk_rates.get((broker.broker_id, str(directory.get("path"))))
    runway_ms = round(usable / rate * 3_600_000) if rate and rate > 0 else None
    soon = runway_ms is not None and runway_ms < RUNWAY_MS
    if share < DISK_WARNING and not soon:
        return
    urgent = share >= DISK_CRITICAL or (runway_ms is not None and runway_ms < RUNWAY_CRITICAL_MS)
    name = f"broker {broker.broker_id}"
    why = f"{in_bytes(usable)} of {in_bytes(total)} are free at {directory.get('path')}."
    if rate is not None and runway_ms is not None:
        why += f" At {in_bytes(round(rate))} an hour it is full in {in_time(runway_ms)}."
    yield Candidate(
        slug="disk-runway",
        object=name,
        severity=CRITICAL if urgent else WARNING,
        sentence=f"Disk {share:.0%} full: {name}" if not soon else f"Disk full within hours: {name}",
        why=why,
        action="See whether copying keeps up and what local retention allows; slow producers down if neither helps.",
        facts={"path": directory.get("path"), "usable_bytes": usable, "total_bytes": total, "runway_ms": runway_ms},
        broker_id=broker.broker_id,
    )


def metadata_unsafe(context: FindingContext) -> Iterable[Candidate]:
    """The remote tier's map must outlive a broker: replication, in-sync replicas, unlimited retention (KIP-405)."""
    topic = context.topic(METADATA_TOPIC)
    if topic is None:
        yield from _metadata_gone(context)
        return
    wanted = min(METADATA_REPLICATION, len(context.brokers))
    reasons = []
    if topic.replication_factor < wanted:
        reasons.append(f"{topic.replication_factor} of {wanted} replicas")
    own = [row for row in context.partitions if row.topic == METADATA_TOPIC]
    behind = sum(len(row.isr) < len(row.replicas) for row in own)
    if behind:
        reasons.append(f"{count(behind, 'partition')} under-replicated")
    for name in ("retention.ms", "retention.bytes"):
        limit = setting(topic, name)
        if limit is not None and limit >= 0 and "delete" in ((topic.config or {}).get("cleanup.policy") or "delete"):
            reasons.append(f"{name} is {limit}, so events are removed while their segments live")
    if reasons:
        lasting = topic.replication_factor >= wanted and len(reasons) == (1 if behind else 0)
        yield Candidate(
            slug="metadata-unsafe",
            object=METADATA_TOPIC,
            severity=CRITICAL,
            sentence="Remote log metadata is not safe",
            why=f"{'; '.join(reasons)}: losing it loses the remote tier's map.",
            action="Bring all its replicas in sync; give it 3 replicas and unlimited retention.",
            facts={"replication_factor": topic.replication_factor, "under_replicated": behind},
            topic=METADATA_TOPIC,
            for_ms=5_000 if lasting else 0,
        )


def _metadata_gone(context: FindingContext) -> Iterable[Candidate]:
    """The topic was deleted: running brokers have its records in memory, a restarted one does not.

    Apache Kafka lets a client delete it, and creates it again, empty, at a broker's next start. An attached cluster
    may keep this metadata elsewhere.
    """
    lost = sum((row.latest_tiered_offset or -1) >= 0 for row in context.tiered)
    if not context.topics or not lost or context.kafka_rules:
        return
    yield Candidate(
        slug="metadata-unsafe",
        object=METADATA_TOPIC,
        severity=CRITICAL,
        sentence=f"{METADATA_TOPIC} was deleted",
        why=f"The brokers that run still know the remote segments of {count(lost, 'partition')}; one that is"
        " restarted creates the topic again, empty, and cannot read them any more. Nothing more is copied.",
        action="Restart no broker. Copy what must be kept out of the tiered topics while it can still be read.",
        facts={"partitions": lost},
        topic=METADATA_TOPIC,
        for_ms=METADATA_GONE_MS,
    )


def metadata_loading(context: FindingContext) -> Iterable[Candidate]:
    """Leaders that do not know what is in the remote tier: after a start for a while, or for good."""
    unknowing = Counter(
        row.leader for row in context.partitions if row.pending_reason == PendingReason.LEADER_DOES_NOT_KNOW
    )
    for broker_id, partitions in sorted(unknowing.items()):
        rates = f"It does not know yet what is in the remote tier for {count(partitions, 'partition')}"
        about: dict[str, Any] = {
            "object": f"broker {broker_id}",
            "facts": {"partitions": partitions},
            "broker_id": broker_id,
        }
        yield Candidate(
            slug="metadata-loading",
            severity=NOTICE,
            sentence=f"Broker {broker_id} reads the remote log's metadata",
            why=f"{rates}; until then it copies nothing and answers -1 for the latest tiered offset.",
            action="Wait: the first look at the remote tier comes within one task interval (30 s).",
            **about,
        )
        yield Candidate(
            slug="metadata-failed",
            severity=CRITICAL,
            sentence=f"Broker {broker_id} does not get the remote log's metadata",
            why=f"For more than {in_time(METADATA_FAILED_MS)}. {rates}; it copies nothing.",
            action=f"Look at its log for errors of {METADATA_TOPIC}; when the topic is in order, restart the broker.",
            for_ms=METADATA_FAILED_MS,
            replaces="metadata-loading",
            **about,
        )


def throttles_left(context: FindingContext) -> Iterable[Candidate]:
    """A replication throttle that no move uses slows ordinary replication down."""
    moving = {row.topic for row in context.partitions if row.adding_replicas or row.removing_replicas}
    for throttle in context.throttles:
        if throttle.topic in moving or (throttle.topic is None and moving):
            continue
        where = throttle.topic or (f"broker {throttle.broker_id}" if throttle.broker_id != -1 else "all brokers")
        yield Candidate(
            slug="throttle-left",
            object=f"{where} {throttle.name}",
            severity=WARNING,
            sentence=f"Throttle without a move: {where}",
            why=f"{throttle.name} is {throttle.value[:200]}, and no replica moves there.",
            action=f"Remove {throttle.name} from {where}: it holds ordinary replication back.",
            facts={"name": throttle.name, "value": throttle.value[:200]},
            topic=throttle.topic,
            broker_id=None if throttle.broker_id == -1 else throttle.broker_id,
            for_ms=THROTTLE_HOLD_MS,
        )
