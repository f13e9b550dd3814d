"""The remote log manager of one broker: whose turn it is to copy, expire, follow and read (KIP-405;
`RemoteLogManager`).

Every led partition has a copy task and an expiration task, every followed one a follower task. Each runs, waits a
fixed delay, and runs again until the partition's role changes; pools bound how many run at once. Reads by consumers
and look-ups by time share the reader pool, whose queue is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from backend.engine.config import BrokerConfig
from backend.engine.log.errors import OffsetOutOfRange
from backend.engine.log.timestamps import TimestampedOffset
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import tasks
from backend.engine.ports.random import Random
from backend.engine.remote import rlm_read, rlm_timestamp
from backend.engine.remote.aux_state import AuxState, read_aux_state
from backend.engine.remote.discovery import find_highest_remote
from backend.engine.remote.failure_log import FailureLog
from backend.engine.remote.pool import Pool, PoolFull
from backend.engine.remote.rlm_copy import CopyTask
from backend.engine.remote.rlm_delete import delete_partition
from backend.engine.remote.rlm_expire import ExpirationTask
from backend.engine.remote.rlm_read import RemoteRead
from backend.engine.remote.rsm import RemoteStorageError, RemoteStorageManager, RetriableRemoteStorageError
from backend.engine.remote.tier import PartitionView, Tier
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicIdPartition

# How long a read waits for metadata that is still being read before it says so (`RemotePartitionMetadataStore`).
METADATA_WAIT_MS: Final = 100
# How long deleting a topic's remote data waits for metadata: a restarted leader may just be reading it.
DELETE_WAIT_MS: Final = 30_000
# Copies in flight may finish before a broker stops; what they leave otherwise is copied again.
CLOSE_WAIT_MS: Final = 3000

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Task(Protocol):
    """Work on one partition that is done over and over."""

    partition: TopicIdPartition
    cancelled: bool

    async def run(self) -> None: ...


class FollowerTask:
    """Keeps a follower's highest remote offset up to date, which its local retention needs."""

    def __init__(self, view: PartitionView, tier: Tier) -> None:
        self.partition = view.topic_id_partition
        self._view = view
        self._tier = tier
        self.cancelled = False

    async def run(self) -> None:
        log, metadata = self._view.log, self._tier.metadata
        if self.cancelled or not log.remote_enabled or not metadata.is_ready(self.partition):
            return
        found = find_highest_remote(
            log.leader_epochs.entries,
            lambda epoch: metadata.highest_offset(self.partition, epoch),
            log.end_offset_for_epoch,
        )
        log.update_highest_remote_offset(found.offset)


def delay_ms(failures: int, config: BrokerConfig, random: Random) -> float:
    """Pause before a task's next run: the fixed interval, or after `failures` in a row KIP-405's back-off in its place,
    be it shorter or longer. It doubles from ``remote.log.manager.task.retry.backoff.ms``, with jitter, and never
    passes ``remote.log.manager.task.retry.backoff.max.ms``.
    """
    if not failures:
        return config.remote_log_manager_task_interval_ms
    # 2^20 times any back-off is past every limit, and no float overflows.
    backoff_ms = config.remote_log_manager_task_retry_backoff_ms * 2.0 ** min(failures - 1, 20)
    jitter = config.remote_log_manager_task_retry_jitter
    backoff_ms *= random.uniform(1 - jitter, 1 + jitter)
    # Every try of a copy leaves an entry in the metadata topic, so the interval is no limit here.
    return max(1.0, min(backoff_ms, config.remote_log_manager_task_retry_backoff_max_ms))


