"""One change of a partition, as a record: election, ISR, ELR, replicas, completion of a reassignment.

The rules are those of Kafka's `PartitionChangeBuilder`, with eligible leader replicas (KIP-966) where the cluster has
them: a leader is taken from the ISR, from the ELR once the ISR is empty, or, when an unclean election is allowed and
nobody of those can lead, from the live replicas. No replica leads without the log that metadata refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from backend.engine.controller.commands.partition.eligible_leader_replicas import (
    NOBODY,
    Eligible,
    eligible_after,
    elr_enabled,
    last_known_elr,
    only_candidate,
)
from backend.engine.controller.commands.partition.registered_directories import has_log
from backend.engine.controller.image.metadata_image import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    RECOVERING,
    MetadataImage,
    PartitionRegistration,
)
from backend.engine.controller.image.replay import NO_LEADER_CHANGE
from backend.protocol import messages as m

AcceptableLeader = Callable[[int], bool]
# (epoch of the last record, log end offset) by replica.
LogEnds = Mapping[int, tuple[int, int]]


class Election(Enum):
    """The ways to choose a leader."""

    ONLINE = "online"  # keep the leader while it can lead
    PREFERRED = "preferred"  # the first replica if it can lead
    UNCLEAN = "unclean"  # also from outside ISR and ELR, at the price of records


@dataclass(frozen=True, slots=True)
class Target:
    """The state that a partition should have after the change."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    leader_recovery_state: int
    # Replicas that come back from an unclean shutdown, and such as will not come back with their log.
    unclean: Collection[int] = NOBODY
    forgotten: Collection[int] = NOBODY
    # The replicas' log ends, for an unclean election: the replica with the best log leads, else the first live one.
    log_ends: LogEnds = field(default_factory=dict)
    # An operator takes a replica without the log that metadata speaks of, if no other is left.
    any_log: bool = False
    # The replica with the best of all logs that may hold every committed record: leads, and nothing is lost.
    recovered_leader: int = NO_LEADER
    # Led when the whole cluster stopped: has what acks=1 wrote, and leads again where it may.
    last_leader: int = NO_LEADER


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


@dataclass(frozen=True, slots=True)
class Elected:
    """A leader or -1, the ISR and the eligible replicas that come with it."""

    leader: int
    isr: tuple[int, ...]
    eligible: Eligible
    unclean: bool = False


def elect(
    partition: PartitionRegistration,
    target: Target,
    eligible: Eligible,
    election: Election,
    acceptable: AcceptableLeader,
) -> Elected:
    """The leader that the partition gets (electPreferredLeader, electAnyLeader)."""
    leader = _clean_leader(partition, target, eligible, election, acceptable)
    if leader != NO_LEADER:
        if leader in target.isr:
            return Elected(leader, target.isr, eligible)
        return Elected(leader, (leader,), replace(eligible, elr=_without(eligible.elr, leader)))
    if target.recovered_leader != NO_LEADER and acceptable(target.recovered_leader):
        # The others keep what they have until enough of them are in sync again.
        leader = target.recovered_leader
        return Elected(leader, (leader,), Eligible((), _without(eligible.last_known, leader)))
    only = only_candidate(target.isr, target.replicas, eligible)
    if only != NO_LEADER and acceptable(only):
        return Elected(only, (only,), Eligible(), unclean=True)
    if election is Election.UNCLEAN:
        live = [replica for replica in target.replicas if acceptable(replica)]
        if live:
            # Of equal logs, and where nothing is known, the first.
            leader = max(live, key=lambda replica: target.log_ends.get(replica, _NOTHING_KNOWN))
            return Elected(leader, (leader,), Eligible(), unclean=True)
    return Elected(NO_LEADER, target.isr, eligible)


_NOTHING_KNOWN: Final = (-1, -1)


def _without(members: tuple[int, ...], leaving: int) -> tuple[int, ...]:
    return tuple(member for member in members if member != leaving)


def _clean_leader(
    partition: PartitionRegistration,
    target: Target,
    eligible: Eligible,
    election: Election,
    acceptable: AcceptableLeader,
) -> int:
    candidates = target.isr or eligible.elr

    def valid(replica: int) -> bool:
        return replica in candidates and acceptable(replica)

    if election is Election.PREFERRED and target.replicas and valid(target.replicas[0]):
        return target.replicas[0]
    if valid(partition.leader):
        return partition.leader
    if valid(target.last_leader):
        return target.last_leader
    return next((replica for replica in target.replicas if valid(replica)), NO_LEADER)


