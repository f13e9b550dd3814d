"""One round of facts, concluded: the rows that the database gets. Pure; the memory of the last round is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from backend.control.findings.endangered_partitions import EndangeredPartitions
from backend.control.findings.leaderless_partitions import LeaderlessPartitions
from backend.control.findings.unclean_elections import ElectionMemory
from backend.control.gateway.requests.rights_requests import TOPICS, MissingRight
from backend.control.memo import Memo
from backend.control.observer.cluster_totals import produced, totals
from backend.control.observer.follower_epochs import follower_chain
from backend.control.observer.sampling.cluster_facts import (
    ClusterFacts,
    LedgerSums,
    PartitionFacts,
    RemoteFacts,
    ReplicaFacts,
)
from backend.store.writes.samples import PartitionSample, ReplicaSample
from backend.tiering.follower_phase import FollowerPhase
from backend.tiering.ids import uuid_text
from backend.tiering.pending import Pending, earliest_pending
from backend.tiering.phase_inference import (
    EXACT,
    STALL_MS_MIN,
    ExactPhase,
    FollowerMemory,
    FollowerObservation,
    PhaseConclusion,
    infer_phase,
    phase_unchanged,
    unchanged_conclusion,
)

ReplicaKey = tuple[str, int, int]
"""(topic, partition, broker id)."""
FLAG: Final = "follower.fetch.last.tiered.offset.enable"


@dataclass(frozen=True, slots=True)
class RoundContext:
    """Context in which a round is concluded."""

    ledger: LedgerSums = field(default_factory=LedgerSums)
    memories: Mapping[ReplicaKey, FollowerMemory] = field(default_factory=dict)
    exact: Mapping[tuple[str, int, int], ExactPhase] = field(
        default_factory=dict
    )  # by (topic id text, partition, broker)
    flags: Mapping[int, bool] = field(default_factory=dict)  # FLAG in effect, by broker
    stall_ms: int = STALL_MS_MIN
    # The samples of the round before, for what does not answer in this one; those without `answered_ms` are of
    # `last_ms`, or of their time in `last_earlier_ms`.
    last_ms: int = 0
    last_earlier_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)
    last_partitions: Mapping[tuple[str, int], PartitionSample] = field(default_factory=dict)
    last_replicas: Mapping[ReplicaKey, ReplicaSample] = field(default_factory=dict)
    produced_bytes: int = 0  # the counter so far
    elections: ElectionMemory = field(default_factory=ElectionMemory)
    # As of the newest look at liveness.
    endangered: EndangeredPartitions = field(default_factory=EndangeredPartitions)
    leaderless: LeaderlessPartitions = field(default_factory=dict)
    missing_rights: Sequence[MissingRight] = ()

    @property
    def topics_hidden(self) -> bool:
        """Our principal may not see all topics or their settings: which of them are tiered is not known."""
        return any(right.resource == TOPICS for right in self.missing_rights)


@dataclass(frozen=True, slots=True)
class SamplingRound:
    """Rows of one round for the database, and the context for the next round. `earlier_ms`: partitions whose offsets
    were not listed in this round, and when they were.
    """

    at_ms: int
    partitions: tuple[PartitionSample, ...]
    replicas: tuple[ReplicaSample, ...]
    totals: Mapping[str, int | None]
    memories: Mapping[ReplicaKey, FollowerMemory]
    elections: ElectionMemory = field(default_factory=ElectionMemory)
    earlier_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def next_context(self, context: RoundContext) -> RoundContext:
        """The context of the next round, as far as this round gives it."""
        return replace(
            context,
            memories=self.memories,
            elections=self.elections,
            produced_bytes=self.totals["produced_bytes"] or context.produced_bytes,
            last_ms=self.at_ms,
            last_earlier_ms=self.earlier_ms,
            last_partitions={(p.topic, p.partition): p for p in self.partitions},
            last_replicas={(r.topic, r.partition, r.broker_id): r for r in self.replicas},
        )


class RoundCache:
    """Conclusions about partitions and replicas of the round before, valid while they are as they were."""

    def __init__(self) -> None:
        self.partitions: Memo[tuple[str, int], tuple[PartitionSample, Pending]] = Memo()
        self.leaders: Memo[ReplicaKey, ReplicaSample] = Memo()
        self.in_sync: Memo[ReplicaKey, ReplicaSample] = Memo()

    def begin_round(self) -> None:
        """Begins a round."""
        for memo in (self.partitions, self.leaders, self.in_sync):
            memo.begin_round()


def conclude_round(facts: ClusterFacts, context: RoundContext, unchanged: RoundCache | None = None) -> SamplingRound:
    """Draws the conclusions of one round. With the same `unchanged` each time the same, in less time."""
    unchanged = unchanged or RoundCache()
    unchanged.begin_round()
    partitions: list[PartitionSample] = []
    replicas: list[ReplicaSample] = []
    memories: dict[ReplicaKey, FollowerMemory] = {}
    described = frozenset(topic.topic for topic in facts.topics if topic.config is not None)
    for partition in facts.partitions:
        view = partition.view
        remote = _remote(context, partition)
        local_only = not partition.tiered and (not context.topics_hidden or view.topic in described)
        sample, pending = unchanged.partitions.value(
            (view.topic, view.partition), _partition_and_pending, partition, remote, local_only
        )
        before = context.last_partitions.get((sample.topic, sample.partition))
        recreated = before is not None and before.topic_id != sample.topic_id
        last_ms = context.last_earlier_ms.get(view.topic_partition, context.last_ms)
        partitions.append(_with_last_offsets(sample, None if recreated else before, last_ms))
        for broker_id in view.replicas:
            replica = partition.replicas.get(broker_id) or ReplicaFacts(broker_id, error="It was not asked.")
            key = (view.topic, view.partition, broker_id)
            last = None if recreated else context.last_replicas.get(key)
            if broker_id == view.leader:
                replica_sample = unchanged.leaders.value(key, _leader_sample, partition, replica)
            else:
                memory = None if recreated else context.memories.get(key)
                if memory is not None and _is_phase_unchanged(facts, partition, replica, memory):
                    # Nothing of this hangs on the time: most followers, nearly always.
                    memories[key] = memory
                    replica_sample = unchanged.in_sync.value(key, _in_sync_sample, partition, replica, memory)
                else:
                    observation = _observation(facts, context, partition, replica, pending)
                    memories[key], conclusion = infer_phase(memory, observation, stall_ms=context.stall_ms)
                    replica_sample = _follower_sample(partition, replica, conclusion)
            replicas.append(_with_last_offsets(replica_sample, last, last_ms))
    rows = tuple(partitions), tuple(replicas)
    came = produced(partitions, context.last_partitions)
    counter = None if came is None else context.produced_bytes + came
    by_replica = {(r.topic, r.partition, r.broker_id): r for r in replicas}
    elections = context.elections.next(
        facts.at_ms,
        partitions,
        by_replica,
        context.last_partitions,
        facts.eligible.by_partition,
        context.endangered.by_partition,
        context.leaderless,
    )
    sums = totals(facts, context.ledger, *rows, counter, topics_hidden=context.topics_hidden)
    return SamplingRound(facts.at_ms, *rows, sums, memories, elections, facts.earlier_ms)


SampleT = TypeVar("SampleT", PartitionSample, ReplicaSample)
_KEPT: Final = (
    "log_start_offset",
    "local_log_start_offset",
    "latest_tiered_offset",
    "log_end_offset",
    "local_log_bytes",
)
_KEPT_OF_PARTITION: Final = (
    *_KEPT,
    "earliest_pending_upload_offset",
    "pending_reason",
    "high_watermark",
    "last_stable_offset",
)
_KEPT_OF_REPLICA: Final = (*_KEPT, "leader_epochs", "log_dir")


def _with_last_offsets(sample: SampleT, last: SampleT | None, last_ms: int) -> SampleT:
    """A replica that did not answer keeps its last offsets and their age."""
    if sample.log_end_offset is not None or last is None:
        return sample
    names = _KEPT_OF_PARTITION if isinstance(sample, PartitionSample) else _KEPT_OF_REPLICA
    kept: dict[str, Any] = {name: getattr(last, name) for name in names}
    return replace(sample, answered_ms=last.answered_ms if last.answered_ms is not None else last_ms, **kept)


def _partition_and_pending(
    partition: PartitionFacts, remote: RemoteFacts | None, local_only: bool
) -> tuple[PartitionSample, Pending]:
    pending = pending_of(partition, remote)
    return _partition_sample(partition, remote, pending, local_only=local_only), pending


def _in_sync_sample(partition: PartitionFacts, replica: ReplicaFacts, memory: FollowerMemory) -> ReplicaSample:
    return _follower_sample(partition, replica, unchanged_conclusion(memory))


def _remote(context: RoundContext, partition: PartitionFacts) -> RemoteFacts | None:
    """The ledger's word; of a partition that it does not know a pipeline that has read everything says: nothing."""
    nothing = RemoteFacts() if context.ledger.complete and partition.tiered else None
    return context.ledger.partitions.get((uuid_text(partition.view.topic_id), partition.view.partition), nothing)