class _Loop:
    """One task's life."""

    def __init__(self, task: Task, pool: Pool, tier: Tier, kind: str) -> None:
        self.task = task
        self._pool = pool
        self._tier = tier
        self._kind = kind
        self._stopping = tasks.Event()
        self._failures = 0
        self._running = tasks.spawn(self._repeat(), name=f"{kind} of {task.partition}")

    async def _repeat(self) -> None:
        while not self._stopping.is_set():
            await self._pool.run(self._run)
            try:
                pause_ms = delay_ms(self._failures, self._tier.config(), self._tier.ports.random)
                await tasks.wait_for(self._stopping.wait(), pause_ms)
            except tasks.Timeout:
                continue

    async def _run(self) -> None:
        if self._stopping.is_set():
            return
        subject = f"{self._kind} of {self.task.partition}"
        try:
            await self.task.run()
            self._failures = 0
            return
        except RetriableRemoteStorageError as error:
            _log.info("%s will be tried again: %s", subject, error)
        except KafkaError as error:
            _log.log(logging.INFO if error.retriable else logging.WARNING, "%s failed: %s", subject, error)
        except RemoteStorageError as error:
            _log.error("%s failed: %s", subject, error)
        except Exception:
            # Whatever it was: other partitions go on, and so does this one.
            _log.exception("%s failed", subject)
        self._failures += 1

    def stop(self) -> None:
        """Nothing new is begun; a segment that is being copied is finished."""
        self.task.cancelled = True
        self._stopping.set()

    async def stopped(self, timeout_ms: float | None = None) -> None:
        """Waits for the end after :meth:`stop`; past the time it is forced."""
        if timeout_ms is not None and not self._running.done():
            timer = tasks.call_later(timeout_ms, self._running.cancel)
            await tasks.first([self._running])
            timer.cancel()
        elif not self._running.done():
            await tasks.first([self._running])