def change_record(
    image: MetadataImage,
    topic_id: bytes,
    index: int,
    partition: PartitionRegistration,
    target: Target,
    *,
    min_isr: int,
    acceptable: AcceptableLeader,
    election: Election = Election.ONLINE,
) -> m.PartitionChangeRecord | None:
    """The record that takes `partition` to `target` (reassignment completed, leader elected), or None for no change.

    `min_isr` is the topic's effective one (`topic_settings.effective_min_isr`).
    """

    def can_lead(replica: int) -> bool:
        return acceptable(replica) and has_log(image, partition, replica)

    target = complete_reassignment(target)
    enabled = elr_enabled(image)
    eligible = Eligible()
    if enabled:
        eligible = eligible_after(
            partition, target.isr, target.replicas, min_isr, unclean=target.unclean, forgotten=target.forgotten
        )
    elected = elect(partition, target, eligible, election, can_lead)
    if elected.leader != NO_LEADER:
        elected = replace(elected, eligible=_with_logs(partition, elected.eligible))
    if target.any_log and elected.leader == NO_LEADER:
        elected = elect(partition, target, eligible, election, acceptable)
    record = m.PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    if elected.leader != partition.leader:
        record.leader = elected.leader
    # Without ELR the last member of an ISR is kept as it was: it says who may lead again.
    if (elected.isr or enabled) and elected.isr != partition.isr:
        record.isr = list(elected.isr)
    last_known = last_known_elr(partition, elected.isr, elected.eligible) if enabled else ()
    if elected.eligible.elr != partition.elr:
        record.eligible_leader_replicas = list(elected.eligible.elr)
    if last_known != partition.last_known_elr:
        record.last_known_elr = list(last_known)
    if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(target.replicas):
        # A removed replica must not be taken for a member any longer: new leader epoch, same leader.
        record.leader = partition.leader
    if target.replicas and target.replicas != partition.replicas:
        record.replicas = list(target.replicas)
        record.directories = _directories(image, partition, target.replicas)
    elif elected.leader != NO_LEADER and not has_log(image, partition, elected.leader):
        record.directories = _with_directory(partition, elected.leader, default_directory(image, elected.leader))
    if target.removing != partition.removing_replicas:
        record.removing_replicas = list(target.removing)
    if target.adding != partition.adding_replicas:
        record.adding_replicas = list(target.adding)
    recovery = RECOVERING if elected.unclean else target.leader_recovery_state
    if recovery != partition.leader_recovery_state:
        record.leader_recovery_state = recovery
    return None if record == m.PartitionChangeRecord(partition_id=index, topic_id=topic_id) else record


def _with_logs(partition: PartitionRegistration, eligible: Eligible) -> Eligible:
    """Removes replicas whose log cannot be used, of a partition with a leader: only a replica outside ISR and ELR is
    copied again. Kafka keeps them, and an ISR below min.insync.replicas for as long.
    """
    elr = tuple(replica for replica in eligible.elr if not partition.is_lost(replica))
    return Eligible(elr, tuple(replica for replica in eligible.last_known if not partition.is_lost(replica)))


def _directories(image: MetadataImage, partition: PartitionRegistration, replicas: Sequence[int]) -> list[bytes]:
    former = dict(zip(partition.replicas, partition.directories, strict=False))
    return [former.get(replica) or default_directory(image, replica) for replica in replicas]


def _with_directory(partition: PartitionRegistration, replica: int, directory: bytes) -> list[bytes]:
    return [directory if member == replica else partition.directory_of(member) for member in partition.replicas]


def default_directory(image: MetadataImage, broker_id: int) -> bytes:
    """The log directory of a new replica as far as the controller can know it (KIP-858)."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.log_dirs:
        return DIRECTORY_MIGRATING
    usable = [directory for directory in broker.log_dirs if directory not in broker.cordoned_log_dirs]
    return usable[0] if len(usable) == 1 else DIRECTORY_UNASSIGNED
