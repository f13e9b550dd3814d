"""Rules about partitions without a leader, and about leaders that were elected uncleanly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

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
from backend.store.queries.findings import RECOVERIES_MAX
from backend.store.writes.samples import PartitionSample
from backend.tiering.durability import MIN_ISR
from backend.tiering.ids import TopicPartition

# Partitions that a sentence names.
_NAMED_MAX: Final = 3
# A new topic's replicas join the ISR within a second; a restarted broker leaves it for as long as it takes to be seen.
BELOW_MIN_ISR_FOR_MS: Final = 2_000
# Kafka moves leaders back by itself every 5 min (`leader.imbalance.check.interval.seconds`): two of them have passed.
SKEW_FOR_MS: Final = 660_000
# `leader.imbalance.check.interval.seconds` and `unclean.leader.election.interval.ms` of Kafka as it comes.
UNCLEAN_TRY_S: Final = 300
ENDANGERED_STORED_MAX: Final = 100
SKEW_SHARE_MIN: Final = 0.5
SKEW_PARTITIONS_MIN: Final = 10
# A move of replicas passes through such orders.
SPREAD_FOR_MS: Final = 15_000


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
            depends_on=frozenset(named),
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
    one asked for, or are about to lead. A broker that named its unusable log runs, or ran so when it was asked last: a
    start alone does not help it, though it may have been asked before it registered.
    """
    running = {broker.broker_id for broker in context.brokers if broker.reachable and not broker.fenced}
    away = [broker_id for broker_id in named if broker_id not in running and broker_id not in unusable]
    if away:
        return f"Start broker {ids(away)}"
    damaged = [broker_id for broker_id in named if broker_id in unusable]
    if damaged:
        return (
            f"Delete nothing. Mend the disk of broker {ids(damaged)}, or put the file back from a copy of it, and start"
            " the broker again"
        )
    return f"Look in the log of broker {ids(named)} whether the disk that held the partition is there"


def last_leaders_behind(context: FindingContext) -> Iterable[Candidate]:
    """A broker that led last is back with a shorter log than another replica has: a clock that runs down.

    Apache Kafka elects it by itself, after which the others cut their logs to its end: played on 4.3.1 and 4.4.0, after
    276 to 283 s, and at once by an unclean election, a reassignment, or the restart of any broker.
    """
    if not context.kafka_rules:
        return  # the embedded engine compares logs
    endangered: dict[int, list[tuple[PartitionSample, int]]] = defaultdict(list)
    for row in context.partitions:
        partition = TopicPartition(row.topic, row.partition)
        eligible = context.eligible.get(partition)
        if row.leader >= 0 or eligible is None or eligible.elr or len(eligible.last_known) != 1:
            continue
        last = eligible.last_known[0]
        ends = {b: (e.epoch, e.offset) for b in row.replicas if (e := context.log_ends.get((partition, b))) is not None}
        best = max(ends, key=lambda broker_id: ends[broker_id], default=last)
        if last in ends and ends[best] > ends[last]:
            endangered[last].append((row, best))
    for last, rows in sorted(endangered.items()):
        yield _last_leader_behind(context, last, rows)


def _last_leader_behind(context: FindingContext, last: int, rows: list[tuple[PartitionSample, int]]) -> Candidate:
    def log_end(row: PartitionSample, broker_id: int) -> int:
        return context.log_ends[TopicPartition(row.topic, row.partition), broker_id].offset

    texts = [
        f"{name_of(row)} (its log ends at {log_end(row, last)}, that of broker {best} at {log_end(row, best)})"
        for row, best in rows[:_NAMED_MAX]
    ]
    more = "" if len(rows) <= _NAMED_MAX else f" and {len(rows) - _NAMED_MAX} more"
    return Candidate(
        slug="last-leader-behind",
        object=f"broker {last}",
        severity=CRITICAL,
        sentence=f"Stop broker {last} now: it may lead {count(len(rows), 'partition')} without their records",
        why=f"It led last and lacks records of {', '.join(texts)}{more}. Kafka makes it the leader by itself, within"
        f" {UNCLEAN_TRY_S} s or at any moment before, and the other replicas then drop what it lacks.",
        action=f"Stop broker {last}. Elect nothing, move nothing and restart nothing before it is gone from the list of"
        f" brokers; then put the replica with the longest log of the highest epoch first, elect uncleanly, and start"
        f" broker {last} once that replica leads. The runbook has the commands.",
        facts={
            "within_s": UNCLEAN_TRY_S,
            "partitions": [
                {
                    "partition": name_of(row),
                    "log_end_offset": log_end(row, last),
                    "best_broker_id": best,
                    "best_log_end_offset": log_end(row, best),
                }
                for row, best in rows[:ENDANGERED_STORED_MAX]
            ],
        },
        broker_id=last,
    )


