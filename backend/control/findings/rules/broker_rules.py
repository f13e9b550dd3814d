"""Rules about brokers and the replica folders that they keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from backend.control.findings.broker_absences import RepeatedAbsence
from backend.control.findings.finding_context import (
    CRITICAL,
    NOTICE,
    WARNING,
    Candidate,
    FindingContext,
    count,
    setting,
)
from backend.control.findings.holds import AFTER_OUTAGE, default_for_ms
from backend.control.findings.rules.disk_rules import fullest_directory
from backend.control.formatting import in_bytes, in_time
from backend.store.queries.overview import BrokerRow
from backend.tiering.durability import MIN_ISR

FENCED_FOR_MS: Final = default_for_ms("broker-fenced")
ALL_AWAY_MS: Final = default_for_ms("broker-away", "while no broker answers")
REGISTERED_FOR_MS: Final = default_for_ms("broker-away", AFTER_OUTAGE)
ELECTIONS_NAMED_MAX: Final = 3
LOOP_ACTION: Final = (
    "See at the end of its log, and of the system's, why it ends after each start: memory, open files, disk, a damaged"
    " log. Until that is mended another start changes nothing."
)


def brokers_away(context: FindingContext) -> Iterable[Candidate]:
    """A broker does not answer, or the controller keeps it from leading."""
    led = Counter(partition.leader for partition in context.partitions)
    held = Counter(broker_id for partition in context.partitions for broker_id in partition.replicas)
    needed = _needed_brokers(context) if any(not broker.reachable for broker in context.brokers) else frozenset()
    for broker in context.brokers:
        name = f"broker {broker.broker_id}"
        if not broker.reachable:
            lead = f" It has replicas of {count(held[broker.broker_id], 'partition')}"
            lead += f" and leads {led[broker.broker_id]}." if led[broker.broker_id] else "."
            absence = context.repeated_absences.get(broker.broker_id)
            times = "" if absence is None else f", {_times_away(absence)}"
            full = fullest_directory(context, broker)
            if full is not None:
                lead += f" {in_bytes(full[1])} were free at {full[0]} when it was seen last."
            yield Candidate(
                slug="broker-away",
                object=name,
                severity=CRITICAL
                if broker.broker_id in needed - context.returning
                else WARNING,  # its consequences may be graver: `causes`
                sentence=f"Broker {broker.broker_id} does not answer",
                why=f"Silent for {in_time(context.at_ms - broker.seen_ms)}{times}. {broker.error or ''}".strip() + lead,
                action=_action_away(context, broker.broker_id, full),
                facts={
                    "seen_ms": broker.seen_ms,
                    "leads": led[broker.broker_id],
                    "replicas": held[broker.broker_id],
                },
                broker_id=broker.broker_id,
                for_ms=_away_for_ms(context, broker),
            )
        elif broker.broker_id in context.repeated_absences:
            yield _returning(broker.broker_id, context.repeated_absences[broker.broker_id])
        elif broker.fenced:
            yield Candidate(
                slug="broker-fenced",
                object=name,
                severity=WARNING,
                sentence=f"Broker {broker.broker_id} is fenced",
                why="The controller keeps it from leading until it has caught up and its heartbeats arrive.",
                action="Wait while it starts; if it stays fenced, look at its connection to the controller.",
                broker_id=broker.broker_id,
                for_ms=FENCED_FOR_MS,
            )


def _away_for_ms(context: FindingContext, broker: BrokerRow) -> int:
    all_away = not any(row.reachable for row in context.brokers)
    if all_away and context.at_ms - broker.seen_ms < ALL_AWAY_MS:
        return ALL_AWAY_MS
    return REGISTERED_FOR_MS if context.just_back else 0


def _returning(broker_id: int, absence: RepeatedAbsence) -> Candidate:
    """A broker that answers now and will most likely stop again: the finding stays, so that nobody is sent an end."""
    return Candidate(
        slug="broker-away",
        object=f"broker {broker_id}",
        severity=WARNING,
        sentence=f"Broker {broker_id} comes and goes",
        why=f"It has answered for {in_time(absence.back_ms or 0)}, and was {_times_away(absence)}.",
        action=LOOP_ACTION,
        facts={"absences": absence.count, "within_ms": absence.within_ms},
        broker_id=broker_id,
    )


def _times_away(absence: RepeatedAbsence) -> str:
    return f"away {absence.count} times in {in_time(absence.within_ms)}"


def _action_away(context: FindingContext, broker_id: int, full: tuple[str, int] | None) -> str:
    """`full`: path and free bytes of its log directory that was as good as full."""
    if context.kafka_rules and broker_id in context.endangered.last_leaders:
        return "Leave it stopped until other replicas lead the partitions that last-leader-behind names."
    held = [election for election in context.unclean_elections if broker_id in election.unsaved]
    if held:
        named = ", ".join(f"{election.topic}-{election.partition}" for election in held[:ELECTIONS_NAMED_MAX])
        more = "" if len(held) <= ELECTIONS_NAMED_MAX else f" and {len(held) - ELECTIONS_NAMED_MAX} more"
        return (
            f"Before it starts again, copy its folders of {named}{more}: records that their leaders lack may be there"
            " only (unclean-recovery), and it cuts its logs to theirs."
        )
    if full is not None:
        return (
            f"See whether {full[0]} is full: then make room on that disk, outside of the log directories, and start the"
            " broker again. Else look whether its process runs and its listener can be reached."
        )
    if broker_id in context.repeated_absences:
        return LOOP_ACTION
    return "Look whether its process runs and its listener can be reached, then start it again."


def _needed_brokers(context: FindingContext) -> frozenset[int]:
    """Brokers in an ISR that is too small without them: such a partition takes no writes as soon as they are missed.

    One that is led all the same, and that a replica is about to join, is left to `below-min-isr` and its hold.
    """
    least = {name: setting(topic, MIN_ISR) or 1 for name, topic in context.topics.items()}
    return frozenset(
        broker_id
        for row in context.partitions
        if len(row.isr) <= min(least.get(row.topic, 1), len(row.replicas))
        and (len(row.isr) == 1 or context.rejoining.isdisjoint(set(row.replicas) - set(row.isr)))
        for broker_id in row.isr
    )


def set_aside(context: FindingContext) -> Iterable[Candidate]:
    """Unused replica folders that a broker keeps: they may be the only copy, and take room."""
    for broker in context.brokers:
        kept = [
            (directory.get("path"), folder)
            for directory in broker.log_dirs or []
            for folder in directory.get("set_aside") or []
        ]
        if not kept:
            continue
        # The oldest of each directory are stored, and how many and how large all of them are.
        folders = sum(directory.get("set_aside_count") or 0 for directory in broker.log_dirs or [])
        total_bytes = sum(directory.get("set_aside_bytes") or 0 for directory in broker.log_dirs or [])
        oldest = min((folder for _, folder in kept), key=lambda folder: int(folder["since_ms"]))
        age_ms = max(0, context.at_ms - int(oldest["since_ms"]))
        yield Candidate(
            slug="set-aside",
            object=f"broker {broker.broker_id}",
            severity=NOTICE,
            sentence=f"{count(folders, 'replica folder')} set aside on broker {broker.broker_id}",
            why=f"{in_bytes(total_bytes)}, for {in_time(age_ms)}; the oldest is {oldest['name']}: {oldest['reason']}.",
            action="See that nothing in them is missed (Config, Brokers, or ebbline set-aside); then remove them by a"
            f" plan that sets ebbline.remove.set.aside of broker {broker.broker_id} to their names.",
            facts={"folders": [{"path": path, **folder} for path, folder in kept], "size_bytes": total_bytes},
            broker_id=broker.broker_id,
        )
