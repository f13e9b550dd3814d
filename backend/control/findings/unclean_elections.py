"""Leaders that lack acknowledged records, or were elected outside of the ISR: seen by comparing samples. Pure.

Kafka does not report an unclean election. Two facts show one: a leader of a newer epoch whose log ends below the high
watermark that was sampled before, which no election from the ISR can bring; and a leader whose epoch is the next after
that of a partition without a leader and that could not lead by its ISR and eligible replicas, which nothing can join
while there is no leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from backend.control.findings.endangered_partitions import EndangeredPartition
from backend.control.findings.leaderless_partitions import LeaderlessPartition, LeaderlessPartitions
from backend.control.gateway.requests.eligible_replica_requests import EligibleReplicas
from backend.store.writes.samples import PartitionSample, ReplicaSample
from backend.tiering.ids import TopicPartition

# Elections that lack most stay: 400 bytes each.
ELECTIONS_MAX: Final = 1_000
# A finding for an hour, and for as long as a broker that has the records has not cut its log.
SHOWN_FOR_MS: Final = 3_600_000
PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class UncleanElection:
    """Of one partition. `log_end_offset`: where the new leader's log ended; `acknowledged_offset`: the last sampled
    high watermark. `holders`: replicas with more than the leader had; `unsaved`: those that still may have it.
    `none_in_sync`: no replica was in the ISR or eligible, so that the embedded engine had compared logs.
    """

    topic: str
    partition: int
    topic_id: str
    at_ms: int
    leader: int
    leader_epoch: int
    log_end_offset: int
    acknowledged_offset: int | None
    former_leader: int | None
    holders: tuple[int, ...] = ()
    unsaved: tuple[int, ...] = ()
    none_in_sync: bool = False

    @property
    def lost(self) -> int:
        """Acknowledged records that the leader lacks, as far as was sampled."""
        return max(0, (self.acknowledged_offset or 0) - self.log_end_offset)

    def evidence(self) -> dict[str, Any]:
        """As a finding stores it; `election_of_evidence` reads it."""
        return {
            "topic_id": self.topic_id,
            "at_ms": self.at_ms,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "from_offset": self.log_end_offset,
            "to_offset": self.acknowledged_offset,
            "former_leader": self.former_leader,
            "holders": list(self.holders),
            "unsaved": list(self.unsaved),
        }


@dataclass(frozen=True, slots=True)
class LedBefore:
    """A partition as it was before it had no leader, or before the leader that has not answered yet.

    `epoch`: the newest without that leader. `may_lead`: its ISR and eligible replicas, `confirmed` as soon as a later
    sample shows that it had no leader when they were asked for. `leaderless_since_ms`: the first sample without a
    leader; the log end of a replica that answers after that is final. `log_end_offsets`: those that were read of
    replicas while there was no leader, by broker.
    """

    leader: int | None
    epoch: int
    high_watermark: int | None
    may_lead: frozenset[int] = frozenset()
    confirmed: frozenset[int] = frozenset()
    leaderless_since_ms: int | None = None
    log_end_offsets: Mapping[int, int] = field(default_factory=dict)
    none_in_sync: bool = False


@dataclass(frozen=True, slots=True)
class ElectionMemory:
    """Elections that are remembered, and the partitions that wait for one."""

    elections: Mapping[PartitionKey, UncleanElection] = field(default_factory=dict)
    waiting: Mapping[PartitionKey, LedBefore] = field(default_factory=dict)

    def next(
        self,
        at_ms: int,
        partitions: Iterable[PartitionSample],
        replicas: Mapping[tuple[str, int, int], ReplicaSample],
        last_partitions: Mapping[PartitionKey, PartitionSample],
        eligible: Mapping[TopicPartition, EligibleReplicas],
        endangered: Mapping[TopicPartition, EndangeredPartition] | None = None,
        leaderless: LeaderlessPartitions | None = None,
    ) -> ElectionMemory:
        """With a newer round of samples; `last_partitions` are those of the round before. `endangered`: partitions
        without a leader whose logs were compared; `leaderless`: those that had none between two rounds.
        """
        elections: dict[PartitionKey, UncleanElection] = {}
        waiting: dict[PartitionKey, LedBefore] = {}
        for row in partitions:
            key = row.topic, row.partition
            led = self._led_before(row, last_partitions.get(key))
            election = None
            if row.leader < 0:
                tp = TopicPartition(*key)
                led = _without_leader(at_ms, led or LedBefore(None, row.leader_epoch, None), row, eligible.get(tp))
                waiting[key] = _with_log_ends(led, (endangered or {}).get(tp))
            elif led is not None and row.leader_epoch > led.epoch:
                led = _between_rounds(led, row, (leaderless or {}).get(TopicPartition(*key)))
                if row.answered_ms is not None or row.log_end_offset is None:
                    waiting[key] = led
                else:
                    election = _election(at_ms, led, row, replicas)
            before = self.elections.get(key)
            if before is not None and (election is None or not election.lost):
                election = _remembered(before, at_ms, row) or election
            if election is not None:
                elections[key] = election
        return ElectionMemory(_limited(elections), waiting)

    def _led_before(self, row: PartitionSample, before: PartitionSample | None) -> LedBefore | None:
        """The partition before its present leader, or before it lost the last one; None: nothing has changed."""
        if before is None or before.topic_id != row.topic_id:
            return None
        led = self.waiting.get((row.topic, row.partition))
        if led is None and (row.leader < 0 or before.leader_epoch < row.leader_epoch):
            leader = before.leader if before.leader >= 0 else None
            return LedBefore(leader, before.leader_epoch, before.high_watermark)
        return led


def _without_leader(at_ms: int, led: LedBefore, row: PartitionSample, lists: EligibleReplicas | None) -> LedBefore:
    eligible = () if lists is None else (*lists.elr, *lists.last_known)
    confirmed: frozenset[int] = frozenset()
    if led.epoch == row.leader_epoch:
        confirmed = led.may_lead or led.confirmed
    may_lead = frozenset((*row.isr, *eligible))
    since_ms = at_ms if led.leaderless_since_ms is None else led.leaderless_since_ms
    none_in_sync = not row.isr and lists is not None and not lists.elr
    return replace(
        led,
        epoch=row.leader_epoch,
        may_lead=may_lead,
        confirmed=confirmed,
        leaderless_since_ms=since_ms,
        none_in_sync=none_in_sync,
    )


def _between_rounds(led: LedBefore, row: PartitionSample, leaderless: LeaderlessPartition | None) -> LedBefore:
    """With what was seen between two rounds, just before the leader that there is now."""
    if leaderless is None or leaderless.leader_epoch != row.leader_epoch - 1 or not leaderless.may_lead:
        return led
    return replace(
        led, epoch=leaderless.leader_epoch, confirmed=leaderless.may_lead, none_in_sync=leaderless.none_in_sync
    )


def _with_log_ends(led: LedBefore, endangered: EndangeredPartition | None) -> LedBefore:
    if endangered is None:
        return led
    return replace(led, log_end_offsets={id_: offset for id_, (_, offset) in endangered.log_ends.items()})


def _election(
    at_ms: int, led: LedBefore, row: PartitionSample, replicas: Mapping[tuple[str, int, int], ReplicaSample]
) -> UncleanElection | None:
    """The election of the partition's leader, where it was unclean."""
    log_end = row.log_end_offset or 0
    outside = bool(led.confirmed) and row.leader not in led.confirmed and row.leader_epoch == led.epoch + 1
    if not outside and (led.high_watermark is None or log_end >= led.high_watermark):
        return None
    holders = []
    for broker_id in row.replicas:
        sample = replicas.get((row.topic, row.partition, broker_id))
        end = None if sample is None else sample.log_end_offset
        # A replica that has been silent since the last leader may have more than was sampled.
        silent = sample is None or end is None or not _is_final(sample, led)
        if broker_id in led.log_end_offsets:
            end, silent = led.log_end_offsets[broker_id], False
        longer = end is not None and end > log_end
        if broker_id != row.leader and (longer or (silent and broker_id in {led.leader, *led.confirmed})):
            holders.append(broker_id)
    return UncleanElection(
        topic=row.topic,
        partition=row.partition,
        topic_id=row.topic_id,
        at_ms=at_ms,
        leader=row.leader,
        leader_epoch=row.leader_epoch,
        log_end_offset=log_end,
        acknowledged_offset=led.high_watermark,
        former_leader=led.leader,
        holders=tuple(holders),
        unsaved=tuple(broker_id for broker_id in holders if broker_id not in row.isr),
        none_in_sync=led.none_in_sync,
    )


