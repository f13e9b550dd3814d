"""The lost disks that a partition's records survive which were acknowledged to acks=all: texts and a number.

A record is acknowledged once it is on all of an ISR that has `min.insync.replicas` members, so one disk fewer than that
may be lost. Whether a copy that is left leads by itself is a matter of eligible leader replicas (KIP-966), and, after
an unclean end of all replicas, of comparing their logs, which Apache Kafka 4.3 does not do. docs/durability.md has it
as a table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
NO_LEADER: Final = -1
UNCLEAN_TOO: Final = (
    f"While all replicas in sync are down another may lead, without some of their records: {UNCLEAN_ELECTION} is true."
)
NOT_COMPARED: Final = (
    "A disk that is lost after a kill of all replicas may lose acknowledged records: Apache Kafka elects the last"
    " leader without a look at its log."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The values that the answer follows from. None: not known.

    `min_isr` is the setting in effect; `isr` and `leader` are None for a topic as a whole. `elr_level` is 0 where the
    cluster does not have the feature. `compares_logs`: the brokers are this program's, not Apache Kafka's.
    """

    replicas: int
    min_isr: int | None
    elr_level: int | None
    isr: Collection[int] | None = None
    leader: int | None = None
    unclean_election: bool = False
    tiered: bool = False
    compares_logs: bool = True


@dataclass(frozen=True, slots=True)
class Durability:
    """`disks`: how many may be lost at any time, all brokers stopped or not, with every acknowledged record there once
    the brokers are back, and nobody having to decide who leads; None: not known. `sentences`: the same in words, then
    what is so now.
    """

    disks: int | None
    sentences: tuple[str, ...]


def copies_of(
    config: Mapping[str, str | None] | None,
    feature_levels: Mapping[str, int] | None,
    *,
    replicas: int,
    embedded: bool,
    tiered: bool,
    isr: Collection[int] | None = None,
    leader: int | None = None,
) -> Copies:
    """From a topic's settings in effect and the cluster's feature levels by name; None: not read yet."""
    value = (config or {}).get(MIN_ISR)
    return Copies(
        replicas=replicas,
        min_isr=int(value) if value is not None and value.isascii() and value.isdigit() else None,
        elr_level=None if feature_levels is None else feature_levels.get(ELIGIBLE_LEADER_REPLICAS, 0),
        isr=isr,
        leader=leader,
        unclean_election=(config or {}).get(UNCLEAN_ELECTION) == "true",
        tiered=tiered,
        compares_logs=embedded,
    )


def durability(copies: Copies) -> Durability:
    """The losses that the partition survives, with the settings and the feature level of now."""
    if copies.replicas <= 1:
        disks, sentences = _one_replica(copies)
    elif copies.min_isr is None:
        disks, sentences = None, (f"Which losses it survives is not known: {MIN_ISR} has not been read yet.",)
    else:
        disks, sentences = _several_replicas(copies, copies.min_isr)
    return Durability(disks, (*sentences, *_now(copies)))


def _needed(copies: Copies, min_isr: int) -> int:
    """Replicas that a record acknowledged to acks=all is on: the setting, at most the replicas there are."""
    return max(1, min(min_isr, copies.replicas))


def _one_replica(copies: Copies) -> tuple[int | None, tuple[str, ...]]:
    lost = "A lost disk loses every record: there is 1 replica."
    # The log begins again in a later epoch, and remote segments are found by the epochs of the leader's own log.
    remote = "What the remote tier has of it then stays there, and cannot be read from the topic."
    return 0, (lost, remote) if copies.tiered else (lost,)


def _several_replicas(copies: Copies, min_isr: int) -> tuple[int | None, tuple[str, ...]]:
    needed = _needed(copies, min_isr)
    if needed == 1:
        only_sentence = (
            f"One lost disk may lose acknowledged records: {MIN_ISR} is {min_isr}, so the last replica in sync"
            " acknowledges by itself."
        )
        return 0, (only_sentence, UNCLEAN_TOO) if copies.unclean_election else (only_sentence,)
    survived = "any one disk" if needed == 2 else f"any {needed - 1} disks"
    settings = f"{copies.replicas} replicas, {MIN_ISR} {min_isr}"
    limit = _while_down(copies)
    if limit is None:
        return needed - 1, (f"Survives the loss of {survived}: {settings}.",)
    is_decided = copies.unclean_election or copies.elr_level is not None
    return 0 if is_decided else None, (
        f"Survives the loss of {survived} while the other replicas run: {settings}.",
        limit,
    )


def _while_down(copies: Copies) -> str | None:
    """The cost of a lost disk while other replicas are down; None: none."""
    if copies.unclean_election:
        return UNCLEAN_TOO
    if copies.elr_level is None:
        return f"Whether also while others are down is not known: the cluster has not told {ELIGIBLE_LEADER_REPLICAS}."
    if copies.elr_level >= 1:
        return None if copies.compares_logs else NOT_COMPARED
    lost = "If the disk of the last broker in sync is lost while the others are down,"
    cost = "nobody leads until an operator decides" if copies.compares_logs else "acknowledged records may be lost"
    return f"{lost} {cost}: {ELIGIBLE_LEADER_REPLICAS} is 0."


def _now(copies: Copies) -> tuple[str, ...]:
    """The meaning of the present ISR; empty while a broker more may go away."""
    if copies.isr is None:
        return ()
    who, several = _brokers(copies.isr), len(copies.isr) > 1
    if copies.leader == NO_LEADER:
        last = f"{who} {'were' if several else 'was'} the last in sync" if copies.isr else "no replica is in sync"
        return (f"Now nobody leads it, so it can be neither written nor read; {last}.",)
    if copies.replicas <= 1 or copies.min_isr is None or not copies.isr:
        return ()
    needed, in_sync = _needed(copies, copies.min_isr), len(copies.isr)
    only = f"Now only {who} {'are' if several else 'is'} in sync"
    if in_sync < needed:
        more = "another is" if needed - in_sync == 1 else f"{needed - in_sync} more are"
        risk = "" if several else ", and its disk may hold the only whole copy"
        return (f"{only}: acks=all is refused until {more}{risk}.",)
    if in_sync == 1:
        return (f"{only}: what it acknowledges is on its disk alone.",)
    if in_sync == needed:
        situation = "Now all replicas are in sync" if in_sync >= copies.replicas else only
        return (f"{situation}: when one of them goes away, acks=all is refused.",)
    return ()


def _brokers(ids: Collection[int]) -> str:
    """`broker 2`, `brokers 1 and 3`, `brokers 1, 2 and 3`."""
    names = [str(broker_id) for broker_id in sorted(ids)]
    if len(names) < 2:
        return f"broker {''.join(names)}"
    return f"brokers {', '.join(names[:-1])} and {names[-1]}"
