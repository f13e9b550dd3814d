"""One change of a partition, as a record: election, ISR, replicas, completion of a reassignment.

The rules are those of Kafka's `PartitionChangeBuilder`, without eligible leader replicas (KIP-966 stays off): a leader
is taken from the ISR, or, when an unclean election is allowed and nobody of the ISR can lead, from the live replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from backend.engine.controller.image import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    RECOVERING,
    MetadataImage,
    PartitionRegistration,
)
from backend.engine.controller.replay import NO_LEADER_CHANGE, NO_RECOVERY_CHANGE
from backend.protocol import messages as m

AcceptableLeader = Callable[[int], bool]


class Election(Enum):
    """How to choose a leader."""

    ONLINE = "online"  # keep the leader while it can lead
    PREFERRED = "preferred"  # the first replica if it can lead
    UNCLEAN = "unclean"  # also from outside the ISR, at the price of records


@dataclass(frozen=True, slots=True)
class Target:
    """What a partition should become."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    leader_recovery_state: int


def target_of(partition: PartitionRegistration) -> Target:
    """The partition as it is: the start of every change."""
    return Target(
        partition.isr,
        partition.replicas,
        partition.adding_replicas,
        partition.removing_replicas,
        partition.leader_recovery_state,
    )


def complete_reassignment(target: Target) -> Target:
    """The target with a running reassignment finished, if its ISR allows that (PartitionReassignmentReplicas)."""
    if not target.adding and not target.removing:
        return target
    isr = tuple(replica for replica in target.isr if replica not in target.removing)
    replicas = tuple(replica for replica in target.replicas if replica not in target.removing)
    if not isr or not replicas or not set(target.adding) <= set(isr):
        return target
    # Fewer replicas than before: none of those that stay may be missing, or redundancy would be lost twice.
    if len(target.adding) < len(target.removing) and not set(replicas) <= set(isr):
        return target
    return replace(target, isr=isr, replicas=replicas, adding=(), removing=())


def elect(
    partition: PartitionRegistration, target: Target, election: Election, acceptable: AcceptableLeader
) -> tuple[int, bool]:
    """(leader or -1, whether it was an unclean election)."""

    def valid(replica: int) -> bool:
        return replica in target.isr and acceptable(replica)

    if election is Election.PREFERRED and target.replicas and valid(target.replicas[0]):
        return target.replicas[0], False
    if valid(partition.leader):
        return partition.leader, False
    clean = next((replica for replica in target.replicas if valid(replica)), None)
    if clean is not None:
        return clean, False
    if election is Election.UNCLEAN:
        unclean = next((replica for replica in target.replicas if acceptable(replica)), None)
        if unclean is not None:
            return unclean, True
    return NO_LEADER, False


def change_record(
    image: MetadataImage,
    topic_id: bytes,
    index: int,
    partition: PartitionRegistration,
    target: Target,
    *,
    acceptable: AcceptableLeader,
    election: Election = Election.ONLINE,
) -> m.PartitionChangeRecord | None:
    """The record that takes `partition` to `target` (reassignment completed, leader elected), or None for no change."""

    def can_lead(replica: int) -> bool:
        return acceptable(replica) and not partition.is_lost(replica)

    target = complete_reassignment(target)
    record = m.PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    leader, unclean = elect(partition, target, election, can_lead)
    recovery = target.leader_recovery_state
    isr: tuple[int, ...] = target.isr
    if leader != partition.leader:
        record.leader = leader
        if unclean:
            isr = (leader,)
            recovery = RECOVERING
    # Without a live member an ISR is kept as it was: it says who may lead again.
    if isr and isr != partition.isr:
        record.isr = list(isr)
    if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(target.replicas):
        # A removed replica must not be taken for a member any longer: new leader epoch, same leader.
        record.leader = partition.leader
    if target.replicas and target.replicas != partition.replicas:
        record.replicas = list(target.replicas)
        record.directories = _directories(image, partition, target.replicas)
    if target.removing != partition.removing_replicas:
        record.removing_replicas = list(target.removing)
    if target.adding != partition.adding_replicas:
        record.adding_replicas = list(target.adding)
    if recovery != partition.leader_recovery_state:
        record.leader_recovery_state = recovery
    return None if _is_no_change(record) else record


def _is_no_change(record: m.PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == NO_RECOVERY_CHANGE
        and record.isr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.directories is None
    )


def _directories(image: MetadataImage, partition: PartitionRegistration, replicas: Sequence[int]) -> list[bytes]:
    known = dict(zip(partition.replicas, partition.directories, strict=False))
    return [known.get(replica) or default_directory(image, replica) for replica in replicas]


def default_directory(image: MetadataImage, broker_id: int) -> bytes:
    """The log directory of a new replica as far as the controller can know it (KIP-858)."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.log_dirs:
        return DIRECTORY_MIGRATING
    usable = [directory for directory in broker.log_dirs if directory not in broker.cordoned_log_dirs]
    return usable[0] if len(usable) == 1 else DIRECTORY_UNASSIGNED
