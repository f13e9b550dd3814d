"""A broker that led last is back with less than another replica has: a clock that runs down on Apache Kafka.

It elects that broker by itself, after which the others cut their logs to its end: played on 4.3.1 and 4.4.0, after 276
to 283 of the 300 s of the setting, and at once by an unclean election, a reassignment, or the restart of any broker.
The steps that lose nothing are: stop it, wait until it is listed no more, elect the best of the others uncleanly, start
it. The finding stays until the last but one is done, and says the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backend.control.findings.endangered_partitions import EndangeredPartition
from backend.control.findings.finding_context import CRITICAL, Candidate, FindingContext, count, name_of
from backend.control.findings.kafka_commands import command
from backend.store.writes.samples import PartitionSample
from backend.tiering.ids import TopicPartition

IMBALANCE_CHECK: Final = "leader.imbalance.check.interval.seconds"
# Settings by which a controller tries to elect leaders by itself, with their unit in milliseconds. Kafka describes the
# first one only.
ELECTION_TRIES: Final = ((IMBALANCE_CHECK, 1_000), ("unclean.leader.election.interval.ms", 1))
# Kafka's default of both.
ELECTION_TRY_MS: Final = 300_000
# Partitions that a sentence names.
_NAMED_MAX: Final = 3
# Of the evidence: 300 bytes each.
ENDANGERED_STORED_MAX: Final = 100
_Rows = Sequence[tuple[PartitionSample, EndangeredPartition]]


@dataclass(frozen=True, slots=True)
class _NextStep:
    """The step that comes next: headline, the reason why, and the action."""

    headline: str
    reason: str
    action: str


def last_leaders_behind(context: FindingContext) -> Iterable[Candidate]:
    """A last leader with a shorter log than another replica has, running or stopped, until another one leads."""
    if not context.kafka_rules:
        return  # the embedded engine compares logs
    by_leader: dict[int, list[tuple[PartitionSample, EndangeredPartition]]] = defaultdict(list)
    for row in context.partitions:
        endangered = context.endangered.by_partition.get(TopicPartition(row.topic, row.partition))
        if endangered is not None and row.leader < 0:
            by_leader[endangered.last_leader].append((row, endangered))
    for last, rows in sorted(by_leader.items()):
        yield _last_leader_behind(context, last, rows)


def _last_leader_behind(context: FindingContext, last: int, rows: _Rows) -> Candidate:
    step = _next_step(context, last, rows)
    more = "" if len(rows) <= _NAMED_MAX else f" and {len(rows) - _NAMED_MAX} more"
    unread = context.endangered.unread
    too_many = f" {count(unread, 'partition')} more without a leader: too many to compare their logs." if unread else ""
    facts: dict[str, Any] = {
        "within_s": _elected_within_ms(context, rows) // 1000,
        "partition_count": len(rows),
        "not_compared": unread,
        "partitions": [endangered.evidence() for _, endangered in rows[:ENDANGERED_STORED_MAX]],
    }
    return Candidate(
        slug="last-leader-behind",
        object=f"broker {last}",
        severity=CRITICAL,
        sentence=step.headline,
        why=f"It led last and lacks records of {', '.join(_log_ends(*pair) for pair in rows[:_NAMED_MAX])}{more}."
        f" {step.reason}{too_many}",
        action=step.action,
        facts=facts,
        broker_id=last,
    )


def _log_ends(row: PartitionSample, endangered: EndangeredPartition) -> str:
    """`orders-0 (its log ends at 0, that of broker 1 at 1000 of epoch 4: the best)`, and the others."""
    best = endangered.best
    order = sorted(endangered.log_ends, key=lambda broker_id: broker_id != best)
    others = [
        f"that of broker {broker_id} at {endangered.log_ends[broker_id][1]} of epoch"
        f" {endangered.log_ends[broker_id][0]}{', the best' if broker_id == best else ''}"
        for broker_id in order
        if broker_id != endangered.last_leader
    ]
    return f"{name_of(row)} (its log ends at {endangered.log_ends[endangered.last_leader][1]}, {', '.join(others)})"


def _next_step(context: FindingContext, last: int, rows: _Rows) -> _NextStep:
    partitions = count(len(rows), "partition")
    if any(broker.broker_id == last and broker.reachable for broker in context.brokers):
        return _NextStep(
            f"Stop broker {last} now: it may lead {partitions} without their records",
            f"Kafka makes it the leader by itself {_elected_when(context, rows)}, and the other replicas then drop what"
            " it lacks.",
            f"Stop broker {last}. Elect nothing, move nothing and restart nothing before it is gone from the list of"
            " brokers; then put the replica with the longest log of the highest epoch first and elect uncleanly. Do not"
            f" start broker {last} before that replica leads. The runbook has the commands.",
        )
    if last in _listed(context):
        return _NextStep(
            f"Broker {last} does not answer and may still be elected for {partitions} whose records it lacks",
            "The controller still lists it: it is elected while it is dead, and once it is back the other replicas"
            " drop what it lacks.",
            f"See that the process of broker {last} has ended, and wait until it is gone from the list of brokers."
            f" Elect nothing, move nothing and restart nothing before. Do not start broker {last} before another"
            " replica leads.",
        )
    steps = [_election(context, *pair) for pair in rows[:_NAMED_MAX]]
    more = "" if len(rows) <= _NAMED_MAX else f"; so the {len(rows) - _NAMED_MAX} others that the evidence names"
    return _NextStep(
        f"Broker {last} is stopped: {partitions} must be led by another before it starts",
        "Started before that, it would lead, and the other replicas would drop what it lacks.",
        f"Broker {last} is stopped. Now {'; '.join(steps)}{more}. Do not start broker {last} before that.",
    )


def _elected_within_ms(context: FindingContext, rows: _Rows) -> int:
    """The time that is left at most before the controller tries again, of the partition that has waited longest."""
    waits_ms = max(context.at_ms - (endangered.since_ms or context.at_ms) for _, endangered in rows)
    return max(0, (context.election_try_ms or ELECTION_TRY_MS) - max(0, waits_ms))


def _elected_when(context: FindingContext, rows: _Rows) -> str:
    seconds = _elected_within_ms(context, rows) // 1000
    if not seconds:
        return "at any moment"
    default = "" if context.election_try_ms is not None else "; no broker tells its value, so this is Kafka's default"
    return f"within {seconds} s ({IMBALANCE_CHECK}{default}) or at any moment before"


def _election(context: FindingContext, row: PartitionSample, endangered: EndangeredPartition) -> str:
    """The next step for one partition: an unclean election takes the first living one of the replica list."""
    best_end = endangered.log_ends[endangered.best]
    listed = _listed(context)
    living = [broker_id for broker_id in row.replicas if broker_id in listed and broker_id != endangered.last_leader]
    best = next((broker_id for broker_id in living if endangered.log_ends.get(broker_id) == best_end), None)
    if best is None:
        return f"start broker {endangered.best}, which has the best log of {name_of(row)}"
    election = command(
        context,
        "kafka-leader-election.sh",
        f"--election-type unclean --topic {row.topic} --partition {row.partition}",
        best,
    )
    if living[0] != best:
        return (
            f"put broker {best} first in the replica list of {name_of(row)} (AlterPartitionReassignments, see the"
            f" runbook), and then let it lead: {election}"
        )
    return f"let broker {best} lead {name_of(row)}: {election}"


def _listed(context: FindingContext) -> frozenset[int]:
    """The brokers that the controller may elect."""
    if context.listed is None:
        return frozenset(broker.broker_id for broker in context.brokers if broker.reachable and not broker.fenced)
    return frozenset(context.listed)
