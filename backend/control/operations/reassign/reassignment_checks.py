"""What speaks against a reassignment. Pure: the facts are gathered by the kind, the sentences say what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from backend.control.formatting import in_bytes
from backend.control.operations.lifecycle.plan_draft import Check, Outcome
from backend.control.operations.reassign.copy_estimate import Copy
from backend.control.operations.reassign.partition_moves import Aim, Now
from backend.tiering.estimate import Verdict
from backend.tiering.ids import TopicPartition

NAMED_MAX: Final = 5
# A disk that is fuller than this after the move leaves no room for what is produced meanwhile.
DISK_SHARE_MAX: Final = 0.9
# A leader with less than half of what the present one holds locally sends its readers to the remote tier.
THIN_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known when a move is judged; a missing key or None: not known."""

    now: Mapping[TopicPartition, Now]
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
    aims: Mapping[TopicPartition, Aim],
    facts: Facts,
    copies: Sequence[Copy],
    throttle_bytes_per_s: int | None,
    *,
    unthrottled: bool = False,
    stale: bool = False,
) -> list[Check]:
    """Worst first; a plan without refusals can be confirmed."""
    found = [
        _change(aims),
        _brokers(aims, facts),
        _space(facts, copies),
        _in_sync(aims, facts),
        _thin(aims, facts, copies),
        _limit(facts, copies, throttle_bytes_per_s, unthrottled=unthrottled),
        _blocked(copies),
        _tier(aims, facts),
        _in_progress(aims, facts),
        _leaders(aims, facts),
        _unknown(copies),
        _others(facts, limited=bool(copies) and throttle_bytes_per_s is not None),
        _age(stale=stale),
    ]
    order = [Outcome.REFUSED, Outcome.WARNING, Outcome.OK]
    return sorted(found, key=lambda check: order.index(check.outcome))


def _change(aims: Mapping[TopicPartition, Aim]) -> Check:
    moved = sum(aim.before != aim.target for aim in aims.values())
    if not moved:
        return Check("change", Outcome.REFUSED, "Every partition has these replicas already: there is nothing to do.")
    return Check("change", Outcome.OK, f"{moved} of {len(aims)} partitions change.")


def _brokers(aims: Mapping[TopicPartition, Aim], facts: Facts) -> Check:
    asked = {b for aim in aims.values() for b in aim.target}
    unknown = sorted(asked - facts.registered)
    if unknown:
        known = ", ".join(map(str, sorted(facts.registered)))
        return Check("brokers", Outcome.REFUSED, f"There is no broker {_ids(unknown)}; registered are {known}.")
    twice = [tp for tp, aim in aims.items() if len(set(aim.target)) < len(aim.target)]
    if twice:
        return Check("brokers", Outcome.REFUSED, f"{_names(twice)}: a broker stands twice in the list.")
    joining = {b for aim in aims.values() for b in aim.adding}
    away = sorted(joining - facts.alive)
    if away:
        text = f"Broker {_ids(away)} is not alive and cannot take replicas: start it, or choose another."
        return Check("brokers", Outcome.REFUSED, text)
    return Check("brokers", Outcome.OK, "Every broker that takes replicas is alive.")


def _leaders(aims: Mapping[TopicPartition, Aim], facts: Facts) -> Check:
    without = [tp for tp, aim in aims.items() if aim.adding and (tp not in facts.now or facts.now[tp].leader < 0)]
    if without:
        text = f"{_names(without)}: no leader to copy from. Bring a replica back first."
        return Check("leader", Outcome.REFUSED, text)
    return Check("leader", Outcome.OK, "Every partition has a leader to copy from.")


def _in_progress(aims: Mapping[TopicPartition, Aim], facts: Facts) -> Check:
    moving = [tp for tp in aims if tp in facts.now and (facts.now[tp].adding or facts.now[tp].removing)]
    if moving:
        text = f"{_names(moving)}: a move is in progress. Wait for its end, or cancel it."
        return Check("in-progress", Outcome.REFUSED, text)
    if facts.running_plan is not None:
        text = f"Plan {facts.running_plan} is moving replicas: this one can be executed after its end."
        return Check("in-progress", Outcome.WARNING, text)
    return Check("in-progress", Outcome.OK, "Nothing else moves these partitions.")


def _in_sync(aims: Mapping[TopicPartition, Aim], facts: Facts) -> Check:
    below, short, leaving = [], [], []
    for tp, aim in aims.items():
        now, least = facts.now.get(tp), facts.min_isr.get(tp.topic, 1)
        if now is None:
            continue
        if len(aim.target) < least:
            short.append(tp)
        elif aim.before != aim.target and len(now.isr) < min(least, len(aim.before)):
            below.append(tp)
        elif aim.removing and not aim.adding and len(set(now.isr) & set(aim.target)) < least:
            leaving.append(tp)
    if short:
        text = f"{_names(short)}: fewer replicas than min.insync.replicas, producers with acks=all would be refused."
        return Check("in-sync", Outcome.REFUSED, text)
    if below:
        text = f"{_names(below)}: fewer in sync than min.insync.replicas. Bring the replicas back before you move them."
        return Check("in-sync", Outcome.REFUSED, text)
    if leaving:
        text = f"{_names(leaving)}: the replicas that stay are not in sync. Wait for them, or remove others."
        return Check("in-sync", Outcome.REFUSED, text)
    behind = [tp for tp in aims if tp in facts.now and set(facts.now[tp].isr) != set(facts.now[tp].replicas)]
    if behind:
        return Check("in-sync", Outcome.WARNING, f"{_names(behind)}: not all replicas are in sync now.")
    return Check("in-sync", Outcome.OK, "All replicas are in sync.")


