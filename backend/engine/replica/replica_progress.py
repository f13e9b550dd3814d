"""The followers of a led partition as their leader knows them: fetch states, ISR and its changes, high watermark.

`partition_state` decides; this keeps the values and sends what has to be sent. Kafka: `Partition`, KIP-497. etcd's
`Progress` is the same view in one place.
"""

from __future__ import annotations

import logging
from typing import Final

from backend.engine.controller.image.metadata_image import PartitionRegistration
from backend.engine.replica import partition_state
from backend.engine.replica.fetch_data import FetchSpec
from backend.engine.replica.partition_context import PartitionContext
from backend.engine.replica.partition_state import AlterVerdict, IsrProposal, IsrState, ReplicaState
from backend.engine.replica.replica_selector import ReplicaView, preferred_replica
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import TopicIdPartition

NO_EPOCH: Final = -1

_log = logging.getLogger(__name__)


class ReplicaProgress:
    """Every replica but the leader's own. Empty on a follower.

    The partition gives its own log's offsets with each call: `leader_end_offset` is where that log ends.
    """

    def __init__(self, tip: TopicIdPartition, context: PartitionContext) -> None:
        self.states: dict[int, ReplicaState] = {}
        self.isr = IsrState(frozenset())
        self.epoch_start_offset = 0
        self._leader_epoch = NO_EPOCH
        self._partition_epoch = NO_EPOCH
        self._tip = tip
        self._context = context

    def assign(
        self, registration: PartitionRegistration, leader_epoch: int, *, new_term: bool, leader_end_offset: int
    ) -> None:
        """Takes the registration's replicas and ISR over; `new_term`: states of an earlier leader epoch do not count.

        A change in flight was made for an older partition epoch: the controller refuses it or has carried it out.
        """
        self._leader_epoch = leader_epoch
        self._partition_epoch = registration.partition_epoch
        self.isr = IsrState(frozenset(registration.isr))
        if new_term:
            self.epoch_start_offset = leader_end_offset
        kept = {} if new_term else self.states
        now_ms = self._context.clock.monotonic_ms()
        self.states = {
            replica: kept.get(replica)
            or partition_state.new_leader_replica(in_isr=replica in self.isr.committed, now_ms=now_ms)
            for replica in registration.replicas
            if replica != self._context.metadata.node_id
        }

    def release(self, registration: PartitionRegistration) -> None:
        """This broker follows now."""
        self.isr = IsrState(frozenset(registration.isr))
        self.states = {}

    def fetched(
        self, replica: int, broker_epoch: int, spec: FetchSpec, leader_end_offset: int, high_watermark: int
    ) -> tuple[ReplicaState, ReplicaState]:
        """A follower's state before and after a fetch; asks for its admission to the ISR when it has caught up."""
        before = self.states[replica]
        after = before.after_fetch(
            fetch_offset=spec.fetch_offset,
            log_start_offset=spec.log_start_offset,
            leader_end_offset=leader_end_offset,
            now_ms=self._context.clock.monotonic_ms(),
            broker_epoch=broker_epoch,
        )
        self.states[replica] = after
        if replica not in self.isr.committed:
            self._maybe_expand(replica, after, high_watermark)
        return before, after

    def mark_caught_up(self, replica: int, at_ms: float) -> None:
        """Records a fetch at `at_ms` whose offset equals the log end, without a look-up."""
        state = self.states.get(replica)
        if state is not None:
            self.states[replica] = state.caught_up_at(at_ms)

    def is_eligible(self, replica: int) -> bool:
        """Whether the controller would let the replica into the ISR: registered, not fenced, of the epoch seen here."""
        broker = self._context.metadata.image.brokers.get(replica)
        if broker is None or not broker.active:
            return False
        seen_epoch = self.states[replica].broker_epoch if replica in self.states else NO_EPOCH
        return seen_epoch in (NO_EPOCH, broker.epoch)

    def is_throttled(self, replica: int) -> bool:
        """Whether the throttle of a reassignment gives the follower nothing now (shouldLeaderThrottle)."""
        if replica in self.isr.committed:
            return False
        context = self._context
        return context.leader_quota.throttles(self._tip.topic, self._tip.partition, context.clock.monotonic_ms())

    # Consumers

    def preferred_read_replica(self, rack: str, listener_name: str, offset: int, leader_end_offset: int) -> int | None:
        """The follower that a consumer in a rack should read an offset from; None for the leader itself.

        Only members of the ISR: another one may fall behind the consumer for good.
        """
        brokers = self._context.metadata.image.brokers
        own = brokers.get(self._context.metadata.node_id)
        if own is None:
            return None
        now_ms = self._context.clock.monotonic_ms()
        views = []
        for replica, state in self.states.items():
            broker = brokers.get(replica)
            if (
                broker is not None
                and not broker.fenced
                and broker.endpoint(listener_name) is not None
                and replica in self.isr.committed
                and state.log_start_offset <= offset <= state.log_end_offset
            ):
                behind_ms = now_ms - state.last_caught_up_ms
                views.append(ReplicaView(replica, broker.rack, state.log_end_offset, behind_ms))
        leader = ReplicaView(own.id, own.rack, leader_end_offset, 0.0)
        return preferred_replica(rack, leader, views)

    # ISR

    def _maybe_expand(self, replica: int, state: ReplicaState, high_watermark: int) -> None:
        if partition_state.can_join_isr(
            replica=replica,
            state=state,
            isr=self.isr,
            high_watermark=high_watermark,
            epoch_start_offset=self.epoch_start_offset,
            is_eligible=self.is_eligible,
        ):
            _log.info("%s asks to add broker %d to its ISR %s at offset %d", self._tip.topic_partition, replica,
                      sorted(self.isr.committed), state.log_end_offset)  # fmt: skip
            self._propose(self.isr.expand(replica))

    def shrink(self, leader_end_offset: int) -> None:
        """Asks to drop members that have been behind for replica.lag.time.max.ms."""
        late = partition_state.late_replicas(
            leader=self._context.metadata.node_id,
            replicas=self.states,
            isr=self.isr,
            leader_end_offset=leader_end_offset,
            now_ms=self._context.clock.monotonic_ms(),
            lag_max_ms=self._context.metadata.config.replica_lag_time_max_ms,
        )
        if late:
            ends = {replica: self.states[replica].log_end_offset for replica in sorted(late & set(self.states))}
            _log.warning("%s asks to drop the late brokers %s (log ends %s, own %d) from its ISR",
                         self._tip.topic_partition, sorted(late), ends, leader_end_offset)  # fmt: skip
            self._propose(self.isr.shrink(late))

    def _propose(self, isr: IsrState) -> None:
        assert isr.proposed is not None
        assert isr.change is not None
        self.isr = isr
        brokers = self._context.metadata.image.brokers
        members = tuple(
            (member, brokers[member].epoch if member in brokers else NO_EPOCH) for member in sorted(isr.proposed)
        )
        self._context.isr_changes.submit(
            IsrProposal(self._tip, members, self._leader_epoch, self._partition_epoch, isr.change)
        )

    def commit(self, isr: frozenset[int], partition_epoch: int) -> None:
        """The controller has decided."""
        self.isr = IsrState(isr)
        self._partition_epoch = partition_epoch
        _log.info("%s has ISR %s since partition epoch %d", self._tip.topic_partition, sorted(isr),
                  partition_epoch)  # fmt: skip

    def refused(self, proposal: IsrProposal, error: ErrorCode) -> bool:
        """The controller refused our proposal; True when the same proposal should be sent again."""
        if proposal.partition_epoch != self._partition_epoch or self.isr.proposed != proposal.members:
            return False
        verdict = partition_state.alter_verdict(error)
        _log.log(
            logging.DEBUG if verdict is AlterVerdict.RETRY else logging.INFO,
            "%s could not change its ISR to %s: %s, so it will %s", self._tip.topic_partition,
            sorted(proposal.members), error.name, verdict.value,
        )  # fmt: skip
        if verdict is AlterVerdict.ROLL_BACK:
            self.isr = self.isr.rolled_back()
        return verdict is AlterVerdict.RETRY

    # Watermarks

    def high_watermark_candidate(self, leader_end_offset: int) -> int:
        """The offset below which every replica that counts has the data."""
        if not self.states:
            return leader_end_offset
        return partition_state.high_watermark_candidate(
            leader_end_offset=leader_end_offset,
            replicas=self.states,
            isr=self.isr,
            is_eligible=self.is_eligible,
            now_ms=self._context.clock.monotonic_ms(),
            lag_max_ms=self._context.metadata.config.replica_lag_time_max_ms,
        )

    def low_watermark(self, log_start_offset: int) -> int:
        """The smallest log start among the leader and alive followers."""
        brokers = self._context.metadata.image.brokers
        return partition_state.low_watermark(
            log_start_offset=log_start_offset,
            replicas=self.states,
            alive=lambda replica: replica in brokers and not brokers[replica].fenced,
        )
