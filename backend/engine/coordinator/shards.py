"""The partitions of `__consumer_offsets` that this broker leads: taken over, read, written to, given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final

from backend.engine.config import BrokerConfig
from backend.engine.coordinator.group_records import OFFSETS_TOPIC, coordinator_partition
from backend.engine.coordinator.shard import Shard
from backend.engine.ports import Clock, tasks
from backend.engine.replica.partition import Partition
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol.batch import build_batch
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.records import RecordData
from backend.tiering.ids import TopicPartition

# What clients of a group are told when its records could not be written.
_STORE_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}

_log = logging.getLogger(__name__)


class Shards:
    """Use: `on_metadata` after the replica manager's for every image, `close`. `loaded` and `lost` hear of changes."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        replica_manager: ReplicaManager,
        loaded: Callable[[Shard], None],
        lost: Callable[[Shard], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._replicas = replica_manager
        self._loaded, self._lost = loaded, lost
        self._shards: dict[int, Shard] = {}
        self._partitions = 0  # of __consumer_offsets; 0 while the topic is not there
        self._tasks: set[tasks.Task[None]] = set()
        self._closed = False

    def on_metadata(self, partitions: int) -> None:
        """Takes over and gives up; `partitions` is how many `__consumer_offsets` has."""
        self._partitions = partitions
        for index in list(self._shards):
            shard, partition = self._shards[index], self._led(index)
            # A leader that stays one keeps what it knows, whatever the epoch; what it could not read it tries again.
            again = shard.failed and shard.leader_epoch != shard.partition.leader_epoch
            if partition is not shard.partition or again:
                self._give_up(index)
        for index in range(partitions):
            partition = self._led(index)
            if partition is not None and index not in self._shards and not self._closed:
                shard = self._shards[index] = Shard(index, partition)
                self.spawn(self._load(shard), f"load of {OFFSETS_TOPIC}-{index}")

    async def close(self) -> None:
        """Gives all up; background work ends."""
        self._closed = True
        for index in list(self._shards):
            self._give_up(index)
        for task in list(self._tasks):
            await tasks.cancel(task)

    def _led(self, index: int) -> Partition | None:
        found = self._replicas.find(OFFSETS_TOPIC, index)
        return found if isinstance(found, Partition) and found.is_leader else None

    def _give_up(self, index: int) -> None:
        shard = self._shards.pop(index)
        self._lost(shard)
        shard.groups.clear()

    async def _load(self, shard: Shard) -> None:
        try:
            count = await shard.load()
        except (KafkaError, DecodeError, OSError) as error:
            # Until the next leadership change its groups are answered COORDINATOR_LOAD_IN_PROGRESS, and the log says
            # why.
            _log.error("%s-%d cannot be read, so its groups have no coordinator: %s", OFFSETS_TOPIC, shard.index, error)
            shard.failed = True
            return
        if not self.holds(shard):
            return
        shard.begin(self._clock.monotonic_ms(), self._config.group_consumer_session_timeout_ms)
        self._loaded(shard)
        groups = len(shard.groups)
        _log.debug("Coordinates %d groups of %s-%d after %d records", groups, OFFSETS_TOPIC, shard.index, count)
        if not any(one.loading and not one.failed for one in self._shards.values()):
            total = sum(len(one.groups) for one in self._shards.values())
            _log.info("Coordinates %d groups in %d partitions of %s", total, len(self._shards), OFFSETS_TOPIC)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Runs in the background until `close`."""
        task = tasks.spawn(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def __iter__(self) -> Iterator[Shard]:
        """Shards at this time; the caller may wait while it goes through them."""
        return iter(list(self._shards.values()))

    def holds(self, shard: Shard) -> bool:
        """Whether the shard is still this broker's."""
        return self._shards.get(shard.index) is shard

    def at(self, index: int) -> Shard | None:
        """The shard of a partition that is held and has been read."""
        shard = self._shards.get(index)
        return None if shard is None or shard.loading else shard

    def of(self, group_id: str) -> Shard:
        """The shard of a group.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
        shard = self._shards.get(coordinator_partition(group_id, self._partitions)) if self._partitions else None
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"group {group_id!r} is coordinated by another broker")
        if shard.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the state of group {group_id!r} is being read")
        return shard

    async def append(
        self, shard: Shard, records: Sequence[RecordData], *, appended: Callable[[], None] | None = None
    ) -> int:
        """As :meth:`append_batch`, for records without a producer."""
        return await self.append_batch(shard, build_batch(records), appended=appended)

    async def append_batch(
        self,
        shard: Shard,
        batch: bytearray,
        timeout_ms: float | None = None,
        *,
        appended: Callable[[], None] | None = None,
    ) -> int:
        """Offset of the first record once all are replicated and the shard is still held.

        `appended` is called before anything else can happen once they are in this broker's log. Raises KafkaError with
        the code that clients of the group are to get.
        """
        gone = KafkaError(ErrorCode.NOT_COORDINATOR, f"{OFFSETS_TOPIC}-{shard.index} is led by another broker")
        if not self.holds(shard):
            raise gone
        try:
            info = await self._replicas.append(
                TopicPartition(OFFSETS_TOPIC, shard.index),
                memoryview(batch),
                timeout_ms=self._config.offsets_commit_timeout_ms if timeout_ms is None else timeout_ms,
                appended=appended,
            )
        except KafkaError as error:
            raise KafkaError(_STORE_ERRORS.get(error.code, error.code), error.message) from error
        if not self.holds(shard):
            raise gone
        return info.first_offset