def pending_of(partition: PartitionFacts, remote: RemoteFacts | None) -> Pending:
    """The partition's first offset that is not in the remote tier, as its leader and the ledger tell."""
    leader = partition.leader or ReplicaFacts(-1)
    return earliest_pending(
        tiered=partition.tiered,
        offset=partition.pending,
        log_start=leader.log_start,
        local_start=leader.local_start,
        latest_tiered=leader.latest_tiered,
        log_end=leader.log_end,
        highest_copied=None if remote is None else remote.highest_copied,
    )


def _partition_sample(
    partition: PartitionFacts, remote: RemoteFacts | None, pending: Pending, *, local_only: bool
) -> PartitionSample:
    """`local_only`: the partition is known not to be tiered."""
    view, leader, move = partition.view, partition.leader or ReplicaFacts(-1), partition.move
    # Without a word of the ledger only an empty log is known to have nothing there: a leader that was just restarted
    # answers as if nothing had ever been copied.
    no_remote = 0 if local_only or leader.log_end == 0 else None
    return PartitionSample(
        topic=view.topic,
        partition=view.partition,
        topic_id=uuid_text(view.topic_id),
        leader=view.leader,
        leader_epoch=view.leader_epoch,
        replicas=view.replicas,
        isr=view.isr,
        tiered=partition.tiered,
        log_start_offset=leader.log_start,
        local_log_start_offset=leader.local_start,
        latest_tiered_offset=leader.latest_tiered,
        earliest_pending_upload_offset=partition.pending,
        pending_reason=None if pending.reason is None else pending.reason.value,
        high_watermark=partition.high_watermark,
        log_end_offset=leader.log_end,
        local_log_bytes=leader.local_bytes,
        remote_log_bytes=no_remote if remote is None else remote.finished_bytes,
        adding_replicas=move.adding if move else (),
        removing_replicas=move.removing if move else (),
        error=partition.error or leader.error,
        last_stable_offset=partition.last_stable,
    )


