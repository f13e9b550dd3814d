"""One partition on one broker: its log, its role, and the requests that wait for it.

As leader it knows its followers (`replica_progress`) and carries decisions out on the log. It owns the requests that
wait for it (`delayed_operations`) without knowing what they do. Everything runs on the loop's thread.

Kafka: `Partition`.
"""

from __future__ import annotations

from typing import Final, Literal

from backend.engine.controller.image.metadata_image import NO_LEADER, PartitionRegistration
from backend.engine.log.log_appender import AppendInfo, Origin
from backend.engine.log.log_errors import DamagedIndex, OffsetOutOfRange
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.log.validation.produced_batch import ValidatedBatch
from backend.engine.replica import partition_state
from backend.engine.replica.delayed_operations import DelayedOperations
from backend.engine.replica.fetch_data import (
    UNKNOWN_HIGH_WATERMARK,
    FetchParams,
    FetchSpec,
    Isolation,
)
from backend.engine.replica.partition_context import PartitionContext
from backend.engine.replica.partition_state import IsrProposal, IsrState
from backend.engine.replica.replica_progress import ReplicaProgress
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.record_batches.compression import DECOMPRESSED_BYTES_MAX
from backend.tiering.ids import TopicIdPartition, TopicPartition

ReplicaRole = Literal["leader", "follower"]

NO_EPOCH: Final = -1