def _is_final(sample: ReplicaSample, led: LedBefore) -> bool:
    """Whether nothing can have been appended to the replica after its log end was sampled."""
    if sample.answered_ms is None:
        return True
    return led.leaderless_since_ms is not None and sample.answered_ms >= led.leaderless_since_ms


def _remembered(election: UncleanElection, at_ms: int, row: PartitionSample) -> UncleanElection | None:
    """The election as it is now; None once it is over."""
    if election.topic_id != row.topic_id:
        return None
    unsaved = tuple(b for b in election.unsaved if b in row.replicas and b not in row.isr)
    if not unsaved and at_ms - election.at_ms >= SHOWN_FOR_MS:
        return None
    return election if unsaved == election.unsaved else replace(election, unsaved=unsaved)


def _limited(elections: Mapping[PartitionKey, UncleanElection]) -> Mapping[PartitionKey, UncleanElection]:
    if len(elections) <= ELECTIONS_MAX:
        return elections
    worst = sorted(elections.items(), key=lambda item: (not item[1].unsaved, -item[1].lost))
    return dict(worst[:ELECTIONS_MAX])


def election_of_evidence(topic: str, partition: int, evidence: Mapping[str, Any]) -> UncleanElection | None:
    """The election that an open finding is about, for a process that has just started; None: of another version."""
    try:
        return UncleanElection(
            topic=topic,
            partition=partition,
            topic_id=evidence["topic_id"],
            at_ms=evidence["at_ms"],
            leader=evidence["leader"],
            leader_epoch=evidence["leader_epoch"],
            log_end_offset=evidence["from_offset"],
            acknowledged_offset=evidence["to_offset"],
            former_leader=evidence["former_leader"],
            holders=tuple(evidence["holders"]),
            unsaved=tuple(evidence["unsaved"]),
        )
    except (KeyError, TypeError):
        return None