class RemoteLogManager:
    """The remote tier as the other parts of a broker use it. Construct only where the tier is switched on."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._failures = FailureLog(tier.ports.clock)
        config = tier.config
        self._copiers = Pool(lambda: config().remote_log_manager_copier_thread_pool_size)
        self._expirers = Pool(lambda: config().remote_log_manager_expiration_thread_pool_size)
        self._followers = Pool(lambda: config().remote_log_manager_follower_thread_pool_size)
        self._readers = Pool(
            lambda: config().remote_log_reader_threads,
            pending_max=config().remote_log_reader_max_pending_tasks,
        )
        # The loops of every hosted tiered partition, and whether it is led.
        self._hosted: dict[TopicIdPartition, tuple[bool, list[_Loop]]] = {}
        self._ending: set[_Loop] = set()

    async def start(self) -> None:
        """Takes over the index files of an earlier run and begins to read metadata; call it once the broker serves."""
        await self._tier.indexes.load()
        await self.apply_settings()
        self._tier.metadata.start()

    async def apply_settings(self) -> None:
        """Takes over what changed of the settings in force and is not read again with every use."""
        await self._tier.indexes.resize(self._tier.config().remote_log_index_file_cache_total_size_bytes)

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
            self._host(view, led=False)
        for view in leading:
            self._host(view, led=True)

    def _host(self, view: PartitionView, *, led: bool) -> None:
        partition, tier = view.topic_id_partition, self._tier
        held = self._hosted.get(partition)
        if held is not None and held[0] is led:
            return
        if held is not None:
            self._end(held[1])
        if led:
            loops = [
                _Loop(CopyTask(view, tier), self._copiers, tier, "Copy"),
                _Loop(ExpirationTask(view, tier), self._expirers, tier, "Expiration"),
            ]
        else:
            tier.meters.forget(partition)
            loops = [_Loop(FollowerTask(view, tier), self._followers, tier, "Following")]
        self._hosted[partition] = (led, loops)

    def _end(self, loops: Iterable[_Loop]) -> None:
        for loop in loops:
            loop.stop()
            self._ending.add(loop)
            tasks.spawn(self._forget_ended(loop), name=f"end of {loop.task.partition}")

    async def _forget_ended(self, loop: _Loop) -> None:
        await loop.stopped()
        self._ending.discard(loop)

    async def stop_partitions(self, tips: Iterable[TopicIdPartition], *, delete_remote: bool) -> None:
        """This broker does not host the partitions any more. With `delete_remote` (their topic is deleted and this
        broker led them, or tiering was switched off with that wish) their remote data goes first; what cannot be
        deleted is logged.
        """
        stopped = list(tips)
        ending: list[_Loop] = []
        for partition in stopped:
            _, loops = self._hosted.pop(partition, (False, []))
            for loop in loops:
                loop.stop()
            ending.extend(loops)
            ending.extend(loop for loop in self._ending if loop.task.partition == partition)
        for loop in ending:
            await loop.stopped()
        if delete_remote:
            await tasks.gather(self._delete(partition) for partition in stopped)
        gone = [partition for partition in stopped if partition not in self._hosted]
        for partition in gone:
            self._tier.meters.forget(partition)
        self._tier.metadata.on_stop_partitions(gone)

    async def _delete(self, partition: TopicIdPartition) -> None:
        try:
            await self._tier.metadata.wait_ready(partition, DELETE_WAIT_MS)
            await delete_partition(self._tier, partition)
        except (RemoteStorageError, KafkaError) as error:
            _log.error("Remote data of the deleted partition %s could not be removed: %s", partition, error)

    # What is known

    @property
    def storage(self) -> RemoteStorageManager:
        """The storage plug-in in use."""
        return self._tier.storage

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
        self, log: UnifiedLog, fetch_offset: int, max_bytes: int, *, min_one_message: bool, read_committed: bool
    ) -> RemoteRead:
        """Records from the remote tier for a consumer; see :func:`backend.engine.remote.rlm_read.read`.

        Raises KafkaError: OFFSET_OUT_OF_RANGE, REPLICA_NOT_AVAILABLE, or UNKNOWN_SERVER_ERROR for a failure of the
        storage and when too many reads wait already.
        """
        partition, meters = log.topic_id_partition, self._tier.meters
        meters.mark(partition.topic, "remotefetchrequests")

        def failed(error: Exception) -> None:
            meters.mark(partition.topic, "remotefetcherrors")
            self._failures.warn(f"Remote read of {partition}", f"at offset {fetch_offset}", error)

        async def work() -> RemoteRead:
            found = await rlm_read.read(
                self._tier,
                log,
                fetch_offset,
                max_bytes,
                min_one_message=min_one_message,
                read_committed=read_committed,
            )
            meters.mark(partition.topic, "remotefetchbytes", len(found.records))
            return found

        # As in Kafka a read that has begun is not interrupted: the indexes it fetched serve the next one.
        return await self._on_reader(partition, work, failed, finish=True)

    async def offset_for_timestamp(self, log: UnifiedLog, timestamp: int) -> TimestampedOffset | None:
        """The first record with at least this timestamp, in either tier. Raises KafkaError like :meth:`read`. When the
        caller is cancelled the search ends after the call to the storage that it is at.
        """
        partition = log.topic_id_partition

        def failed(error: Exception) -> None:
            self._tier.meters.look_up_errors += 1
            self._failures.warn(f"Look-up by time in the remote tier of {partition}", f"for {timestamp}", error)

        async def work() -> TimestampedOffset | None:
            return await rlm_timestamp.offset_for_timestamp(self._tier, log, timestamp)

        return await self._on_reader(partition, work, failed, finish=False)

    async def _on_reader(
        self,
        partition: TopicIdPartition,
        work: Callable[[], Awaitable[T]],
        failed: Callable[[Exception], None],
        *,
        finish: bool,
    ) -> T:
        """`work` on the reader pool. `failed` hears of errors other than OffsetOutOfRange, also when the caller has
        given up.
        """

        async def when_ready() -> T:
            try:
                await self._tier.metadata.wait_ready(partition, METADATA_WAIT_MS)
                return await work()
            except OffsetOutOfRange:
                raise
            except (KafkaError, RemoteStorageError) as error:
                failed(error)
                raise

        try:
            return await self._readers.run(when_ready, finish=finish)
        except PoolFull as error:
            failed(error)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"too many remote reads wait: {error}") from error
        except RemoteStorageError as error:
            # None of the storage's errors has a code of its own in Kafka's protocol.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    async def aux_state(self, tip: TopicIdPartition, epoch: int, offset: int) -> AuxState:
        """What a follower needs to start behind the segment with this record.

        See :func:`backend.engine.remote.aux_state.read_aux_state` for the errors.
        """
        return await read_aux_state(self._tier, tip, epoch, offset)

    async def wait_ready(self, tip: TopicIdPartition, timeout_ms: float) -> bool:
        """Whether the partition's metadata has been read up to its end, after waiting for it."""
        return await self._tier.metadata.wait_ready(tip, timeout_ms)

    async def close(self) -> None:
        """Ends all tasks, the metadata manager and the storage."""
        loops = [loop for _, loops in self._hosted.values() for loop in loops] + list(self._ending)
        self._hosted.clear()
        for loop in loops:
            loop.stop()
        await tasks.gather(loop.stopped(CLOSE_WAIT_MS) for loop in loops)
        await self._tier.metadata.close()
        await self._tier.workers.run(self._tier.storage.close)