class Partition:
    """A partition that this broker hosts."""

    def __init__(self, tip: TopicIdPartition, log: UnifiedLog, context: PartitionContext) -> None:
        self.topic_id_partition = tip
        self.log = log
        self.role: ReplicaRole = "follower"
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.unclean_leader_epoch = NO_EPOCH
        self.followers = ReplicaProgress(tip, context)
        self.delayed: DelayedOperations[Partition] = DelayedOperations()
        self._context = context
        # The error for requests once this broker hosts the partition no longer.
        self._closed_with: ErrorCode | None = None

    def __str__(self) -> str:
        return str(self.topic_id_partition.topic_partition)

    @property
    def topic_partition(self) -> TopicPartition:
        return self.topic_id_partition.topic_partition

    @property
    def is_leader(self) -> bool:
        return self.role == "leader"

    @property
    def is_hosted(self) -> bool:
        """False once this broker has given the partition up."""
        return self._closed_with is None

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def min_isr(self) -> int:
        """Members the ISR must have for acks=all and for the high watermark to move."""
        return partition_state.effective_min_isr(self.log.config.min_insync_replicas, len(self.replicas))

    def use(self, log: UnifiedLog) -> None:
        """The same records in another directory from now on."""
        self.log = log
        # An event of the former log that is still on its way counts no more, so requests look at this one.
        self._changed()

    # Roles

    def become_leader(self, registration: PartitionRegistration) -> bool:
        """Takes over leadership, or its newer facts; True when the leader epoch is new."""
        if registration.partition_epoch < self.partition_epoch:
            return False
        was_leader = self.is_leader
        new_epoch = registration.leader_epoch > self.leader_epoch
        self._take_over(registration, "leader")
        new_term = new_epoch or not was_leader
        end_offset = self.log.log_end_offset
        if new_term:
            self.log.leader_epochs.begin(self.leader_epoch, end_offset)
        self.followers.assign(registration, self.leader_epoch, new_term=new_term, leader_end_offset=end_offset)
        if new_epoch:
            self.end_delayed_requests()
        # The ISR may have shrunk to this broker.
        if self._increment_high_watermark() or self.delayed.produces:
            self._changed()
        return new_epoch

    def become_follower(self, registration: PartitionRegistration) -> bool:
        """Follows the registration's leader (or none); True when the leader epoch is new."""
        if registration.partition_epoch < self.partition_epoch:
            return False
        new_epoch = registration.leader_epoch > self.leader_epoch
        was_leader = self.is_leader
        self._take_over(registration, "follower")
        self.followers.release(registration)
        if was_leader or new_epoch:
            self.end_delayed_requests()
        return new_epoch or was_leader

    def _take_over(self, registration: PartitionRegistration, role: ReplicaRole) -> None:
        self.delayed.notify_watchers(self)
        self.role = role
        self.leader = registration.leader
        self.leader_epoch = max(self.leader_epoch, registration.leader_epoch)
        self.partition_epoch = registration.partition_epoch
        self.replicas = registration.replicas
        self.unclean_leader_epoch = registration.unclean_leader_epoch

    # Checks

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Fences requests made under another leader epoch (-1: any), and every request after :meth:`close`."""
        if self._closed_with is not None:
            raise KafkaError(self._closed_with, f"broker {self._context.metadata.node_id} hosts {self} no longer")
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self} has leader epoch {self.leader_epoch}, the request was made under {current_leader_epoch}",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self} has leader epoch {self.leader_epoch} here, the request knows {current_leader_epoch}",
        )

    def check_leader(self) -> None:
        """Raises NOT_LEADER_OR_FOLLOWER unless this broker leads."""
        if not self.is_leader:
            raise KafkaError(
                self._closed_with or ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._context.metadata.node_id} does not lead {self}; ask broker {self.leader}",
            )

    # Produce

    def append(
        self,
        records: memoryview,
        *,
        acks: int,
        origin: Origin = "client",
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    ) -> AppendInfo:
        """Appends as leader. Raises KafkaError: 6, 19 (acks=-1, ISR too small), 56, or what the records deserve."""
        self._check_takes(acks)
        info = self.log.append_as_leader(
            records,
            self.leader_epoch,
            now_ms=self._context.clock.time_ms(),
            origin=origin,
            decompressed_bytes_max=decompressed_bytes_max,
        )
        self._increment_high_watermark()
        self._changed()
        return info

    def append_validated(self, batch: ValidatedBatch, *, acks: int) -> AppendInfo:
        """The same of a client's batch that was validated by the log's settings meanwhile."""
        self._check_takes(acks)
        info = self.log.append_validated(batch, self.leader_epoch, now_ms=self._context.clock.time_ms())
        self._increment_high_watermark()
        self._changed()
        return info

    def _check_takes(self, acks: int) -> None:
        self.check_leader()
        if acks == -1 and len(self.isr.committed) < self.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR : {len(self.isr.committed)} is insufficient to satisfy the min.isr"
                f" requirement of {self.min_isr} for partition {self}",
            )

    def acknowledged(self, required_offset: int) -> ErrorCode | None:
        """State of an acks=all append that ends before the offset: None while it must wait, else its error code."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return partition_state.acknowledged(
            required_offset=required_offset, high_watermark=self.high_watermark, isr=self.isr, min_isr=self.min_isr
        )

    # Fetch

    def fetchable_end(self, isolation: Isolation) -> int:
        """The first offset a reader of this isolation does not see."""
        if isolation is Isolation.LOG_END:
            return self.log.log_end_offset
        return self.log.high_watermark if isolation is Isolation.HIGH_WATERMARK else self.log.last_stable_offset

    def readable_bytes(self, offset: int, isolation: Isolation, bytes_max: int) -> int:
        """Bytes from the offset to what the reader sees, at most `bytes_max`; across segments `bytes_max` itself."""
        end = self.fetchable_end(isolation)
        if end <= offset:
            return 0
        segments = self.log.segments
        first, last = segments.floor(offset), segments.floor(end)
        if first is None or first is not last:
            return bytes_max
        try:
            return min(bytes_max, first.position_of(end) - first.position_of(offset))
        except DamagedIndex:
            # The read itself raises it.
            return bytes_max

    # Followers

    @property
    def isr(self) -> IsrState:
        """Committed ISR and the change that is in flight."""
        return self.followers.isr

    def follower_fetched(self, params: FetchParams, spec: FetchSpec) -> None:
        """A follower's read succeeded: what it asked for is where its log ends."""
        log = self.log
        before, after = self.followers.fetched(
            params.replica_id, params.replica_epoch, spec, log.log_end_offset, log.high_watermark
        )
        moved = after.log_end_offset != before.log_end_offset and self._increment_high_watermark()
        if moved:
            self._changed()
        elif self.delayed.deletes and after.log_start_offset != before.log_start_offset:
            self._context.actions.add(self)

    def is_idle_for(self, params: FetchParams, spec: FetchSpec) -> bool:
        """Whether a follower in the ISR has, and knows, all there is; it stays so until the watchers are notified."""
        return (
            self.is_leader
            and spec.fetch_offset == self.log.log_end_offset
            and params.replica_id in self.followers.isr.committed
            and not self.has_old_watermarks(params, spec)
        )

    def shrink_isr(self) -> None:
        """Asks to drop members that have been behind for replica.lag.time.max.ms."""
        if self.is_leader:
            self.followers.shrink(self.log.log_end_offset)

    def isr_decided(self, *, leader_epoch: int, partition_epoch: int, isr: frozenset[int]) -> None:
        """The controller's answer to our proposal. One that metadata has overtaken already changes nothing."""
        if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch or not self.is_leader:
            return
        self.partition_epoch = partition_epoch
        self.delayed.notify_watchers(self)
        self.followers.commit(isr, partition_epoch)
        if self._increment_high_watermark() or self.delayed.produces:
            self._changed()

    def isr_refused(self, proposal: IsrProposal, error: ErrorCode) -> bool:
        """The controller refused our proposal; True when the same proposal should be sent again."""
        return self.is_leader and self.followers.refused(proposal, error)

    # High and low watermark

    def _increment_high_watermark(self) -> bool:
        members = len(self.followers.isr.committed)
        # No more are needed than there are replicas.
        if members < len(self.replicas) and members < self.min_isr:
            return False
        log = self.log
        return log.maybe_increment_high_watermark(self.followers.high_watermark_candidate(log.log_end_offset))

    def log_start_raised(self) -> None:
        """The log says that its start has moved: followers have to learn it, and DeleteRecords may wait for it."""
        self._changed()

    def settings_changed(self) -> None:
        """A smaller `min.insync.replicas` lets the high watermark go on now; in Kafka it waits for the next append."""
        if self.is_leader and self._increment_high_watermark():
            self._changed()

    def low_watermark(self) -> int:
        """The smallest log start among the leader and alive followers; raises NOT_LEADER_OR_FOLLOWER."""
        self.check_leader()
        return self.low_watermark_or_unknown()

    def low_watermark_or_unknown(self) -> int:
        """As :meth:`low_watermark`, -1 on a follower."""
        if not self.is_leader:
            return -1
        return self.followers.low_watermark(self.log.log_start_offset)

    def delete_records_before(self, offset: int) -> int:
        """Raises log start to the offset (-1: high watermark) and returns it; followers learn it when they fetch."""
        self.check_leader()
        log = self.log
        if not log.config.deletes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{self} is compacted, so its records cannot be deleted by offset"
            )
        target = log.high_watermark if offset == -1 else offset
        if not 0 <= target <= log.high_watermark:
            raise OffsetOutOfRange(
                f"{self} has high watermark {log.high_watermark}; offset {offset} cannot be deleted to"
            )
        log.maybe_increment_log_start_offset(target)
        return target

    def reset_remote_state(self) -> None:
        """The topic is no longer tiered and its remote data go: log start is where local data begin (KIP-950)."""
        log = self.log
        log.maybe_increment_log_start_offset(min(log.segments.first_base_offset, log.high_watermark))

    # Delayed requests

    def has_old_watermarks(self, params: FetchParams, spec: FetchSpec) -> bool:
        """Whether a follower at our end would learn a newer high watermark or log start from an empty answer."""
        if not params.from_follower:
            return False
        # A follower's high watermark cannot pass its log end, which is the offset it asks for, nor its log start the
        # high watermark: an answer beyond these would not help it and it would ask again at once.
        reachable = min(self.log.high_watermark, spec.fetch_offset)
        if spec.known_high_watermark != UNKNOWN_HIGH_WATERMARK and spec.known_high_watermark < reachable:
            return True
        return -1 < spec.log_start_offset < self.log.log_start_offset <= reachable

    def _changed(self) -> None:
        """A reader may see more now. Delayed requests are answered after the present callback at the latest."""
        self.delayed.notify_watchers(self)
        self._context.actions.add(self)

    def complete_delayed_requests(self) -> None:
        """Answers every delayed request that has become answerable."""
        self.delayed.try_complete(self, self.acknowledged)

    def end_delayed_requests(self) -> None:
        """The role or its epoch changed: requests that waited for the old one are answered with the present state."""
        self.delayed.notify_watchers(self)
        self.delayed.end_term(self, self.acknowledged)

    def close(self, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """The broker hosts this partition no longer and answers `error` for it. The log is the caller's to close."""
        self._closed_with = error
        self.role = "follower"
        self.leader = NO_LEADER
        self.followers.states = {}
        self.end_delayed_requests()
