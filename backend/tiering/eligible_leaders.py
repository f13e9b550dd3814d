"""Possible leaders of a partition after a loss: ISR, eligible leader replicas, last known ones (KIP-966). Pure.

The cluster keeps the two lists only while the ISR has fewer than `min.insync.replicas` members (or than there are
replicas): so nobody has to ask for them otherwise, and they are empty.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from backend.tiering.durability import MIN_ISR, NO_LEADER
from backend.tiering.ids import TopicPartition

NOT_ASKED: Final = "The brokers were not asked yet."
# One that runs and does not lead cannot use its log.
BACK: Final = " once it is back with its log"
OFF: Final = "The cluster keeps neither list: eligible.leader.replicas.version is at level 0."
LEFT_OUT: Final = "More partitions are below min.insync.replicas than are asked for."


@dataclass(frozen=True, slots=True)
class EligibleLeaders:
    """`eligible_leader_replicas` (ELR) have every acknowledged record; of `last_known_elr` it is not sure: they stopped
    uncleanly. None: not known, and `cause` says why; empty with a `cause`: the cluster keeps none. `seen_ms`: as of
    when, None: never."""

    eligible_leader_replicas: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None
    cause: str | None
    seen_ms: int | None


def below_min_isr(config: Mapping[str, str | None] | None, replicas: Collection[int], isr: Collection[int]) -> bool:
    """Whether the cluster may keep the lists; `config`: the topic's settings in effect, None: not known."""
    value = (config or {}).get(MIN_ISR)
    least = int(value) if value is not None and value.isascii() and value.isdigit() else len(replicas)
    return len(isr) < min(least, len(replicas))


def eligible_leaders(
    reported: Mapping[str, Any] | None, partition: TopicPartition, *, kept: bool, elr_level: int | None
) -> EligibleLeaders:
    """Returns those of one partition. `reported`, by the backend: `seen_ms`, `cause` of a failed query, `complete`, and
    `rows` of (topic, partition, ELR, last known ELR) that are not empty. `kept`: as `below_min_isr` says;
    `elr_level`: the cluster's level of eligible.leader.replicas.version, None: not known."""
    seen_ms = None if reported is None else reported.get("seen_ms")
    if reported is None or seen_ms is None:
        return EligibleLeaders(None, None, NOT_ASKED, None)
    for topic, number, elr, last_known in reported["rows"]:
        if (topic, number) == (partition.topic, partition.partition):
            return EligibleLeaders(tuple(elr), tuple(last_known), None, seen_ms)
    if elr_level == 0:
        return EligibleLeaders((), (), OFF, seen_ms)
    if kept and reported.get("cause"):
        return EligibleLeaders(None, None, str(reported["cause"]), seen_ms)
    if kept and not reported["complete"]:
        return EligibleLeaders(None, None, LEFT_OUT, seen_ms)
    return EligibleLeaders((), (), None, seen_ms)


def next_leader(isr: Collection[int], leader: int, eligible: EligibleLeaders) -> str:
    """In a sentence: who leads once the leader is lost, or once who is waited for is back."""
    others = sorted(set(isr) - {leader})
    elr, last_known = eligible.eligible_leader_replicas, eligible.last_known_elr
    lost = "" if leader == NO_LEADER else f"If broker {leader} is lost, "
    if others:
        return _joined(lost, f"broker {_or(others)} leads{'' if lost else BACK}: it is in the ISR")
    if elr is None or last_known is None:
        return _joined(lost, "who else may lead is not known")
    if elr:
        when = " once it is up" if lost else BACK
        return _joined(lost, f"broker {_or(elr)} leads{when}: it is eligible, with every acknowledged record")
    if lost:
        return _joined(lost, "nobody leads until it is back: it alone is known to have every acknowledged record")
    if len(last_known) > 1:
        return f"The logs of broker {_and(last_known)} are compared, and the best of them leads: all stopped uncleanly."
    if last_known:
        return f"Broker {last_known[0]} was in sync last: nobody leads before it is back."
    return "No replica is known to have every acknowledged record."


def _joined(first: str, rest: str) -> str:
    return f"{first}{rest}." if first else f"{rest[0].upper()}{rest[1:]}."


def _or(brokers: Collection[int]) -> str:
    return " or ".join(map(str, sorted(brokers)))


def _and(brokers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))
