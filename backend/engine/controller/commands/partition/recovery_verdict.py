"""The choice of a leader after every replica that had all committed records came back from an unclean shutdown.

Apache Kafka 4.3 elects the last leader without reading its log, which may be on a new disk (KIP-966's second half,
the unclean recovery, is not built). Here no replica leads before the logs of all replicas in question have been
compared: the highest epoch of a last record wins, and among those the highest end, as in every election that compares
logs. Decisions alone: who asks and when is `broker.unclean_recovery`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from backend.engine.config import BrokerConfig
from backend.engine.controller.commands.command import ControllerResult
from backend.engine.controller.commands.config.topic_settings import effective_min_isr
from backend.engine.controller.commands.partition.elections import LocatedPartition, leaderless
from backend.engine.controller.commands.partition.eligible_leader_replicas import elr_enabled
from backend.engine.controller.commands.partition.partition_change import LogEnds, change_record, target_of
from backend.engine.controller.commands.partition.registered_directories import has_log
from backend.engine.controller.image.metadata_image import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    MetadataImage,
    PartitionRegistration,
)
from backend.protocol.messages import Message

# Partitions by the broker that is asked about its logs of them, and the answers by topic id and partition.
LogsToRead = Mapping[int, Sequence[LocatedPartition]]
LogEndsByPartition = Mapping[tuple[bytes, int], LogEnds]


class LogEndReader(Protocol):
    """The way to ask brokers for the ends of their logs."""

    async def ask(self, image: MetadataImage, logs: LogsToRead) -> LogEndsByPartition:
        """The log ends that brokers answer; a broker that does not answer in time is left out. Raises nothing."""
        ...


def logs_of_live_replicas(image: MetadataImage, partitions: Iterable[LocatedPartition]) -> LogsToRead:
    """Every live replica is asked."""
    by_broker: dict[int, list[LocatedPartition]] = {}
    for located in partitions:
        for broker in located[2].replicas:
            if image.is_active(broker):
                by_broker.setdefault(broker, []).append(located)
    return by_broker


def to_recover(image: MetadataImage) -> list[LocatedPartition]:
    """Partitions that wait for a comparison of logs."""
    if not elr_enabled(image):
        return []
    return [located for located in leaderless(image) if is_to_recover(located[2])]


def still_to_recover(image: MetadataImage, partitions: Iterable[LocatedPartition]) -> list[LocatedPartition]:
    """The partitions of these that still have to be recovered, in their present state."""
    kept = []
    for topic, index, _ in partitions:
        now = image.topics.get(topic.id)
        partition = now.partitions.get(index) if now else None
        if now is not None and partition is not None and is_to_recover(partition):
            kept.append((now, index, partition))
    return kept


def is_to_recover(partition: PartitionRegistration) -> bool:
    """Whether there is no leader and no eligible replica, but a last known one beside others."""
    leaderless = partition.leader == NO_LEADER and not partition.isr and not partition.elr
    return leaderless and bool(partition.last_known_elr) and len(partition.replicas) > 1


@dataclass(frozen=True, slots=True)
class RecoveryVerdict:
    """A partition's verdict: its leader (-1: none yet), and the replicas whose logs are still waited for."""

    leader: int
    # All that are needed by `min.insync.replicas` have been compared: as far as anybody can know nothing is lost.
    complete: bool
    waits_for: tuple[int, ...]


def judge(
    image: MetadataImage, partition: PartitionRegistration, ends: LogEnds, min_isr: int, *, expired: bool
) -> RecoveryVerdict:
    """`ends`: responses of replicas in their present registrations; `expired`: no replica is waited for any longer.

    A broker that came back with another disk has nothing to compare. All others that are remembered are waited for;
    after the limit as many as `min.insync.replicas` asks for are enough, since each committed record was on so many. A
    replica that is not remembered may lead as well: a better log than that of one that had all holds all too.
    """
    comparable = [replica for replica in partition.replicas if replica in ends and _may_lead(image, partition, replica)]
    candidates = [replica for replica in partition.last_known_elr if has_log(image, partition, replica)]
    silent = tuple(candidate for candidate in candidates if candidate not in comparable)
    answered = len(candidates) - len(silent)
    complete = answered >= min_isr
    if not answered or (silent and not (expired and complete)):
        return RecoveryVerdict(NO_LEADER, complete, silent)
    # Of equal logs the first in the replica list.
    return RecoveryVerdict(max(comparable, key=lambda replica: ends[replica]), complete, ())


def _may_lead(image: MetadataImage, partition: PartitionRegistration, replica: int) -> bool:
    return image.is_active(replica) and has_log(image, partition, replica)


@dataclass(frozen=True, slots=True)
class PartitionRecovery:
    """A judgement on one partition as it stood at a leader epoch."""

    topic_id: bytes
    index: int
    leader_epoch: int
    leader: int
    complete: bool


def elect_recovered(
    image: MetadataImage, config: BrokerConfig, recoveries: Sequence[PartitionRecovery]
) -> ControllerResult[tuple[PartitionRecovery, ...]]:
    """The best logs lead, where nothing has changed since they were compared: these recoveries."""
    records: list[Message] = []
    elected: list[PartitionRecovery] = []
    for recovery in recoveries:
        topic = image.topics.get(recovery.topic_id)
        partition = topic.partitions.get(recovery.index) if topic else None
        if topic is None or partition is None or not is_to_recover(partition):
            continue
        if partition.leader_epoch != recovery.leader_epoch:
            continue
        state = RECOVERED if recovery.complete else RECOVERING
        record = change_record(
            image,
            topic.id,
            recovery.index,
            partition,
            replace(target_of(partition), recovered_leader=recovery.leader, leader_recovery_state=state),
            min_isr=effective_min_isr(image, config, topic.name),
            acceptable=image.is_active,
        )
        if record is not None:
            records.append(record)
            elected.append(recovery)
    # A whole cluster may come back so: each election stands by itself.
    return ControllerResult(tuple(records), tuple(elected))


def brokers_named(verdicts: Iterable[RecoveryVerdict]) -> list[int]:
    """All that are still waited for."""
    return sorted({broker for verdict in verdicts for broker in verdict.waits_for})