def _leader_sample(partition: PartitionFacts, replica: ReplicaFacts) -> ReplicaSample:
    return _replica_sample(
        partition,
        replica,
        role="leader",
        epochs=partition.epochs,
        conclusion=PhaseConclusion(FollowerPhase.IN_SYNC, 0, EXACT, {"rule": "leader"}),
        complete=partition.epochs_complete,
    )


def _follower_sample(partition: PartitionFacts, replica: ReplicaFacts, conclusion: PhaseConclusion) -> ReplicaSample:
    if partition.epochs is None or replica.log_start is None or replica.log_end is None:
        return _replica_sample(partition, replica, role="follower", epochs=None, conclusion=conclusion)
    leader = partition.leader
    leader_end = None if leader is None else leader.log_end
    chain = follower_chain(partition.epochs, replica.points, replica.log_start, replica.log_end, leader_end)
    return _replica_sample(
        partition,
        replica,
        role="follower",
        epochs=chain.entries,
        conclusion=conclusion,
        complete=partition.epochs_complete,
        disagrees_at=None if chain.disagrees is None else chain.disagrees.offset,
    )


def _replica_sample(
    partition: PartitionFacts,
    replica: ReplicaFacts,
    *,
    role: str,
    epochs: tuple[tuple[int, int], ...] | None,
    conclusion: PhaseConclusion,
    complete: bool = True,
    disagrees_at: int | None = None,
) -> ReplicaSample:
    about_epochs: dict[str, object] = {"epochs": EXACT if role == "leader" else "inferred"}
    extra = about_epochs | ({} if complete else {"epochs_cut": True})
    if disagrees_at is not None:
        extra |= {"disagrees_with_leader_at": disagrees_at}
    return ReplicaSample(
        topic=partition.view.topic,
        partition=partition.view.partition,
        broker_id=replica.broker_id,
        role=role,
        in_isr=replica.broker_id in partition.view.isr,
        log_start_offset=replica.log_start,
        local_log_start_offset=replica.local_start,
        latest_tiered_offset=replica.latest_tiered,
        log_end_offset=replica.log_end,
        local_log_bytes=replica.local_bytes,
        leader_epochs=epochs,
        log_dir=replica.log_dir,
        phase=None if conclusion.phase is None else conclusion.phase.value,
        phase_since_ms=conclusion.since_ms or None,
        phase_source=conclusion.source,
        evidence=dict(conclusion.evidence) | extra,
        error=replica.error,
    )


def _is_phase_unchanged(
    facts: ClusterFacts, partition: PartitionFacts, replica: ReplicaFacts, memory: FollowerMemory
) -> bool:
    broker = facts.brokers.get(replica.broker_id)
    return phase_unchanged(
        memory,
        in_isr=replica.broker_id in partition.view.isr,
        reachable=broker is not None and broker.reachable,
        log_end=replica.log_end,
    )


def _observation(
    facts: ClusterFacts, context: RoundContext, partition: PartitionFacts, replica: ReplicaFacts, pending: Pending
) -> FollowerObservation:
    broker = facts.brokers.get(replica.broker_id)
    leader = partition.leader or ReplicaFacts(-1)
    topic_id = uuid_text(partition.view.topic_id)
    return FollowerObservation(
        at_ms=facts.at_ms,
        in_isr=replica.broker_id in partition.view.isr,
        reachable=broker is not None and broker.reachable,
        log_start=replica.log_start,
        local_start=replica.local_start,
        log_end=replica.log_end,
        leader_log_start=leader.log_start,
        leader_local_start=leader.local_start,
        leader_log_end=leader.log_end,
        tiered=partition.tiered,
        flag=context.flags.get(replica.broker_id),
        pending_reason=pending.reason,
        exact=context.exact.get((topic_id, partition.view.partition, replica.broker_id)),
        error=broker.error if broker is not None and not broker.reachable else replica.error,
    )
