"""Eligible leader replicas (ELR): they may lead a partition without loss although they are out of sync (KIP-966).

The high watermark does not move while the ISR is smaller than `min.insync.replicas`. So a replica that
leaves such an ISR, or makes it that small by leaving, keeps every committed record and may lead once the ISR is empty:
it is in the ELR. A replica that comes back from an unclean shutdown may have lost records that were not flushed: it
leaves ISR and ELR, and is remembered as last known ELR until the ISR is large enough again. Apache Kafka 4.3 remembers
the last leader only, and elects it without reading its log; here `recovery_verdict` compares the logs of all that are
remembered (decision 25).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from backend.engine.controller.commands.cluster_bootstrap import ELIGIBLE_LEADER_REPLICAS
from backend.engine.controller.image.metadata_image import NO_LEADER, MetadataImage, PartitionRegistration

NOBODY: Collection[int] = frozenset()


def elr_enabled(image: MetadataImage) -> bool:
    """Whether the cluster keeps eligible leader replicas: level 1 of `eligible.leader.replicas.version`."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1


@dataclass(frozen=True, slots=True)
class Eligible:
    """Replicas outside the ISR by what is known of their logs; the two share no member."""

    # Have every committed record.
    elr: tuple[int, ...] = ()
    # Had every committed record when they were last seen, before an unclean shutdown.
    last_known: tuple[int, ...] = ()


def eligible_after(
    partition: PartitionRegistration,
    isr: Collection[int],
    replicas: Collection[int],
    min_isr: int,
    *,
    unclean: Collection[int] = NOBODY,
    forgotten: Collection[int] = NOBODY,
) -> Eligible:
    """The eligible replicas once the partition has these replicas and this ISR (maybePopulateTargetElr).

    `unclean` are replicas that come back from an unclean shutdown, `forgotten` such as will not come back with their
    log: they are neither eligible nor remembered.
    """
    if len(isr) >= min_isr:
        return Eligible()
    excluded = {*isr, *forgotten}
    had_all = {*partition.elr, *partition.isr}
    elr = [replica for replica in replicas if replica in had_all and replica not in excluded and replica not in unclean]
    candidates = had_all | set(partition.last_known_elr)
    last_known = [
        replica for replica in replicas if replica in candidates and replica not in excluded and replica not in elr
    ]
    return Eligible(tuple(sorted(elr)), tuple(sorted(last_known)))


def last_known_elr(partition: PartitionRegistration, isr: Collection[int], eligible: Eligible) -> tuple[int, ...]:
    """The last known ELR of the partition: with an empty ISR the last leader stands first, also while it is eligible
    (maybeUpdateLastKnownLeader).
    """
    if isr:
        return eligible.last_known
    last_leader = partition.leader if partition.isr else next(iter(partition.last_known_elr), NO_LEADER)
    if last_leader in (*eligible.elr, *eligible.last_known):
        return (last_leader, *(replica for replica in eligible.last_known if replica != last_leader))
    return eligible.last_known


def only_candidate(isr: Collection[int], replicas: Collection[int], eligible: Eligible) -> int:
    """The only replica of a partition, which leads again after an unclean shutdown, or -1.

    There is no other log to compare it with; where there are others, `recovery_verdict` compares them all.
    """
    only_replica = not isr and not eligible.elr and len(replicas) == 1
    return eligible.last_known[0] if only_replica and eligible.last_known else NO_LEADER
