"""Rules about partitions without a leader, and about leaders that were elected uncleanly."""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
)
from backend.store.queries.findings import RECOVERIES_MAX
from backend.store.writes.samples import PartitionSample
from backend.tiering.ids import TopicPartition

# Partitions that a sentence names.
_NAMED_MAX: Final = 3


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
