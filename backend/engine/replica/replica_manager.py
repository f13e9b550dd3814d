"""The replicas of one broker: which there are, who leads and follows them, and the requests that wait for them.

`on_metadata` turns images into roles (`role_changes`). Handlers find partitions here and append, fetch and wait.
Everything runs on the loop's thread. Kafka: `ReplicaManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from backend.engine.common.controller_channel import ControllerChannel
from backend.engine.common.event_sink import EventSink
from backend.engine.common.rates import Windows
from backend.engine.config import BrokerConfig
from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.log.log_appender import AppendInfo, Origin
from backend.engine.log.log_config import LogConfig
from backend.engine.log.manager.log_manager import LogManager
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import Ports, tasks
from backend.engine.replica.action_queue import ActionQueue
from backend.engine.replica.alter_partition_manager import AlterPartitionManager
from backend.engine.replica.applied_metadata import AppliedMetadata
from backend.engine.replica.assignments_manager import AssignmentsManager
from backend.engine.replica.deadlines import Deadlines
from backend.engine.replica.delayed_remote import DelayedRemoteListOffsets
from backend.engine.replica.fetch_reads import FetchReads
from backend.engine.replica.fetchers.fetch_state import FetchState
from backend.engine.replica.fetchers.leader_end_point import ConnectToLeader
from backend.engine.replica.fetchers.replica_fetcher_manager import ReplicaFetcherManager
from backend.engine.replica.hosted_partitions import HostedPartitions
from backend.engine.replica.log_dir_moves import LogDirMoves
from backend.engine.replica.offset_lookup import OffsetQuery, OffsetResult
from backend.engine.replica.partition import Partition
from backend.engine.replica.partition_context import PartitionContext
from backend.engine.replica.purgatory import DelayedDeleteRecords, DelayedProduce, Purgatory
from backend.engine.replica.remote_logs import RemoteLogs
from backend.engine.replica.replica_metrics import register_replica_metrics
from backend.engine.replica.replication_quota import ReplicationQuota
from backend.engine.replica.role_changes import RoleChanges
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicIdPartition, TopicPartition

# Length, throttle time, error, session, and no partition: twice a second from each follower that waits.
EMPTY_FETCH_RESPONSE_BYTES: Final = 16

_log = logging.getLogger(__name__)


class ReplicaManager:
    """Use: `start`, then `on_metadata` for every image, `shutdown`."""

    def __init__(
        self,
        metadata: AppliedMetadata,
        *,
        ports: Ports,
        log_manager: LogManager,
        controller_channel: ControllerChannel,
        connect_to_leader: ConnectToLeader,
        events: EventSink,
        metrics: BrokerMetrics,
        remote_logs: RemoteLogs | None,
    ) -> None:
        """`remote_logs`: None when tiered storage is off."""
        self.node_id = metadata.node_id
        self.log_manager = log_manager
        self.remote_logs = remote_logs
        self._metadata = metadata
        self.clock = ports.clock
        config, node_id = metadata.config, metadata.node_id
        windows = Windows(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)
        self.leader_quota = ReplicationQuota("leader", node_id, windows)
        self.follower_quota = ReplicationQuota("follower", node_id, windows)
        self._hosted = HostedPartitions(metadata)
        self._partitions = self._hosted.by_name
        self._isr_changes = AlterPartitionManager(metadata, self._hosted, controller_channel)
        self._assignments = AssignmentsManager(metadata, controller_channel)
        context = PartitionContext(
            metadata=metadata,
            clock=ports.clock,
            actions=ActionQueue(),
            isr_changes=self._isr_changes,
            leader_quota=self.leader_quota,
            follower_quota=self.follower_quota,
            events=events,
            metrics=metrics,
            remote_logs=remote_logs,
        )
        self._fetchers = ReplicaFetcherManager(context, connect_to_leader)
        self._deadlines = Deadlines(ports.clock)
        self.purgatory = Purgatory(self._deadlines)
        self.reads = FetchReads(self.purgatory, context)
        self.log_dir_moves = LogDirMoves(
            log_manager,
            self._assignments,
            metadata,
            clock=ports.clock,
            windows=Windows(
                config.alter_log_dirs_replication_quota_window_num,
                config.alter_log_dirs_replication_quota_window_size_seconds * 1000,
            ),
        )
        self._roles = RoleChanges(
            context, self._hosted, self._fetchers, self._assignments, log_manager, self.log_dir_moves
        )
        self._shrinking: tasks.Task[None] | None = None
        self._following_logs: tasks.Task[None] | None = None
        register_replica_metrics(metrics, self._fetchers, self.purgatory, self._isr_changes)

    # --- life

    def start(self) -> None:
        """Begins background work; `on_metadata` brings the replicas."""
        self._isr_changes.start()
        self._assignments.start()
        self._following_logs = tasks.spawn(self._follow_logs(), name=f"changed logs of broker {self.node_id}")
        self._shrinking = tasks.spawn(self._shrink_isrs(), name=f"ISR check of broker {self.node_id}")

    async def freeze_isr(self) -> None:
        """Proposes no ISR any more: all brokers are about to stop, and the first one to go is not late."""
        await tasks.cancel(self._shrinking)
        await self._isr_changes.stop()

    async def shutdown(self) -> None:
        """Follows and leads nothing any more and answers delayed requests; logs stay open for the log manager."""
        await tasks.cancel(self._following_logs)
        await tasks.cancel(self._shrinking)
        await self._isr_changes.stop()
        await self._assignments.stop()
        await self.log_dir_moves.shutdown()
        await self._fetchers.shutdown()
        for partition in self._partitions.values():
            partition.close()
        await self._roles.stopped()
        self._deadlines.close()

    async def _follow_logs(self) -> None:
        while True:
            log = await self.log_manager.changed_logs.next()
            try:
                self._roles.log_changed(log)
            except Exception:  # the next change has to be handled all the same
                _log.exception("The partition of %s could not follow its log", log)

    async def _shrink_isrs(self) -> None:
        while True:
            await tasks.sleep_ms(self.config.replica_lag_time_max_ms / 2)
            for partition in list(self._partitions.values()):
                partition.shrink_isr()

    # --- metadata

    @property
    def image(self) -> MetadataImage:
        """The metadata that the replicas have carried out."""
        return self._metadata.image

    @property
    def config(self) -> BrokerConfig:
        """The settings in force, dynamic ones included."""
        return self._metadata.config

    def on_metadata(self, old: MetadataImage, new: MetadataImage) -> Iterator[None]:
        """Carries out what the new image says about this broker's replicas, one image after the other.

        To be iterated to its end: after each step other callbacks may run. A few replicas take no step at all.
        """
        return self._roles.on_metadata(old, new)

    def topic_config(self, topic: str) -> LogConfig:
        """The settings in force for a topic's logs on this broker."""
        return self._roles.topic_configs.of(topic)

    # --- partitions

    @property
    def partitions(self) -> Iterable[Partition]:
        """Every partition hosted here with a usable log."""
        return self._partitions.values()

    def partition(self, topic: str, index: int) -> Partition:
        """A hosted partition. Raises 56 when its log is unusable, 6 when only others have it, 3 when there is none."""
        return self._hosted.partition(topic, index)

    def find(self, topic: str, index: int) -> Partition | ErrorCode:
        """As :meth:`partition`, with the error as a value."""
        partition = self._partitions.get((topic, index))
        return self._hosted.why_absent(topic, index) if partition is None else partition

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        """As :meth:`find`; 100 when there is no topic with the id."""
        return self._hosted.find_by_id(topic_id, index)

    @property
    def broken_partitions(self) -> dict[TopicPartition, str]:
        """Replicas that metadata puts here and that cannot be used, with the reason."""
        return self._hosted.broken_partitions

    def fetch_state(self, tip: TopicIdPartition) -> FetchState | None:
        """The position and phase of a followed partition; None when it is not followed."""
        return self._fetchers.state_of(tip)

    def count_response_to_follower(self) -> None:
        """Counts the frame of a response to a follower, as Kafka's sizeOfThrottledPartitions does: a limit below 32
        bytes a second lets nothing through.
        """
        self.leader_quota.record(EMPTY_FETCH_RESPONSE_BYTES, self.clock.monotonic_ms())

    def count_sent_to_follower(self, partition: TopicPartition, bytes_out: int) -> None:
        """Counts bytes answered to a follower."""
        if self.leader_quota.is_throttled(partition.topic, partition.partition):
            self.leader_quota.record(bytes_out, self.clock.monotonic_ms())

    # --- appends and waiting for them

    def wait_for_acks(
        self,
        required: list[tuple[int, Partition, int]],
        timeout_ms: float,
        respond: Callable[[dict[int, ErrorCode]], None],
    ) -> None:
        """Calls `respond` once, with errors by index, when each (index, partition, offset) is acknowledged or late."""
        pending = []
        errors: dict[int, ErrorCode] = {}
        for index, partition, offset in required:
            error = partition.acknowledged(offset)
            if error is None:
                pending.append((index, partition, offset))
            elif error is not ErrorCode.NONE:
                errors[index] = error
        if not pending:
            respond(errors)
            return
        DelayedProduce(self.purgatory, pending, max(0.0, timeout_ms), lambda late: respond(errors | late))

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
        """Appends records of this broker's coordinators and waits for the ISR. Raises KafkaError.

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
        respond: Callable[[dict[int, tuple[ErrorCode, int]]], None],
    ) -> None:
        """Calls `respond` once with (error, low watermark) by index."""
        delayed = DelayedDeleteRecords(self.purgatory, required, max(0.0, timeout_ms), respond)
        for _, partition, _ in required:
            delayed.try_complete(partition)

    def search_offsets(
        self,
        queries: Sequence[tuple[Partition, OffsetQuery]],
        timeout_ms: float | None,
        respond: Callable[[list[OffsetResult | KafkaError]], None],
    ) -> None:
        """Looks for times in both tiers and calls `respond` once with the results until then, in order (KIP-1075).

        Without a timeout from the client it is ``remote.list.offsets.request.timeout.ms``.
        """
        assert self.remote_logs is not None
        delay_ms = self.config.remote_list_offsets_request_timeout_ms if timeout_ms is None else timeout_ms
        DelayedRemoteListOffsets(self.purgatory, self.remote_logs, queries, delay_ms, respond)


def _resolve(done: tasks.Future[dict[int, ErrorCode]], errors: dict[int, ErrorCode]) -> None:
    if not done.done():
        done.set_result(errors)