def below_min_isr(context: FindingContext) -> Iterable[Candidate]:
    """A partition that is led and has fewer replicas in sync than `min.insync.replicas`: producers with acks=all are
    refused. One without a leader is `offline`.
    """
    for row in context.partitions:
        least = setting(context.topic(row.topic), MIN_ISR)
        # As many as there are replicas do (Partition.effectiveMinIsr).
        if row.leader < 0 or least is None or len(row.isr) >= min(least, len(row.replicas)):
            continue
        missing = sorted(set(row.replicas) - set(row.isr))
        yield Candidate(
            slug="below-min-isr",
            object=name_of(row),
            severity=CRITICAL,
            sentence=f"Too few replicas in sync: {name_of(row)}",
            why=f"{len(row.isr)} of {len(row.replicas)} replicas are in sync, {MIN_ISR} is {least}: producers that ask"
            " for all acknowledgements are refused.",
            action=f"Bring the replicas on broker {ids(missing)} back in sync: start them, or see what holds them up.",
            facts={"isr": list(row.isr), "replicas": list(row.replicas), "min_insync_replicas": least},
            topic=row.topic,
            partition=row.partition,
            for_ms=BELOW_MIN_ISR_FOR_MS,
            depends_on=frozenset(missing),
        )


def unclean_recoveries(context: FindingContext) -> Iterable[Candidate]:
    """Leaders elected by comparing logs: every replica in sync had stopped uncleanly. One crash is one finding."""
    if not context.recoveries:
        return
    incomplete = [recovery for recovery in context.recoveries if not recovery.complete]
    shown = incomplete or context.recoveries
    named = ", ".join(f"{recovery.topic}-{recovery.partition}" for recovery in shown[:_NAMED_MAX])
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


def leader_skew(context: FindingContext) -> Iterable[Candidate]:
    """Brokers that lead far fewer partitions than their replicas would allow: the others carry their load."""
    preferred = Counter(row.replicas[0] for row in context.partitions if row.replicas)
    led = Counter(row.leader for row in context.partitions if row.replicas and row.leader == row.replicas[0])
    share: dict[int, float] = defaultdict(float)
    for row in context.partitions:
        for broker_id in row.replicas:
            share[broker_id] += 1 / len(row.replicas)
    for broker in context.brokers:
        if not broker.reachable or broker.fenced:
            continue
        due, own, fair = preferred[broker.broker_id], led[broker.broker_id], round(share[broker.broker_id])
        if fair >= SKEW_PARTITIONS_MIN and due < fair * SKEW_SHARE_MIN:
            yield _skew(
                broker.broker_id,
                f"Broker {broker.broker_id} is to lead {due} of {count(fair, 'partition')} that would be its share",
                "It is seldom the first of a partition's replicas, so the others lead and carry its load.",
                "Spread the first replicas again by a plan: ebbline plan spread-leaders.",
                {"preferred": due, "share": fair},
                for_ms=SPREAD_FOR_MS,
            )
        elif due >= SKEW_PARTITIONS_MIN and own < due * SKEW_SHARE_MIN:
            yield _skew(
                broker.broker_id,
                f"Broker {broker.broker_id} leads {own} of the {count(due, 'partition')} that it should",
                "Other brokers lead the rest, since it was away or the leaders were moved: they carry its load.",
                "Elect preferred leaders once its replicas are in sync: ebbline plan elect.",
                {"preferred": due, "led": own},
                for_ms=SKEW_FOR_MS,
            )


def _skew(broker_id: int, sentence: str, why: str, action: str, facts: Mapping[str, int], *, for_ms: int) -> Candidate:
    return Candidate(
        slug="leader-skew",
        object=f"broker {broker_id}",
        severity=WARNING,
        sentence=sentence,
        why=why,
        action=action,
        facts=facts,
        broker_id=broker_id,
        for_ms=for_ms,
    )
