"""The remote log manager of one broker: whose turn it is to copy, expire, follow and read (KIP-405;
`RemoteLogManager`).

Every led partition has a copy task and an expiration task, every followed one a follower task. Each runs, waits a
fixed delay, and runs again until the partition's role changes; pools bound how many run at once. Reads by consumers
and look-ups by time share the reader pool, whose queue is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from backend.engine.log.log_errors import OffsetOutOfRange
from backend.engine.log.segments.timestamp_search import TimestampedOffset
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import tasks
from backend.engine.remote.bounded_pool import BoundedPool, PoolFull
from backend.engine.remote.manager import remote_read, remote_timestamp_search
from backend.engine.remote.manager.copy_task import CopyTask
from backend.engine.remote.manager.expiration_task import ExpirationTask
from backend.engine.remote.manager.failure_log import FailureLimit, FailureLog
from backend.engine.remote.manager.partition_remover import PartitionRemover
from backend.engine.remote.manager.remote_aux_state import AuxState, read_aux_state
from backend.engine.remote.manager.remote_read import RemoteRead
from backend.engine.remote.manager.segment_deletion import delete_partition
from backend.engine.remote.manager.task_loop import FollowerTask, TaskKind, TaskLoop, delay_ms
from backend.engine.remote.manager.tier import PartitionView, Tier
from backend.engine.remote.metadata.metadata_scan import MetadataScan
from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC, MetadataTopic
from backend.engine.remote.remote_meters import RemoteMeters
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageError, RemoteStorageManager
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicIdPartition

# Time that a read waits for metadata that is still being read before it fails (`RemotePartitionMetadataStore`).
METADATA_WAIT_MS: Final = 100
# Time that deleting a topic's remote data waits for metadata: a restarted leader may just be reading it.
DELETE_WAIT_MS: Final = 30_000
# A partition whose reads fail reports it this often: of 1,000 partitions 100 events a second, 30 kB.
READ_EVENT_INTERVAL_MS: Final = 10_000
# Copies in flight may finish before a broker stops; what they leave otherwise is copied again.
CLOSE_WAIT_MS: Final = 3000

T = TypeVar("T")

_log = logging.getLogger(__name__)


def _nobody_asks() -> None:
    """Whether a read has begun."""


class RemoteLogManager:
    """The remote tier as the other parts of a broker use it. Construct only where the tier is switched on."""

    def __init__(self, tier: Tier, deleted: tasks.Queue[TopicIdPartition] | None) -> None:
        """`deleted`: hosted partitions whose topic is deleted, as the metadata topic says.

        None for metadata managers other than the topic-based one, whose partitions have no leader, so that there is no
        partition remover: leaders delete the remote data of deleted topics themselves, as Kafka's do.
        """
        self._tier = tier
        self._failures = FailureLog(tier.ports.clock)
        self._failed_reads = FailureLimit(tier.ports.clock, READ_EVENT_INTERVAL_MS)
        self._deletes_inline = deleted is None
        self._deleted_by_topic = deleted
        self._ending_deleted: tasks.Task[None] | None = None
        config = tier.config
        self._copiers = BoundedPool(lambda: config().remote_log_manager_copier_thread_pool_size)
        self._expirers = BoundedPool(lambda: config().remote_log_manager_expiration_thread_pool_size)
        self._followers = BoundedPool(lambda: config().remote_follower_pool_size)
        self._readers = BoundedPool(
            lambda: config().remote_log_reader_threads,
            pending_max=config().remote_log_reader_max_pending_tasks,
        )
        # The tasks of every hosted tiered partition.
        self._hosted: dict[TopicIdPartition, dict[TaskKind, TaskLoop]] = {}
        self._ending: set[TaskLoop] = set()
        # Under way: removals of all that is remote of a partition.
        self._deletions: dict[tasks.Task[None], TopicIdPartition] = {}
        # Hosted partitions that the metadata topic calls deleted.
        self._deleted: set[TopicIdPartition] = set()
        self._closing = tasks.Event()

    async def start(self) -> None:
        """Takes over the index files of an earlier run and begins to read metadata; call it once the broker serves."""
        await self._tier.indexes.load()
        await self.apply_settings()
        if self._deleted_by_topic is not None:
            following = self._follow_deletions(self._deleted_by_topic)
            self._ending_deleted = tasks.spawn(following, name=f"deleted partitions of broker {self._tier.broker_id}")
        self._tier.metadata.start()

    async def _follow_deletions(self, deleted: tasks.Queue[TopicIdPartition]) -> None:
        while True:
            self.end_deleted(await deleted.get())

    async def apply_settings(self) -> None:
        """Takes over what changed of the settings in force and is not read again with every use."""
        await self._tier.indexes.resize(self._tier.config().remote_log_index_file_cache_total_size_bytes)
        for pool in (self._copiers, self._expirers, self._followers, self._readers):
            pool.resized()

    # Roles

    def on_leadership_change(
        self,
        leaders: Iterable[PartitionView],
        followers: Iterable[PartitionView],
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> None:
        """These partitions are led or followed by this broker now. Repeating it is harmless; call it too when a topic's
        settings change. Partitions that are not tiered are ignored.
        """
        leading = [view for view in leaders if view.log.remote_enabled]
        following = [view for view in followers if view.log.remote_enabled]
        self._tier.metadata.on_partition_leadership_changes(
            [view.topic_id_partition for view in leading], [view.topic_id_partition for view in following]
        )
        for view in following:
            self._host(view, (TaskKind.FOLLOWING,))
        for view in leading:
            copying = not view.log.config.remote_log_copy_disable
            self._host(view, (TaskKind.COPY, TaskKind.EXPIRATION) if copying else (TaskKind.EXPIRATION,))

    def _host(self, view: PartitionView, kinds: tuple[TaskKind, ...]) -> None:
        """Ends the tasks that the partition's role and settings no longer want and starts those that are missing."""
        partition, meters = view.topic_id_partition, self._tier.meters
        if partition in self._deleted:
            return
        held = self._hosted.setdefault(partition, {})
        for kind in [kind for kind, loop in held.items() if kind not in kinds or loop.task.cancelled]:
            self._end(held.pop(kind))
        if TaskKind.FOLLOWING in kinds:
            meters.forget(partition)
        elif TaskKind.COPY not in kinds:
            meters.gauges(partition).clear_copy_lag()
        for kind in kinds:
            if kind not in held:
                held[kind] = self._begin(kind, view)

    def _begin(self, kind: TaskKind, view: PartitionView) -> TaskLoop:
        tier = self._tier
        if kind is TaskKind.COPY:
            return TaskLoop(CopyTask(view, tier), self._copiers, tier, kind)
        if kind is TaskKind.EXPIRATION:
            return TaskLoop(ExpirationTask(view, tier), self._expirers, tier, kind)
        return TaskLoop(FollowerTask(view, tier), self._followers, tier, kind)

    def _end(self, loop: TaskLoop, *, deleted: bool = False) -> None:
        """Until its run has ended `close` knows of it, and forces it when it must."""
        loop.stop(deleted=deleted)
        if loop in self._ending:
            return
        self._ending.add(loop)
        tasks.spawn(self._forget_ended(loop), name=f"end of {loop.task.partition}")

    async def _forget_ended(self, loop: TaskLoop) -> None:
        await loop.stopped()
        self._ending.discard(loop)

    def end_deleted(self, partition: TopicIdPartition) -> None:
        """The metadata topic says that a hosted partition's topic is deleted, which a broker that is cut off from the
        controller has not heard.

        Nothing more is copied. Copies that the remover has not seen begin after its mark: their leader has read the
        mark before it stores anything, and takes them back.
        """
        if partition not in self._hosted or partition in self._deleted:
            return
        _log.info("%s is deleted, as %s tells: nothing more of it is copied", partition, METADATA_TOPIC)
        self._deleted.add(partition)
        for loop in self._hosted[partition].values():
            loop.stop(deleted=True)

    def stop_partitions(
        self, tips: Iterable[TopicIdPartition], *, delete_remote: bool, topic_deleted: bool = False
    ) -> Coroutine[Any, Any, None]:
        """This broker does not host the partitions any more, or they are not tiered any more, from this call on; the
        coroutine ends once nothing of theirs runs here.

        With `delete_remote` (this broker led them, and their topic is deleted, or tiering was switched off with that
        wish) their remote data goes first; it is tried until it is done, the partition is hosted again, or it is tiered
        again under another leader. Of a deleted
        topic (`topic_deleted`) the partition remover takes what is remote; a copy under way is taken back here.
        """
        delete_remote = delete_remote and (self._deletes_inline or not topic_deleted)
        stopped = list(tips)
        ending: list[TaskLoop] = []
        for partition in stopped:
            self._deleted.discard(partition)
            loops = list(self._hosted.pop(partition, {}).values())
            loops.extend(loop for loop in self._ending if loop.task.partition == partition)
            for loop in loops:
                self._end(loop, deleted=topic_deleted)
            ending.extend(loops)
            self._tier.meters.forget(partition)
        if delete_remote:
            self._tier.deleting.update(stopped)
        return self._end_partitions(stopped, ending, delete_remote=delete_remote)

    async def _end_partitions(
        self, stopped: list[TopicIdPartition], ending: list[TaskLoop], *, delete_remote: bool
    ) -> None:
        try:
            for loop in ending:
                await loop.stopped()
            if delete_remote:
                await tasks.gather(self._delete_until_tiered(partition) for partition in stopped)
        finally:
            if delete_remote:
                self._tier.deleting.difference_update(stopped)
        self._tier.metadata.on_stop_partitions([tip for tip in stopped if tip not in self._hosted])

    def tiered_again(self, is_tiered: Callable[[TopicIdPartition], bool]) -> None:
        """Ends deletions of these partitions' remote data by brokers that do not lead them: the data is tiered again.

        A leader that had begun goes on, and copies nothing until it is done. Half deleted segments are finished by the
        new leader's retention. Kafka's old leader goes on deleting, even segments that the new one has counted as
        copied and dropped from its disk.
        """
        for deletion, partition in self._deletions.items():
            if is_tiered(partition) and TaskKind.EXPIRATION not in self._hosted.get(partition, {}):
                _log.info("%s is tiered again: what is remote of it stays", partition)
                deletion.cancel()

    async def _delete_until_tiered(self, partition: TopicIdPartition) -> None:
        deletion = tasks.start(self._delete(partition), name=f"deletion of {partition}")
        self._deletions[deletion] = partition
        try:
            await tasks.first([deletion])
        finally:
            deletion.cancel()
            del self._deletions[deletion]
        if not deletion.cancelled():
            deletion.result()

    async def _delete(self, partition: TopicIdPartition) -> None:
        failures = 0
        while partition not in self._hosted and not self._closing.is_set():
            try:
                await self._tier.metadata.wait_ready(partition, DELETE_WAIT_MS)
                await delete_partition(self._tier, partition)
                return
            except (RemoteStorageError, KafkaError) as error:
                failures += 1
                pause_ms = delay_ms(failures, self._tier.config(), self._tier.ports.random)
                _log.error(
                    "Remote data of %s, which goes as a whole, could not be removed; next try in %d ms: %s",
                    partition, pause_ms, error,
                )  # fmt: skip
                with suppress(tasks.Timeout):
                    await tasks.wait_for(self._closing.wait(), pause_ms)

    def remover(
        self, topic: MetadataTopic, scan: MetadataScan, led: Callable[[], Collection[int]], log_dir: str
    ) -> PartitionRemover:
        """Makes the remover of deleted partitions' remote data, for metadata partitions that this broker leads."""
        return PartitionRemover(self._tier, topic, scan, led, log_dir)

    # Queries

    @property
    def storage(self) -> RemoteStorageManager:
        """The storage plug-in in use."""
        return self._tier.storage

    @property
    def meters(self) -> RemoteMeters:
        """The counters, and the gauges of led partitions."""
        return self._tier.meters

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether remote metadata of the partition has been read up to its end."""
        return self._tier.metadata.is_ready(partition)

    def hosts(self, partition: TopicIdPartition) -> bool:
        """Whether the partition is tiered and hosted here."""
        return partition in self._hosted

    @property
    def reader_queue_size(self) -> int:
        """Reads that wait for a reader."""
        return self._readers.pending

    @property
    def reader_idle_fraction(self) -> float:
        return self._readers.idle_fraction

    @property
    def copier_idle_fraction(self) -> float:
        return self._copiers.idle_fraction

    # Reading

    async def read(
        self,
        log: UnifiedLog,
        fetch_offset: int,
        max_bytes: int,
        *,
        min_one_message: bool,
        read_committed: bool,
        begun: Callable[[], object] = _nobody_asks,
    ) -> RemoteRead:
        """Records from the remote tier for a consumer; see :func:`remote_read.read`. `begun` is called when a reader is
        free for it; until then it can be taken back by cancelling it.

        Raises KafkaError: OFFSET_OUT_OF_RANGE, REPLICA_NOT_AVAILABLE, or UNKNOWN_SERVER_ERROR for a failure of the
        storage and when too many reads wait already.
        """
        partition, meters, clock = log.topic_id_partition, self._tier.meters, self._tier.ports.clock
        meters.mark(partition.topic, "remotefetchrequests")

        def failed(error: Exception) -> None:
            meters.mark(partition.topic, "remotefetcherrors")
            self._failures.warn(f"Remote read of {partition}", f"at offset {fetch_offset}", error)
            left_out = self._failed_reads.left_out(str(partition))
            if left_out is not None:
                self._tier.events.emit(
                    "remote_read",
                    topic=partition.topic,
                    topic_id=partition.topic_id,
                    partition=partition.partition,
                    offset=fetch_offset,
                    failures=left_out + 1,
                    error=str(error),
                )

        async def work() -> RemoteRead:
            started_ms = clock.monotonic_ms()
            try:
                result = await remote_read.read(
                    self._tier,
                    log,
                    fetch_offset,
                    max_bytes,
                    min_one_message=min_one_message,
                    read_committed=read_committed,
                )
            finally:
                meters.reads.record(clock.monotonic_ms() - started_ms)
            meters.mark(partition.topic, "remotefetchbytes", len(result.records))
            self._tier.fetch_quota.record(len(result.records))
            return result

        return await self._on_reader(partition, work, failed, begun)

    def throttle_fetch(self) -> bool:
        """Whether reads of the remote tier have used up their quota for now (KIP-956); the wait counts as throttled."""
        quota = self._tier.fetch_quota
        throttle_ms = quota.throttle_ms()
        if throttle_ms:
            quota.throttled.record(throttle_ms)
        return throttle_ms > 0

    async def offset_for_timestamp(self, log: UnifiedLog, timestamp: int) -> TimestampedOffset | None:
        """The first record with at least this timestamp, in either tier. Raises KafkaError like :meth:`read`. When the
        caller is cancelled the search ends after the call to the storage that it is at.
        """
        partition = log.topic_id_partition

        def failed(error: Exception) -> None:
            self._tier.meters.look_up_errors += 1
            self._failures.warn(f"Look-up by time in the remote tier of {partition}", f"for {timestamp}", error)

        async def work() -> TimestampedOffset | None:
            return await remote_timestamp_search.offset_for_timestamp(self._tier, log, timestamp)

        return await self._on_reader(partition, work, failed)

    async def _on_reader(
        self,
        partition: TopicIdPartition,
        work: Callable[[], Awaitable[T]],
        failed: Callable[[Exception], None],
        begun: Callable[[], object] = _nobody_asks,
    ) -> T:
        """Runs `work` on the reader pool, and calls `begun` when it starts. `failed` is called with errors other than
        OffsetOutOfRange.
        """

        async def when_ready() -> T:
            begun()
            try:
                await self._tier.metadata.wait_ready(partition, METADATA_WAIT_MS)
                return await work()
            except OffsetOutOfRange:
                raise
            except (KafkaError, RemoteStorageError) as error:
                failed(error)
                raise

        try:
            return await self._readers.run(when_ready)
        except PoolFull as error:
            failed(error)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"too many remote reads wait: {error}") from error
        except RemoteStorageError as error:
            # None of the storage's errors has a code in Kafka's protocol.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    async def aux_state(self, tip: TopicIdPartition, epoch: int, offset: int) -> AuxState:
        """Reads the state that a follower needs to start behind the segment with this record.

        See :func:`backend.engine.remote.manager.remote_aux_state.read_aux_state` for the errors.
        """
        return await read_aux_state(self._tier, tip, epoch, offset)

    async def wait_ready(self, tip: TopicIdPartition, timeout_ms: float) -> bool:
        """Whether the partition's metadata has been read up to its end, after waiting for it."""
        return await self._tier.metadata.wait_ready(tip, timeout_ms)

    async def close(self) -> None:
        """Ends all tasks, the metadata manager and the storage."""
        self._closing.set()
        await tasks.cancel(self._ending_deleted)
        loops = [loop for held in self._hosted.values() for loop in held.values()] + list(self._ending)
        self._hosted.clear()
        for loop in loops:
            loop.stop()
        await tasks.gather(loop.stopped(CLOSE_WAIT_MS) for loop in loops)
        await self._tier.metadata.close()
        await self._tier.workers.run(self._tier.storage.close)
