"""The followers of a led partition as their leader knows them: fetch states, ISR and its changes, high watermark.

`partition_state` decides; this keeps the values and sends what has to be sent. Facts: Kafka's `Partition`, KIP-497.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import MetadataImage, PartitionRegistration
from backend.engine.ports import Clock
from backend.engine.replica import partition_state
from backend.engine.replica.fetch_data import FetchSpec
from backend.engine.replica.partition_state import AlterVerdict, IsrState, ReplicaState
from backend.engine.replica.replica_selector import ReplicaView, preferred_replica
from backend.engine.replica.replication_quota import ReplicationQuota
from backend.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from backend.engine.replica.partition import Partition

NO_EPOCH: Final = -1

_log = logging.getLogger(__name__)


class Host(Protocol):
    """What a partition needs of its broker."""

    @property
    def node_id(self) -> int: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def config(self) -> BrokerConfig:
        """Settings in force, dynamic ones included."""
        ...

    @property
    def image(self) -> MetadataImage: ...

    @property
    def leader_quota(self) -> ReplicationQuota: ...

    def wake(self, partition: Partition) -> None:
        """Calls the partition's :meth:`Partition.complete_delayed_requests` soon."""
        ...

    def propose_isr(self, proposal: IsrProposal) -> None:
        """Sends an ISR change to the controller; the outcome comes to `Partition.isr_decided` or `isr_refused`."""
        ...


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR that a leader asks the controller for; `members` with the epochs of their brokers."""

    partition: Partition
    brokers: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int

    @property
    def members(self) -> frozenset[int]:
        return frozenset(broker for broker, _ in self.brokers)


class ReplicaProgress:
    """Every replica but the leader's own. Empty on a follower."""

    def __init__(self, partition: Partition, host: Host) -> None:
        self.states: dict[int, ReplicaState] = {}
        self.isr = IsrState(frozenset())
        self.epoch_start_offset = 0
        self._partition = partition
        self._host = host

    def assign(self, registration: PartitionRegistration, *, anew: bool) -> None:
        """Takes the registration's replicas and ISR over; `anew`: under a new leader epoch nothing known before counts.

        A change in flight was made for an older partition epoch: the controller refuses it or has carried it out.
        """
        self.isr = IsrState(frozenset(registration.isr))
        if anew:
            self.epoch_start_offset = self._partition.log.log_end_offset
        kept = {} if anew else self.states
        now_ms = self._host.clock.monotonic_ms()
        self.states = {
            replica: kept.get(replica)
            or partition_state.new_leader_replica(in_isr=replica in self.isr.committed, now_ms=now_ms)
            for replica in registration.replicas
            if replica != self._host.node_id
        }

    def release(self, registration: PartitionRegistration) -> None:
        """This broker follows now."""
        self.isr = IsrState(frozenset(registration.isr))
        self.states = {}

    def fetched(self, replica: int, broker_epoch: int, spec: FetchSpec) -> tuple[ReplicaState, ReplicaState]:
        """A follower's state before and after a fetch; asks for its admission to the ISR when it has caught up."""
        before = self.states[replica]
        after = before.after_fetch(
            fetch_offset=spec.fetch_offset,
            log_start_offset=spec.log_start_offset,
            leader_end_offset=self._partition.log.log_end_offset,
            now_ms=self._host.clock.monotonic_ms(),
            broker_epoch=broker_epoch,
        )
        self.states[replica] = after
        if replica not in self.isr.committed:
            self._maybe_expand(replica, after)
        return before, after

    def mark_caught_up(self, replica: int, at_ms: float) -> None:
        """A fetch then, which was not looked at, came from the end of the log as it was until now."""
        state = self.states.get(replica)
        if state is not None:
            self.states[replica] = state.caught_up_at(at_ms)

    def is_eligible(self, replica: int) -> bool:
        """Whether the controller would let the replica into the ISR: registered, not fenced, the same life as here."""
        broker = self._host.image.brokers.get(replica)
        if broker is None or not broker.active:
            return False
        known = self.states[replica].broker_epoch if replica in self.states else NO_EPOCH
        return known in (NO_EPOCH, broker.epoch)

    def is_throttled(self, replica: int) -> bool:
        """Whether the throttle of a reassignment gives the follower nothing now (shouldLeaderThrottle)."""
        if replica in self.isr.committed:
            return False
        at = self._partition.topic_id_partition
        return self._host.leader_quota.throttles(at.topic, at.partition, self._host.clock.monotonic_ms())

    # Consumers

    def preferred_read_replica(self, rack: str, listener_name: str, offset: int) -> int | None:
        """The follower that a consumer in a rack should read an offset from; None for the leader itself.

        Only members of the ISR: another one may fall behind the consumer for good.
        """
        brokers = self._host.image.brokers
        own = brokers.get(self._host.node_id)
        if own is None:
            return None
        now_ms = self._host.clock.monotonic_ms()
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
        leader = ReplicaView(own.id, own.rack, self._partition.log.log_end_offset, 0.0)
        return preferred_replica(rack, leader, views)

    # ISR

    def _maybe_expand(self, replica: int, state: ReplicaState) -> None:
        if partition_state.can_join_isr(
            replica=replica,
            state=state,
            isr=self.isr,
            high_watermark=self._partition.high_watermark,
            epoch_start_offset=self.epoch_start_offset,
            is_eligible=self.is_eligible,
        ):
            _log.info("%s asks to add broker %d to its ISR %s at offset %d", self._partition, replica,
                      sorted(self.isr.committed), state.log_end_offset)  # fmt: skip
            self._propose(self.isr.expand(replica))

    def shrink(self) -> None:
        """Asks to drop members that have been behind for replica.lag.time.max.ms."""
        late = partition_state.late_replicas(
            leader=self._host.node_id,
            replicas=self.states,
            isr=self.isr,
            leader_end_offset=self._partition.log.log_end_offset,
            now_ms=self._host.clock.monotonic_ms(),
            lag_max_ms=self._host.config.replica_lag_time_max_ms,
        )
        if late:
            ends = {replica: self.states[replica].log_end_offset for replica in sorted(late & set(self.states))}
            _log.warning("%s asks to drop the late brokers %s (log ends %s, own %d) from its ISR", self._partition,
                         sorted(late), ends, self._partition.log.log_end_offset)  # fmt: skip
            self._propose(self.isr.shrink(late))

    def _propose(self, isr: IsrState) -> None:
        assert isr.proposed is not None
        self.isr = isr
        brokers = self._host.image.brokers
        members = tuple(
            (member, brokers[member].epoch if member in brokers else NO_EPOCH) for member in sorted(isr.proposed)
        )
        partition = self._partition
        self._host.propose_isr(IsrProposal(partition, members, partition.leader_epoch, partition.partition_epoch))

    def commit(self, isr: frozenset[int]) -> None:
        """The controller has decided."""
        self.isr = IsrState(isr)
        _log.info("%s has ISR %s since partition epoch %d", self._partition, sorted(isr),
                  self._partition.partition_epoch)  # fmt: skip

    def refused(self, proposal: IsrProposal, error: ErrorCode) -> bool:
        """The controller refused our proposal; True when the same proposal should be sent again."""
        if proposal.partition_epoch != self._partition.partition_epoch or self.isr.proposed != proposal.members:
            return False
        verdict = partition_state.alter_verdict(error)
        _log.log(
            logging.DEBUG if verdict is AlterVerdict.RETRY else logging.INFO,
            "%s could not change its ISR to %s: %s, so it will %s", self._partition, sorted(proposal.members),
            error.name, verdict.value,
        )  # fmt: skip
        if verdict is AlterVerdict.ROLL_BACK:
            self.isr = self.isr.rolled_back()
        return verdict is AlterVerdict.RETRY

    # Watermarks

    def high_watermark_candidate(self) -> int:
        """The offset below which every replica that counts has the data."""
        end = self._partition.log.log_end_offset
        if not self.states:
            return end
        return partition_state.high_watermark_candidate(
            leader_end_offset=end,
            replicas=self.states,
            isr=self.isr,
            is_eligible=self.is_eligible,
            now_ms=self._host.clock.monotonic_ms(),
            lag_max_ms=self._host.config.replica_lag_time_max_ms,
        )

    def low_watermark(self) -> int:
        """The smallest log start among the leader and alive followers."""
        brokers = self._host.image.brokers
        return partition_state.low_watermark(
            log_start_offset=self._partition.log_start_offset,
            replicas=self.states,
            alive=lambda replica: replica in brokers and not brokers[replica].fenced,
        )