def _tier(aims: Mapping[TopicPartition, Aim], facts: Facts) -> Check:
    bad = {b for tp, aim in aims.items() if tp.topic in facts.tiered for b in aim.adding if b in facts.without_tier}
    if bad:
        text = f"Broker {_ids(sorted(bad))} has no tiered storage: a tiered topic's replica cannot live there."
        return Check("tier", Outcome.REFUSED, text)
    return Check("tier", Outcome.OK, "Every broker that takes a tiered replica has tiered storage.")


def _space(facts: Facts, copies: Sequence[Copy]) -> Check:
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
            return Check("space", Outcome.REFUSED, text)
        if total and usable - size_bytes < total * (1 - DISK_SHARE_MAX) and size_bytes:
            text = f"Broker {broker_id} would keep {in_bytes(usable - size_bytes)} free of {in_bytes(total)}."
            return Check("space", Outcome.WARNING, text)
    if unknown:
        return Check("space", Outcome.WARNING, f"Broker {_ids(unknown)} does not tell how much space it has.")
    return Check("space", Outcome.OK, "There is space for what is copied.")


def _limit(facts: Facts, copies: Sequence[Copy], throttle_bytes_per_s: int | None, *, unthrottled: bool) -> Check:
    if not copies:
        return Check("limit", Outcome.OK, "Nothing is copied.")
    if throttle_bytes_per_s is None and unthrottled:
        text = "No limit: the copies may take the whole network and disk from clients."
        return Check("limit", Outcome.WARNING, text)
    if throttle_bytes_per_s is None:
        return Check("limit", Outcome.REFUSED, "Give a limit in bytes per second, or say unthrottled.")
    if throttle_bytes_per_s <= facts.produced_bytes_per_s:
        text = (
            f"{in_bytes(throttle_bytes_per_s)}/s is not more than what is produced meanwhile "
            f"({in_bytes(facts.produced_bytes_per_s)}/s): the copies would never catch up. Raise it."
        )
        return Check("limit", Outcome.WARNING, text)
    return Check("limit", Outcome.OK, f"Limited to {in_bytes(throttle_bytes_per_s)}/s on each broker.")


def _blocked(copies: Sequence[Copy]) -> Check:
    bad = [copy for copy in copies if copy.flag_on and copy.verdict == Verdict.BLOCKED]
    if bad:
        named = sorted({TopicPartition(copy.topic, copy.partition) for copy in bad}, key=str)
        text = f"{_names(named)}: a new replica could not join while the flag is on. {bad[0].reason} Turn it off first."
        return Check("blocked", Outcome.WARNING, text)
    return Check("blocked", Outcome.OK, "Every new replica finds where to begin.")


def _unknown(copies: Sequence[Copy]) -> Check:
    bad = {TopicPartition(copy.topic, copy.partition) for copy in copies if copy.in_effect_bytes is None}
    bad -= {TopicPartition(c.topic, c.partition) for c in copies if c.verdict == Verdict.BLOCKED}
    if bad:
        return Check("estimate", Outcome.WARNING, f"{_names(sorted(bad, key=str))}: how much is copied is not known.")
    return Check("estimate", Outcome.OK, "It is known how much is copied.")


def _thin(aims: Mapping[TopicPartition, Aim], facts: Facts, copies: Sequence[Copy]) -> Check:
    """Whoever leads after the move, does it hold local data?"""
    thin_copies = {(TopicPartition(c.topic, c.partition), c.broker_id) for c in copies if _starts_thin(c)}
    thin = []
    for tp, aim in aims.items():
        now = facts.now.get(tp)
        if now is None or tp.topic not in facts.tiered:
            continue
        stays = now.leader in aim.target
        next_leader = aim.target[0] if aim.target[0] != aim.before[0] or not stays else now.leader
        if next_leader == now.leader:
            continue
        own, leads = facts.local_bytes.get((tp, next_leader)), facts.local_bytes.get((tp, now.leader))
        held_back = own is not None and leads is not None and own < leads * THIN_SHARE
        if (tp, next_leader) in thin_copies or (next_leader in aim.before and held_back):
            thin.append(tp)
    if thin:
        text = f"{_names(thin)}: the next leader holds little local data, so consumers behind it read from remote."
        return Check("thin-leader", Outcome.WARNING, text)
    return Check("thin-leader", Outcome.OK, "No thin leader.")


def _starts_thin(copy: Copy) -> bool:
    return copy.flag_on and copy.verdict == Verdict.QUALIFIES


def _others(facts: Facts, *, limited: bool) -> Check:
    if facts.rates_set and limited:
        text = (
            f"Broker {_ids(facts.rates_set)} has a replication limit already, whose value Kafka does not tell, so it "
            "could not be put back: clear it with a plan of clear_throttle."
        )
        return Check("throttles", Outcome.REFUSED, text)
    if facts.rates_set or facts.lists_set:
        where = [f"broker {b}" for b in facts.rates_set] + [f"topic {topic}" for topic in facts.lists_set]
        text = f"A limit is set already on {', '.join(where[:NAMED_MAX])}; it stays as it is."
        return Check("throttles", Outcome.WARNING, text)
    return Check("throttles", Outcome.OK, "No limit is set by others.")


def _age(*, stale: bool) -> Check:
    if stale:
        return Check("estimate-age", Outcome.WARNING, "The estimate rests on old samples; look at their age.")
    return Check("estimate-age", Outcome.OK, "The estimate rests on fresh samples.")


def _names(found: Sequence[TopicPartition]) -> str:
    named = ", ".join(f"{tp.topic}-{tp.partition}" for tp in found[:NAMED_MAX])
    return named if len(found) <= NAMED_MAX else f"{named} and {len(found) - NAMED_MAX} more"


def _ids(broker_ids: Iterable[int]) -> str:
    return ", ".join(str(b) for b in broker_ids)
