"""The tasks of a hosted partition, each done over and over until the partition's role changes (KIP-405; `RLMTask`)."""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final, Protocol

from backend.engine.config import BrokerConfig
from backend.engine.ports import tasks
from backend.engine.ports.random import Random
from backend.engine.remote.bounded_pool import BoundedPool
from backend.engine.remote.manager.copied_offsets import complete_epochs, find_copied
from backend.engine.remote.manager.copy_task import CopyTask
from backend.engine.remote.manager.tier import PartitionView, Tier
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageError, RetriableRemoteStorageError
from backend.protocol.errors import KafkaError
from backend.tiering.ids import TopicIdPartition

# A run that finds nothing to do takes 0.1 ms of the loop that also answers clients and the metadata quorum. With so
# long a turn for each task those of a pool take 2 % of it, however many partitions there are: up to 200 keep a second
# as it is set, and nobody waits longer than by Kafka's default.
MS_PER_TASK: Final = 5
CROWDED_INTERVAL_MS_MAX: Final = 30_000

_log = logging.getLogger(__name__)


class TaskKind(Enum):
    """The purpose of a task."""

    COPY = "Copy"
    EXPIRATION = "Expiration"
    FOLLOWING = "Following"


class PartitionTask(Protocol):
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
        log = self._view.log
        if self.cancelled or not log.remote_enabled or not self._tier.is_ready(self.partition):
            return
        complete_epochs(log, self._tier.metadata, self.partition)
        highest = find_copied(log, self._tier.metadata, self.partition)
        log.update_highest_remote_offset(highest.offset)


def interval_ms(config: BrokerConfig, members: int) -> float:
    """Between two runs of a task that is one of so many: what is set, or more where they are too many for it."""
    return max(config.remote_log_manager_task_interval_ms, min(members * MS_PER_TASK, CROWDED_INTERVAL_MS_MAX))


def delay_ms(failures: int, config: BrokerConfig, random: Random, *, members: int = 1) -> float:
    """Pause before a task's next run: the interval, or after `failures` in a row KIP-405's back-off in its place,
    be it shorter or longer. It doubles from ``remote.log.manager.task.retry.backoff.ms``, with jitter, and never
    passes ``remote.log.manager.task.retry.backoff.max.ms``.
    """
    if not failures:
        return interval_ms(config, members)
    # 2^20 times any back-off is past every limit, and no float overflows.
    backoff_ms = config.remote_log_manager_task_retry_backoff_ms * 2.0 ** min(failures - 1, 20)
    jitter = config.remote_log_manager_task_retry_jitter
    backoff_ms *= random.uniform(1 - jitter, 1 + jitter)
    # Every try of a copy leaves an entry in the metadata topic, so the interval is no limit here.
    return max(1.0, min(backoff_ms, config.remote_log_manager_task_retry_backoff_max_ms))


class TaskLoop:
    """One task's life: runs until it is stopped or ends itself, however its runs go."""

    def __init__(self, task: PartitionTask, pool: BoundedPool, tier: Tier, kind: TaskKind) -> None:
        self.task = task
        self._pool = pool
        self._tier = tier
        self._kind = kind
        self._active = False
        self._failures = 0
        pool.members += 1
        self._running = tasks.spawn(self._repeat(), name=f"{kind.value} of {task.partition}")
        self._running.add_done_callback(self._left)

    def _left(self, _: object) -> None:
        self._pool.members -= 1

    async def _repeat(self) -> None:
        while not self.task.cancelled:
            await self._pool.run(self._run)
            if not self.task.cancelled:
                tier, members = self._tier, self._pool.members
                await tasks.sleep_ms(delay_ms(self._failures, tier.config(), tier.ports.random, members=members))

    async def _run(self) -> None:
        if self.task.cancelled:
            return
        self._active = True
        try:
            await self.task.run()
            self._failures = 0
        except Exception as error:
            # Any error: other partitions go on, and so does this one.
            self._failures += 1
            self._log_failure(error)
        finally:
            self._active = False

    def _log_failure(self, error: Exception) -> None:
        subject = f"{self._kind.value} of {self.task.partition}"
        match error:
            case RetriableRemoteStorageError():
                self._tier.meters.retried(self._kind.value)
                _log.info("%s will be tried again: %s", subject, error)
            case KafkaError():
                _log.log(logging.INFO if error.retriable else logging.WARNING, "%s failed: %s", subject, error)
            case RemoteStorageError():
                _log.error("%s failed: %s", subject, error)
            case _:
                _log.error("%s failed", subject, exc_info=error)

    def stop(self, *, deleted: bool = False) -> None:
        """Nothing new is begun. A segment that is being copied is finished, or taken back with its `deleted` topic."""
        self.task.cancelled = True
        if deleted and isinstance(self.task, CopyTask):
            self.task.deleted = True
        if not self._active:
            self._running.cancel()

    async def stopped(self, timeout_ms: float | None = None) -> None:
        """Waits for the end after :meth:`stop`; past the time it is forced."""
        if timeout_ms is not None and not self._running.done():
            timer = tasks.call_later(timeout_ms, self._running.cancel)
            await tasks.first([self._running])
            timer.cancel()
        elif not self._running.done():
            await tasks.first([self._running])
