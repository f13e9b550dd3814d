"""Checks of a reassignment. Pure: the facts are gathered by the kind, the sentences say what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backend.control.formatting import in_bytes
from backend.control.operations.lifecycle.plan_draft import CheckOutcome, PlanCheck
from backend.control.operations.reassign.copy_estimate import ReplicaCopy
from backend.control.operations.reassign.partition_moves import CurrentReplicas, PlannedMove
from backend.tiering.estimate import EstimateVerdict
from backend.tiering.ids import TopicPartition

NAMED_MAX: Final = 5
# A disk that is fuller than this after the move leaves no room for what is produced meanwhile.
DISK_SHARE_MAX: Final = 0.9
# A leader with less than half of what the present one holds locally sends its readers to the remote tier.
THIN_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class ReassignmentFacts:
    """Facts for the checks of a move; a missing key or None: not known."""

    now: Mapping[TopicPartition, CurrentReplicas]
    registered: frozenset[int]
    alive: frozenset[int]
    min_isr: Mapping[str, int]
    tiered: frozenset[str]
    without_tier: frozenset[int]
    """Brokers that say remote.log.storage.system.enable=false."""
    usable_bytes: Mapping[int, int]
    total_bytes: Mapping[int, int]
    local_bytes: Mapping[tuple[TopicPartition, int], int | None] = field(default_factory=dict)
    produced_bytes_per_s: int = 0
    """What the joining replicas have to take in any case, on the broker where that is most."""
    rates_set: Sequence[int] = ()
    """Brokers with a limit that others have set."""
    lists_set: Sequence[str] = ()
    """Topics whose throttled replicas others have named."""
    running_plan: int | None = None


def checks(
    moves: Mapping[TopicPartition, PlannedMove],
    facts: ReassignmentFacts,
    copies: Sequence[ReplicaCopy],
    throttle_bytes_per_s: int | None,
    *,
    unthrottled: bool = False,
    stale: bool = False,
) -> list[PlanCheck]:
    """Worst first; a plan without refusals can be confirmed."""
    result = [
        _change(moves),
        _brokers(moves, facts),
        _space(facts, copies),
        _in_sync(moves, facts),
        _thin(moves, facts, copies),
        _limit(facts, copies, throttle_bytes_per_s, unthrottled=unthrottled),
        _blocked(copies),
        _tier(moves, facts),
        _in_progress(moves, facts),
        _leaders(moves, facts),
        _unknown(copies),
        _others(facts, limited=bool(copies) and throttle_bytes_per_s is not None),
        _age(stale=stale),
    ]
    order = [CheckOutcome.REFUSED, CheckOutcome.WARNING, CheckOutcome.OK]
    return sorted(result, key=lambda check: order.index(check.outcome))


def _change(moves: Mapping[TopicPartition, PlannedMove]) -> PlanCheck:
    moved = sum(move.before != move.target for move in moves.values())
    if not moved:
        return PlanCheck(
            "change", CheckOutcome.REFUSED, "Every partition has these replicas already: there is nothing to do."
        )
    return PlanCheck("change", CheckOutcome.OK, f"{moved} of {len(moves)} partitions change.")


def _brokers(moves: Mapping[TopicPartition, PlannedMove], facts: ReassignmentFacts) -> PlanCheck:
    targets = {b for move in moves.values() for b in move.target}
    unknown = sorted(targets - facts.registered)
    if unknown:
        names = ", ".join(map(str, sorted(facts.registered)))
        return PlanCheck(
            "brokers", CheckOutcome.REFUSED, f"There is no broker {_ids(unknown)}; registered are {names}."
        )
    twice = [tp for tp, move in moves.items() if len(set(move.target)) < len(move.target)]
    if twice:
        return PlanCheck("brokers", CheckOutcome.REFUSED, f"{_names(twice)}: a broker stands twice in the list.")
    joining = {b for move in moves.values() for b in move.adding}
    away = sorted(joining - facts.alive)
    if away:
        text = f"Broker {_ids(away)} is not alive and cannot take replicas: start it, or choose another."
        return PlanCheck("brokers", CheckOutcome.REFUSED, text)
    return PlanCheck("brokers", CheckOutcome.OK, "Every broker that takes replicas is alive.")


def _leaders(moves: Mapping[TopicPartition, PlannedMove], facts: ReassignmentFacts) -> PlanCheck:
    without = [tp for tp, move in moves.items() if move.adding and (tp not in facts.now or facts.now[tp].leader < 0)]
    if without:
        text = f"{_names(without)}: no leader to copy from. Bring a replica back first."
        return PlanCheck("leader", CheckOutcome.REFUSED, text)
    return PlanCheck("leader", CheckOutcome.OK, "Every partition has a leader to copy from.")


def _in_progress(moves: Mapping[TopicPartition, PlannedMove], facts: ReassignmentFacts) -> PlanCheck:
    moving = [tp for tp in moves if tp in facts.now and (facts.now[tp].adding or facts.now[tp].removing)]
    if moving:
        text = f"{_names(moving)}: a move is in progress. Wait for its end, or cancel it."
        return PlanCheck("in-progress", CheckOutcome.REFUSED, text)
    if facts.running_plan is not None:
        text = f"Plan {facts.running_plan} is moving replicas: this one can be executed after its end."
        return PlanCheck("in-progress", CheckOutcome.WARNING, text)
    return PlanCheck("in-progress", CheckOutcome.OK, "Nothing else moves these partitions.")


def _in_sync(moves: Mapping[TopicPartition, PlannedMove], facts: ReassignmentFacts) -> PlanCheck:
    below, short, leaving = [], [], []
    for tp, move in moves.items():
        now, least = facts.now.get(tp), facts.min_isr.get(tp.topic, 1)
        if now is None:
            continue
        if len(move.target) < least:
            short.append(tp)
        elif move.before != move.target and len(now.isr) < min(least, len(move.before)):
            below.append(tp)
        elif move.removing and not move.adding and len(set(now.isr) & set(move.target)) < least:
            leaving.append(tp)
    if short:
        text = f"{_names(short)}: fewer replicas than min.insync.replicas, producers with acks=all would be refused."
        return PlanCheck("in-sync", CheckOutcome.REFUSED, text)
    if below:
        text = f"{_names(below)}: fewer in sync than min.insync.replicas. Bring the replicas back before you move them."
        return PlanCheck("in-sync", CheckOutcome.REFUSED, text)
    if leaving:
        text = f"{_names(leaving)}: the replicas that stay are not in sync. Wait for them, or remove others."
        return PlanCheck("in-sync", CheckOutcome.REFUSED, text)
    behind = [tp for tp in moves if tp in facts.now and set(facts.now[tp].isr) != set(facts.now[tp].replicas)]
    if behind:
        return PlanCheck("in-sync", CheckOutcome.WARNING, f"{_names(behind)}: not all replicas are in sync now.")
    return PlanCheck("in-sync", CheckOutcome.OK, "All replicas are in sync.")


def _tier(moves: Mapping[TopicPartition, PlannedMove], facts: ReassignmentFacts) -> PlanCheck:
    bad = {b for tp, move in moves.items() if tp.topic in facts.tiered for b in move.adding if b in facts.without_tier}
    if bad:
        text = f"Broker {_ids(sorted(bad))} has no tiered storage: a tiered topic's replica cannot live there."
        return PlanCheck("tier", CheckOutcome.REFUSED, text)
    return PlanCheck("tier", CheckOutcome.OK, "Every broker that takes a tiered replica has tiered storage.")


def _space(facts: ReassignmentFacts, copies: Sequence[ReplicaCopy]) -> PlanCheck:
    needs: dict[int, int] = {}
    for copy in copies:
        needs[copy.broker_id] = needs.get(copy.broker_id, 0) + (copy.in_effect_bytes or 0)
    unknown = [b for b in needs if b not in facts.usable_bytes]
    for broker_id, size_bytes in sorted(needs.items()):
        usable, total = facts.usable_bytes.get(broker_id), facts.total_bytes.get(broker_id)
        if usable is None:
            continue
        if size_bytes > usable:
            text = f"Broker {broker_id} has {in_bytes(usable)} free and would take {in_bytes(size_bytes)}: free space."
            return PlanCheck("space", CheckOutcome.REFUSED, text)
        if total and usable - size_bytes < total * (1 - DISK_SHARE_MAX) and size_bytes:
            text = f"Broker {broker_id} would keep {in_bytes(usable - size_bytes)} free of {in_bytes(total)}."
            return PlanCheck("space", CheckOutcome.WARNING, text)
    if unknown:
        return PlanCheck("space", CheckOutcome.WARNING, f"Broker {_ids(unknown)} does not tell how much space it has.")
    return PlanCheck("space", CheckOutcome.OK, "There is space for what is copied.")


def _limit(
    facts: ReassignmentFacts, copies: Sequence[ReplicaCopy], throttle_bytes_per_s: int | None, *, unthrottled: bool
) -> PlanCheck:
    if not copies:
        return PlanCheck("limit", CheckOutcome.OK, "Nothing is copied.")
    if throttle_bytes_per_s is None and unthrottled:
        text = "No limit: the copies may take the whole network and disk from clients."
        return PlanCheck("limit", CheckOutcome.WARNING, text)
    if throttle_bytes_per_s is None:
        return PlanCheck("limit", CheckOutcome.REFUSED, "Give a limit in bytes per second, or say unthrottled.")
    if throttle_bytes_per_s <= facts.produced_bytes_per_s:
        text = (
            f"{in_bytes(throttle_bytes_per_s)}/s is not more than what is produced meanwhile "
            f"({in_bytes(facts.produced_bytes_per_s)}/s): the copies would never catch up. Raise it."
        )
        return PlanCheck("limit", CheckOutcome.WARNING, text)
    return PlanCheck("limit", CheckOutcome.OK, f"Limited to {in_bytes(throttle_bytes_per_s)}/s on each broker.")


def _blocked(copies: Sequence[ReplicaCopy]) -> PlanCheck:
    bad = [copy for copy in copies if copy.flag_on and copy.verdict == EstimateVerdict.BLOCKED]
    if bad:
        named = sorted({TopicPartition(copy.topic, copy.partition) for copy in bad}, key=str)
        text = f"{_names(named)}: a new replica could not join while the flag is on. {bad[0].reason} Turn it off first."
        return PlanCheck("blocked", CheckOutcome.WARNING, text)
    return PlanCheck("blocked", CheckOutcome.OK, "Every new replica finds where to begin.")


def _unknown(copies: Sequence[ReplicaCopy]) -> PlanCheck:
    bad = {TopicPartition(copy.topic, copy.partition) for copy in copies if copy.in_effect_bytes is None}
    bad -= {TopicPartition(c.topic, c.partition) for c in copies if c.verdict == EstimateVerdict.BLOCKED}
    if bad:
        return PlanCheck(
            "estimate", CheckOutcome.WARNING, f"{_names(sorted(bad, key=str))}: how much is copied is not known."
        )
    return PlanCheck("estimate", CheckOutcome.OK, "It is known how much is copied.")


def _thin(
    moves: Mapping[TopicPartition, PlannedMove], facts: ReassignmentFacts, copies: Sequence[ReplicaCopy]
) -> PlanCheck:
    """Whether the leader after the move holds local data."""
    thin_copies = {(TopicPartition(c.topic, c.partition), c.broker_id) for c in copies if _starts_thin(c)}
    thin = []
    for tp, move in moves.items():
        now = facts.now.get(tp)
        if now is None or tp.topic not in facts.tiered:
            continue
        stays = now.leader in move.target
        next_leader = move.target[0] if move.target[0] != move.before[0] or not stays else now.leader
        if next_leader == now.leader:
            continue
        own, leads = facts.local_bytes.get((tp, next_leader)), facts.local_bytes.get((tp, now.leader))
        held_back = own is not None and leads is not None and own < leads * THIN_SHARE
        if (tp, next_leader) in thin_copies or (next_leader in move.before and held_back):
            thin.append(tp)
    if thin:
        text = f"{_names(thin)}: the next leader holds little local data, so consumers behind it read from remote."
        return PlanCheck("thin-leader", CheckOutcome.WARNING, text)
    return PlanCheck("thin-leader", CheckOutcome.OK, "No thin leader.")


def _starts_thin(copy: ReplicaCopy) -> bool:
    return copy.flag_on and copy.verdict == EstimateVerdict.QUALIFIES


def _others(facts: ReassignmentFacts, *, limited: bool) -> PlanCheck:
    if facts.rates_set and limited:
        text = (
            f"Broker {_ids(facts.rates_set)} has a replication limit already, whose value Kafka does not tell, so it "
            "could not be put back: clear it with a plan of clear_throttle."
        )
        return PlanCheck("throttles", CheckOutcome.REFUSED, text)
    if facts.rates_set or facts.lists_set:
        where = [f"broker {b}" for b in facts.rates_set] + [f"topic {topic}" for topic in facts.lists_set]
        text = f"A limit is set already on {', '.join(where[:NAMED_MAX])}; it stays as it is."
        return PlanCheck("throttles", CheckOutcome.WARNING, text)
    return PlanCheck("throttles", CheckOutcome.OK, "No limit is set by others.")


def _age(*, stale: bool) -> PlanCheck:
    if stale:
        return PlanCheck("estimate-age", CheckOutcome.WARNING, "The estimate rests on old samples; look at their age.")
    return PlanCheck("estimate-age", CheckOutcome.OK, "The estimate rests on fresh samples.")


def _names(partitions: Sequence[TopicPartition]) -> str:
    named = ", ".join(f"{tp.topic}-{tp.partition}" for tp in partitions[:NAMED_MAX])
    return named if len(partitions) <= NAMED_MAX else f"{named} and {len(partitions) - NAMED_MAX} more"


def _ids(broker_ids: Iterable[int]) -> str:
    return ", ".join(str(b) for b in broker_ids)
