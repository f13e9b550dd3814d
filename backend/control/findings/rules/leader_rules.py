"""Rules about partitions without a leader or with too few replicas in sync, and about brokers that lead too few."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from backend.control.findings.finding_context import (
    CRITICAL,
    WARNING,
    Candidate,
    FindingContext,
    count,
    ids,
    name_of,
    setting,
)
from backend.control.findings.holds import AFTER_OUTAGE, default_for_ms
from backend.store.writes.samples import PartitionSample
from backend.tiering.durability import MIN_ISR
from backend.tiering.ids import TopicPartition

ELECTED_FOR_MS: Final = default_for_ms("offline", AFTER_OUTAGE)
# Partitions that a sentence names.
_NAMED_MAX: Final = 3
BELOW_MIN_ISR_FOR_MS: Final = default_for_ms("below-min-isr")
SKEW_FOR_MS: Final = default_for_ms("leader-skew", "leads less than it should")
SPREAD_FOR_MS: Final = default_for_ms("leader-skew", "is to lead too little")


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
            for_ms=ELECTED_FOR_MS if context.just_back and not unusable else 0,
        )


def _who_may_lead(context: FindingContext, row: PartitionSample) -> tuple[Collection[int], str]:
    """The brokers whose return gives the partition a leader, and in words what is known of them."""
    endangered = context.endangered.by_partition.get(TopicPartition(row.topic, row.partition))
    if endangered is not None and context.kafka_rules:
        last = f"Broker {endangered.last_leader} was in sync last"
        return (endangered.last_leader,), f"{last}, and lacks records that another replica has (last-leader-behind)."
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
    start alone does not help it, though it may have been asked before it registered. A broker that lacks records is
    not started while partitions wait that others have whole.
    """
    endangering = set(named) & context.endangered.last_leaders if context.kafka_rules else set()
    named = [broker_id for broker_id in named if broker_id not in endangering]
    if endangering and not named:
        return (
            f"Do what the finding last-leader-behind of broker {ids(endangering)} says: it must not run before other"
            " replicas lead"
        )
    running = {broker.broker_id for broker in context.brokers if broker.reachable and not broker.fenced}
    away = [broker_id for broker_id in named if broker_id not in running and broker_id not in unusable]
    if away:
        # Apache Kafka lets it lead whatever its disk holds, and the other replicas cut their logs to that.
        own_disk = ", only with the disk that it had; if that is new or lost, do not start it: see the runbook"
        return f"Start broker {ids(away)}{own_disk if context.kafka_rules else ''}"
    damaged = [broker_id for broker_id in named if broker_id in unusable]
    if damaged:
        return (
            f"Delete nothing. Mend the disk of broker {ids(damaged)}, or put the file back from a copy of it, and start"
            " the broker again"
        )
    return f"Look in the log of broker {ids(named)} whether the disk that held the partition is there"


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


def leader_skew(context: FindingContext) -> Iterable[Candidate]:
    """Brokers that lead far fewer partitions than their replicas would allow: the others carry their load."""
    preferred = Counter(row.replicas[0] for row in context.partitions if row.replicas)
    led = Counter(row.leader for row in context.partitions if row.replicas and row.leader == row.replicas[0])
    share: dict[int, float] = defaultdict(float)
    for row in context.partitions:
        for broker_id in row.replicas:
            share[broker_id] += 1 / len(row.replicas)
    share_min, partitions_min = context.thresholds.skew_share, context.thresholds.skew_partitions
    for broker in context.brokers:
        if not broker.reachable or broker.fenced:
            continue
        due, own, fair = preferred[broker.broker_id], led[broker.broker_id], round(share[broker.broker_id])
        if fair >= partitions_min and due < fair * share_min:
            yield _skew(
                broker.broker_id,
                f"Broker {broker.broker_id} is to lead {due} of {count(fair, 'partition')} that would be its share",
                "It is seldom the first of a partition's replicas, so the others lead and carry its load.",
                "Spread the first replicas again by a plan: ebbline plan spread-leaders.",
                {"preferred": due, "share": fair},
                for_ms=SPREAD_FOR_MS,
            )
        elif due >= partitions_min and own < due * share_min:
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
