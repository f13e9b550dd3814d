"""The partitions of a coordinator's topic that this broker leads: taken over, read, written to, given up.

Groups live in `__consumer_offsets`, transactional ids in `__transaction_state`; `ShardKind` has what differs.
Kafka: `CoordinatorRuntime`, `TransactionStateManager`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from backend.engine.common.unreadable_records import UnreadableRecords
from backend.engine.coordinator.group.group_records import coordinator_partition
from backend.engine.ports import tasks
from backend.engine.replica.partition import Partition
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.record_batches.record_batch import build_batch
from backend.protocol.record_batches.record_codec import RecordData
from backend.tiering.ids import TopicPartition

# Error codes for clients when records could not be written.
_STORE_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

_log = logging.getLogger(__name__)


class CoordinatorShard(ABC):
    """One partition. `loading` until the log has been read, and for good when that `failed`."""

    topic: ClassVar[str]

    def __init__(self, index: int, partition: Partition) -> None:
        self.index = index
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.loading = True
        self.failed = False

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of groups or ids in the shard."""

    @property
    def leader_epoch_changed(self) -> bool:
        """This broker has been made the leader again since the shard was taken over."""
        return self.partition.leader_epoch != self.leader_epoch

    @property
    @abstractmethod
    def is_outdated(self) -> bool:
        """Whether it has to be read again, although this broker still leads the partition."""

    @abstractmethod
    async def load(self, unreadable_records: UnreadableRecords) -> int:
        """Reads the whole log but what cannot be read, which is noted; how many records. KafkaError or DecodeError when
        the log itself cannot be read.
        """


S = TypeVar("S", bound=CoordinatorShard)


@dataclass(frozen=True, slots=True)
class ShardKind(Generic[S]):
    """A kind of shard: its `name` in messages, its class, and the error code of records that are too large."""

    name: str
    shard: type[S]
    too_large: ErrorCode


class CoordinatorShards(Generic[S]):
    """Use: `on_metadata` after the replica manager's for every image, `close`. `loaded` and `lost` hear of changes.

    `append_timeout_ms`, read at each append, is how long its records may take to be replicated.
    """

    def __init__(
        self,
        kind: ShardKind[S],
        replica_manager: ReplicaManager,
        *,
        loaded: Callable[[S], None],
        lost: Callable[[S], None],
        append_timeout_ms: Callable[[], float],
        unreadable_records: UnreadableRecords,
    ) -> None:
        self._kind = kind
        self._topic = kind.shard.topic
        self._replicas = replica_manager
        self._loaded, self._lost = loaded, lost
        self._append_timeout_ms = append_timeout_ms
        self._unreadable = unreadable_records
        self._shards: dict[int, S] = {}
        self._partitions = 0  # of the topic; 0 while it is not there
        self._tasks: set[tasks.Task[None]] = set()
        self._closed = False

    def on_metadata(self, partitions: int) -> None:
        """Takes over and gives up; `partitions` is how many the topic has."""
        self._partitions = partitions
        for index, shard in list(self._shards.items()):
            if self._led(index) is not shard.partition or shard.is_outdated:
                self._give_up(index)
        for index in range(partitions):
            partition = self._led(index)
            if partition is not None and index not in self._shards and not self._closed:
                made = self._shards[index] = self._kind.shard(index, partition)
                self.spawn(self._load(made), f"load of {made}")

    async def close(self) -> None:
        """Gives all up; background work ends."""
        self._closed = True
        for index in list(self._shards):
            self._give_up(index)
        for task in list(self._tasks):
            await tasks.cancel(task)

    def _led(self, index: int) -> Partition | None:
        partition = self._replicas.find(self._topic, index)
        return partition if isinstance(partition, Partition) and partition.is_leader else None

    def _give_up(self, index: int) -> None:
        self._lost(self._shards.pop(index))

    async def _load(self, shard: S) -> None:
        name = self._kind.name
        try:
            count = await shard.load(self._unreadable)
        except (KafkaError, DecodeError, OSError) as error:
            # Until the next leadership change its clients are answered NOT_COORDINATOR, and the log says why.
            _log.error("%s cannot be read, so its %ss have no coordinator: %s", shard, name, error)
            shard.failed = True
            return
        if not self.holds(shard):
            return
        shard.loading = False
        self._loaded(shard)
        _log.debug("Coordinates %d %ss of %s after %d records", shard.size, name, shard, count)
        if not any(loaded.loading and not loaded.failed for loaded in self._shards.values()):
            total = sum(loaded.size for loaded in self._shards.values())
            _log.info("Coordinates %d %ss in %d partitions of %s", total, name, len(self._shards), self._topic)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Runs in the background until `close`."""
        task = tasks.spawn(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def __iter__(self) -> Iterator[S]:
        """Shards at this time; the caller may wait while it goes through them."""
        return iter(list(self._shards.values()))

    def holds(self, shard: S) -> bool:
        """Whether the shard is still this broker's, and has not been replaced by a later read."""
        return self._shards.get(shard.index) is shard

    def at(self, index: int) -> S | None:
        """The shard of a partition that is held and has been read."""
        shard = self._shards.get(index)
        return None if shard is None or shard.loading else shard

    def of(self, key: str) -> S:
        """The shard of a group or transactional id.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        if self._closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")
        shard = self._shards.get(coordinator_partition(key, self._partitions)) if self._partitions else None
        what = f"{self._kind.name} {key!r}"
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{what} is coordinated by another broker")
        if shard.failed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"the state of {what} cannot be read")
        if shard.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the state of {what} is being read")
        return shard

    async def append(
        self,
        shard: S,
        records: Sequence[RecordData],
        timeout_ms: float | None = None,
        *,
        appended: Callable[[], None] | None = None,
    ) -> int:
        """Appends records without a producer; see :meth:`append_batch`."""
        return await self.append_batch(shard, build_batch(records), timeout_ms, appended=appended)

    async def append_batch(
        self,
        shard: S,
        batch: bytearray,
        timeout_ms: float | None = None,
        *,
        appended: Callable[[], None] | None = None,
    ) -> int:
        """Offset of the first record once all are replicated and the shard is still held.

        `appended` is called before anything else can happen once they are in this broker's log. Raises KafkaError with
        the code that clients are to get.
        """
        lost = KafkaError(ErrorCode.NOT_COORDINATOR, f"{shard} is led by another broker")
        if not self.holds(shard):
            raise lost
        try:
            info = await self._replicas.append(
                TopicPartition(self._topic, shard.index),
                memoryview(batch),
                timeout_ms=self._append_timeout_ms() if timeout_ms is None else timeout_ms,
                appended=appended,
            )
        except KafkaError as error:
            code = self._kind.too_large if error.code in _TOO_LARGE else _STORE_ERRORS.get(error.code, error.code)
            raise KafkaError(code, error.message) from error
        if not self.holds(shard):
            raise lost
        return info.first_offset
