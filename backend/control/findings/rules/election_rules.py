"""Rules about leaders that were not elected from the ISR: what they lack, and which broker still has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from backend.control.findings.finding_context import CRITICAL, NOTICE, WARNING, Candidate, FindingContext, count, ids
from backend.control.findings.unclean_elections import UncleanElection
from backend.store.queries.findings import RECOVERIES_MAX

# Partitions that a sentence names.
_NAMED_MAX: Final = 3
_STORED_MAX: Final = 100


def unclean_elections(context: FindingContext) -> Iterable[Candidate]:
    """Leaders that lack acknowledged records, one by one; those that lack nothing that was sampled, by broker."""
    whole: dict[int, list[UncleanElection]] = defaultdict(list)
    for election in _unsafe(context):
        if election.lost:
            yield _loss(election)
        else:
            whole[election.leader].append(election)
    for leader, elections in sorted(whole.items()):
        yield _without_loss(leader, elections)


def _unsafe(context: FindingContext) -> Iterable[UncleanElection]:
    """Without the elections for which the embedded engine had compared logs: it tells these itself."""
    for election in context.unclean_elections:
        if election.lost or context.kafka_rules or not election.none_in_sync:
            yield election


def _loss(election: UncleanElection) -> Candidate:
    name, end = _name(election), election.log_end_offset
    by = "" if election.former_leader is None else f", by broker {election.former_leader}, which led before"
    holders = f" Broker {ids(election.unsaved)} may still have them." if election.unsaved else ""
    return Candidate(
        slug="unclean-recovery",
        object=name,
        severity=CRITICAL,
        sentence=f"{name} is led without {count(election.lost, 'acknowledged record')}",
        why=f"Broker {election.leader} leads in epoch {election.leader_epoch}; its log ended at {end} when it was seen"
        f" first. Offsets {end} to {end + election.lost - 1} had been acknowledged, and later ones may have been after"
        f" that{by}.{holders}",
        action=f"Keep broker {ids(election.unsaved)} from coming back before the folder {name} on its disk is copied"
        f" (stop it if it runs): as a follower it cuts its log to that of broker {election.leader}. Then bring back"
        " what the copy has and the partition lacks."
        if election.unsaved
        else "No replica is known to have them any more. Keep every disk that held one; compare with producers.",
        facts={"lost": election.lost, **election.evidence()},
        topic=election.topic,
        partition=election.partition,
    )


def _without_loss(leader: int, elections: Sequence[UncleanElection]) -> Candidate:
    named = ", ".join(map(_name, elections[:_NAMED_MAX]))
    more = "" if len(elections) <= _NAMED_MAX else f" and {len(elections) - _NAMED_MAX} more"
    unsaved = {broker_id for election in elections for broker_id in election.unsaved}
    return Candidate(
        slug="unclean-recovery",
        object=f"broker {leader}",
        # A broker that may have acknowledged records loses them when it comes back: somebody must get up before that.
        severity=CRITICAL if unsaved else WARNING,
        sentence=f"Broker {leader} was elected outside of the ISR of {count(len(elections), 'partition')}",
        why=f"It leads {named}{more}. Nothing that was sampled is missing; what was acknowledged after that may be."
        + (f" Broker {ids(unsaved)} may still have it." if unsaved else ""),
        action=f"Keep broker {ids(unsaved)} from coming back before its folders of {named}{more} are copied (stop it if"
        " it runs): as a follower it cuts its logs. Then compare with what producers know to be acknowledged."
        if unsaved
        else "Compare with what producers know to be acknowledged.",
        facts={"partitions": [_name(election) for election in elections[:_STORED_MAX]], "count": len(elections)},
        broker_id=leader,
    )


def _name(election: UncleanElection) -> str:
    return f"{election.topic}-{election.partition}"


def unclean_recoveries(context: FindingContext) -> Iterable[Candidate]:
    """Leaders elected by comparing logs: every replica in sync had stopped uncleanly. One crash is one finding."""
    single = {(election.topic, election.partition) for election in _unsafe(context)}
    recoveries = [recovery for recovery in context.recoveries if (recovery.topic, recovery.partition) not in single]
    if not recoveries:
        return
    incomplete = [recovery for recovery in recoveries if not recovery.complete]
    shown = incomplete or recoveries
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
        sentence=f"{count(len(recoveries), 'leader')}{at_least} elected by comparing logs",
        why=why,
        action=action,
        facts={"partitions": len(recoveries), "incomplete": len(incomplete)},
    )
