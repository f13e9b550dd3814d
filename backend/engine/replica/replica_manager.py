"""The replicas of one broker: which there are, who leads and follows them, and the requests that wait for them.

`on_metadata` turns images into roles (`role_changes`). Handlers find partitions here and append, fetch and wait.
Everything runs on the loop's thread. Facts: Kafka's `ReplicaManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.common.event_sink import EventSink
from backend.engine.common.rates import Windows
from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import (
    EMPTY_IMAGE,
    MetadataImage,
)
from backend.engine.log.config import LogConfig
from backend.engine.log.log_manager import LogManager
from backend.engine.log.unified_log import AppendInfo, Origin
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import Clock, Ports, tasks
from backend.engine.replica.alter_partition_manager import AlterPartitionManager
from backend.engine.replica.assignments_manager import AssignmentsManager
from backend.engine.replica.deadlines import Deadlines
from backend.engine.replica.delayed_remote import DelayedRemoteListOffsets
from backend.engine.replica.fetch_reads import FetchReads
from backend.engine.replica.fetchers.fetch_state import FetchState
from backend.engine.replica.fetchers.leader_end_point import ConnectToLeader
from backend.engine.replica.fetchers.replica_fetcher_manager import ReplicaFetcherManager
from backend.engine.replica.log_dir_moves import LogDirMoves
from backend.engine.replica.offset_lookup import OffsetQuery, OffsetResult
from backend.engine.replica.partition import Partition
from backend.engine.replica.purgatory import DelayedDeleteRecords, DelayedProduce, Purgatory
from backend.engine.replica.remote_logs import RemoteLogs
from backend.engine.replica.replica_metrics import register_replica_metrics
from backend.engine.replica.replica_progress import IsrProposal
from backend.engine.replica.replication_quota import ReplicationQuota
from backend.engine.replica.role_changes import HostedPartitions, RoleChanges
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicIdPartition, TopicPartition

NO_BROKER_EPOCH: Final = -1

_log = logging.getLogger(__name__)


class ReplicaManager:
    """Use: `start`, then `on_metadata` for every image, `shutdown`."""

    def __init__(
        self,
        *,
        node_id: int,
        config: BrokerConfig,
        ports: Ports,
        log_manager: LogManager,
        controller_channel: ControllerChannel,
        connect_to_leader: ConnectToLeader,
        events: EventSink,
        metrics: BrokerMetrics,
        remote_logs: RemoteLogs | None = None,
    ) -> None:
        self.node_id = node_id
        self.image: MetadataImage = EMPTY_IMAGE
        self.config = config
        self.events = events
        self.log_manager = log_manager
        # Set before `start` when tiered storage is on.
        self.remote_logs = remote_logs
        self._ports = ports
        self._metrics = metrics
        self._hosted = HostedPartitions()
        self._partitions, self._partitions_by_id = self._hosted.by_name, self._hosted.by_id
        self._fetchers = ReplicaFetcherManager(self, connect_to_leader)
        self._deadlines = Deadlines(ports.clock)
        self.purgatory = Purgatory(self._deadlines)
        self.reads = FetchReads(self.purgatory, lambda: self.remote_logs, lambda: self.config, self.settle)
        self._alter_partition = AlterPartitionManager(node_id, lambda: self.broker_epoch, controller_channel)
        self._directories = AssignmentsManager(node_id, lambda: self.broker_epoch, controller_channel)
        windows = Windows(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)
        self.leader_quota = ReplicationQuota("leader", node_id, windows)
        self.follower_quota = ReplicationQuota("follower", node_id, windows)
        self.log_dir_moves = LogDirMoves(
            log_manager,
            self._directories.submit,
            clock=ports.clock,
            windows=Windows(
                config.alter_log_dirs_replication_quota_window_num,
                config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
            ),
            settings=lambda: self.image.broker_config(node_id),
        )
        self._to_wake: dict[Partition, None] = {}
        self._shrinking: tasks.Task[None] | None = None
        self.isr_expands = 0
        self.isr_shrinks = 0
        self._roles = RoleChanges(self, self._hosted, self._fetchers, self._directories, metrics, config)
        register_replica_metrics(self, metrics)

    # --- life

    def start(self) -> None:
        """Begins background work; `on_metadata` brings the replicas."""
        self._alter_partition.start()
        self._directories.start()
        self.log_manager.on_offline = lambda log, reason: tasks.call_soon(
            lambda: self._roles.log_went_offline(log, reason)
        )
        self._shrinking = tasks.spawn(self._shrink_isrs(), name=f"ISR check of broker {self.node_id}")

    async def keep_isr(self) -> None:
        """Proposes no ISR any more: all brokers are about to stop, and who is gone first is not late."""
        await tasks.cancel(self._shrinking)
        await self._alter_partition.stop()

    async def shutdown(self) -> None:
        """Follows and leads nothing any more and answers what waits; logs stay open for the log manager to close."""
        self.log_manager.on_offline = None
        await tasks.cancel(self._shrinking)
        await self._alter_partition.stop()
        await self._directories.stop()
        await self.log_dir_moves.shutdown()
        await self._fetchers.shutdown()
        for partition in self._partitions.values():
            partition.close()
        await self._roles.settled()
        self._deadlines.close()

    async def _shrink_isrs(self) -> None:
        while True:
            await tasks.sleep_ms(self.config.replica_lag_time_max_ms / 2)
            for partition in list(self._partitions.values()):
                partition.shrink_isr()

    # --- what partitions and fetchers need of their broker

    @property
    def clock(self) -> Clock:
        return self._ports.clock

    @property
    def broker_epoch(self) -> int:
        """Epoch of this broker's registration, -1 before metadata shows it."""
        broker = self.image.broker(self.node_id)
        return NO_BROKER_EPOCH if broker is None else broker.epoch

    @property
    def aux_states(self) -> RemoteLogs | None:
        return self.remote_logs

    def wake(self, partition: Partition) -> None:
        """Settles the partition's waiting requests after the present callback, unless `settle` comes before."""
        if not self._to_wake:
            tasks.call_soon(self.settle)
        self._to_wake[partition] = None

    def settle(self) -> None:
        """Settles now what is due after the present callback: who waits is told, and begins nothing yet."""
        changed, self._to_wake = self._to_wake, {}
        for partition in changed:
            try:
                partition.complete_delayed_requests()
            except Exception:  # one partition's trouble is not to stop the others, nor who settles in the middle
                _log.exception("%s could not answer the requests that wait for it", partition)

    def propose_isr(self, proposal: IsrProposal) -> None:
        """Sends an ISR change to the controller."""
        if len(proposal.members) > len(proposal.partition.isr.committed):
            self.isr_expands += 1
        else:
            self.isr_shrinks += 1
        self._alter_partition.submit(proposal)

    def replicated(self, partition: TopicPartition, bytes_in: int) -> None:
        """Counts bytes appended as a follower."""
        self._metrics.all_topics.replicationbytesin += bytes_in
        if self.follower_quota.is_throttled(partition.topic, partition.partition):
            self.follower_quota.record(bytes_in, self.clock.monotonic_ms())

    def sent_to_follower(self, partition: TopicPartition, bytes_out: int) -> None:
        """Counts bytes answered to a follower."""
        if self.leader_quota.is_throttled(partition.topic, partition.partition):
            self.leader_quota.record(bytes_out, self.clock.monotonic_ms())

    # --- partitions

    @property
    def partitions(self) -> Iterable[Partition]:
        """Every partition hosted here with a usable log."""
        return self._partitions.values()

    def partition(self, topic: str, index: int) -> Partition:
        """A hosted partition. Raises 56 when its log is unusable, 6 when only others have it, 3 when there is none."""
        found = self.find(topic, index)
        if isinstance(found, Partition):
            return found
        reason = self._hosted.broken.get((topic, index)) or f"broker {self.node_id} has no replica of {topic}-{index}"
        raise KafkaError(found, reason)

    def find(self, topic: str, index: int) -> Partition | ErrorCode:
        """As :meth:`partition`, with the error as a value."""
        found = self._partitions.get((topic, index))
        return self.why_absent(topic, index) if found is None else found

    def why_absent(self, topic: str, index: int) -> ErrorCode:
        """The error for a partition that is not served here."""
        if (topic, index) in self._hosted.broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.image.partition(topic, index) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        """As :meth:`find`; 100 when there is no topic with the id."""
        found = self._partitions_by_id.get((topic_id, index))
        if found is not None:
            return found
        topic = self.image.topics.get(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if topic is None else self.find(topic.name, index)

    @property
    def broken_partitions(self) -> dict[TopicPartition, str]:
        """Replicas that metadata puts here and that cannot be used, with the reason."""
        return {TopicPartition(topic, index): reason for (topic, index), reason in self._hosted.broken.items()}

    def fetch_state(self, tip: TopicIdPartition) -> FetchState | None:
        """Where a followed partition stands; None when it is not followed."""
        return self._fetchers.state_of(tip)

    def max_lag(self) -> int:
        """The largest known lag of a replica that follows, in records."""
        return self._fetchers.max_lag()

    # --- appends and waiting for them

    def wait_for_acks(
        self,
        required: list[tuple[int, Partition, int]],
        timeout_ms: float,
        answer: Callable[[dict[int, ErrorCode]], None],
    ) -> None:
        """Calls `answer` once, with errors by index, when each (index, partition, offset) is acknowledged or late."""
        pending = []
        errors: dict[int, ErrorCode] = {}
        for index, partition, offset in required:
            error = partition.acknowledged(offset)
            if error is None:
                pending.append((index, partition, offset))
            elif error is not ErrorCode.NONE:
                errors[index] = error
        if not pending:
            answer(errors)
            return
        DelayedProduce(self.purgatory, pending, max(0.0, timeout_ms), lambda late: answer(errors | late))

    async def append(
        self,
        partition: TopicPartition,
        records: memoryview,
        *,
        acks: int = -1,
        timeout_ms: float = 5000,
        origin: Origin = "coordinator",
        appended: Callable[[], None] | None = None,
    ) -> AppendInfo:
        """Appends records of this broker's own parts and waits for the ISR. Raises KafkaError.

        `appended` is called before anything else can happen once they are in the log here.
        """
        hosted = self.partition(partition.topic, partition.partition)
        info = hosted.append(records, acks=acks, origin=origin)
        if appended is not None:
            appended()
        if acks == -1:
            done: tasks.Future[dict[int, ErrorCode]] = tasks.future()
            self.wait_for_acks([(0, hosted, info.last_offset + 1)], timeout_ms, lambda errors: _resolve(done, errors))
            errors = await done
            if errors:
                raise KafkaError(errors[0], f"records appended to {partition} were not acknowledged")
        return info

    def wait_for_deletes(
        self,
        required: list[tuple[int, Partition, int]],
        timeout_ms: float,
        answer: Callable[[dict[int, tuple[ErrorCode, int]]], None],
    ) -> None:
        """Calls `answer` once with (error, low watermark) by index."""
        waiting = DelayedDeleteRecords(self.purgatory, required, max(0.0, timeout_ms), answer)
        for _, partition, _ in required:
            waiting.poke(partition)

    def search_offsets(
        self,
        asked: Sequence[tuple[Partition, OffsetQuery]],
        timeout_ms: float | None,
        answer: Callable[[list[OffsetResult | KafkaError]], None],
    ) -> None:
        """Looks for times in both tiers and calls `answer` once with what was found by then, in order (KIP-1075).
        Without a timeout of the client's it is ``remote.list.offsets.request.timeout.ms``.
        """
        assert self.remote_logs is not None
        delay_ms = self.config.remote_list_offsets_request_timeout_ms if timeout_ms is None else timeout_ms
        DelayedRemoteListOffsets(self.purgatory, self.remote_logs, asked, delay_ms, answer)

    # --- metadata

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> Iterator[None]:
        """Carries out what the new image says about this broker's replicas, one image after the other.

        To be iterated to its end: after each step other callbacks may run. A few replicas take no step at all.
        """
        return self._roles.on_metadata(old, new)

    def topic_config(self, topic: str) -> LogConfig:
        """The settings in force for a topic's logs on this broker."""
        return self._roles.topic_config(topic)


def _resolve(done: tasks.Future[dict[int, ErrorCode]], errors: dict[int, ErrorCode]) -> None:
    if not done.done():
        done.set_result(errors)
