"""Removal of deleted topics' data from the remote tier (KIP-405, "Topic deletion lifecycle"; its
`RemotePartitionRemover`, which Kafka's code never got).

The controller publishes DELETE_PARTITION_MARKED once no replica of a deleted partition is online. The leader of the
partition of ``__remote_log_metadata`` that holds it then publishes DELETE_PARTITION_STARTED, deletes every segment and
publishes DELETE_PARTITION_FINISHED. The position to read on is stored only after that: after a crash at any point the
next leader, or the restarted one, finds the mark again. Partitions are distinguished by topic id: a new topic of the
same name is another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backend.engine.common.topic_names import name_problem
from backend.engine.ports import Disk, tasks
from backend.engine.remote.manager.segment_deletion import delete_all
from backend.engine.remote.manager.task_loop import delay_ms
from backend.engine.remote.manager.tier import Tier
from backend.engine.remote.metadata.metadata_record import MetadataRecord
from backend.engine.remote.metadata.metadata_scan import MetadataScan
from backend.engine.remote.metadata.metadata_topic import METADATA_TOPIC, MetadataTopic
from backend.engine.remote.metadata.remote_log_metadata_cache import RemoteLogMetadataCache
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageError
from backend.protocol.errors import DecodeError, KafkaError
from backend.protocol.remote_log.metadata_serde import (
    PartitionDelete,
    SegmentMetadata,
    SegmentSnapshot,
    SegmentUpdate,
    decode,
    encode,
)
from backend.tiering.ids import OffsetRange, TopicIdPartition
from backend.tiering.segment_state import PartitionDeleteState, SegmentState, is_legal_delete

MARKED: Final = PartitionDeleteState.DELETE_PARTITION_MARKED
STARTED: Final = PartitionDeleteState.DELETE_PARTITION_STARTED
FINISHED: Final = PartitionDeleteState.DELETE_PARTITION_FINISHED

# In the first log dir: `<partition of the metadata topic> <offset>`, a line each.
POSITIONS_FILE: Final = "_remote_partition_remover_offsets"
# A copy that began so lately may still be putting objects there.
COPY_GRACE_MS: Final = 60_000
# The second byte of a value: the kind of the event.
_PARTITION_DELETE_KEY: Final = 2

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Deletion:
    """A partition whose remote data is to go. `offset` is where its mark stands."""

    state: PartitionDeleteState
    offset: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Failed removals of a partition's data in a row, with the metadata partition that has the mark. `due_ms` is the
    earliest time of the next try (monotonic).
    """

    target: int
    count: int
    due_ms: float


class Deletions:
    """Partition deletions, as one partition of the metadata topic has them."""

    def __init__(self) -> None:
        self._deletions: dict[TopicIdPartition, Deletion] = {}
        self.unreadable: list[tuple[int, str]] = []
        """Offset and reason of records that say nothing."""

    def apply(self, record: MetadataRecord) -> None:
        """Takes one record; those of other kinds, and those that the life cycle does not allow, change nothing."""
        value = record.value
        if value is None or len(value) < 2 or value[1] != _PARTITION_DELETE_KEY:
            return
        try:
            event = decode(value)
        except DecodeError as error:
            self.unreadable.append((record.offset, str(error)))
            return
        if not isinstance(event, PartitionDelete):
            return
        problem = impossible(event.topic_id_partition)
        if problem is not None:
            self.unreadable.append((record.offset, problem))
            return
        deletion = self._deletions.get(event.topic_id_partition)
        # A reader that begins behind the mark sees a deletion under way.
        if deletion is None and event.state is not FINISHED:
            self._deletions[event.topic_id_partition] = Deletion(event.state, record.offset)
        elif deletion is not None and is_legal_delete(deletion.state, event.state):
            deletion.state = event.state

    @property
    def pending(self) -> dict[TopicIdPartition, Deletion]:
        """The deletions that are not finished, in the order of their marks."""
        return {
            partition: deletion for partition, deletion in self._deletions.items() if deletion.state is not FINISHED
        }


def impossible(partition: TopicIdPartition) -> str | None:
    """Why there cannot be such a partition, so that nothing of it can lie in the tier; None for one that may be."""
    problem = name_problem(partition.topic)
    if problem is not None:
        return f"a deleted topic's name is invalid: {problem}"
    return f"{partition} is no partition" if partition.partition < 0 else None


def apply_segments(values: Sequence[MetadataRecord], caches: Mapping[TopicIdPartition, RemoteLogMetadataCache]) -> None:
    """Applies those records that belong to one of the partitions."""
    for record in values:
        if record.value is None:
            continue
        try:
            event = decode(record.value)
        except DecodeError:
            # Brokers that host the partition have logged it; an unreadable record names no object to delete.
            continue
        if isinstance(event, SegmentSnapshot | PartitionDelete):
            continue
        cache = caches.get(event.topic_id_partition)
        if cache is not None:
            cache.apply(event)


def still_copied(segments: Collection[SegmentMetadata], now_ms: int) -> bool:
    """Whether a copy into the partition may be under way."""
    return any(
        segment.state is SegmentState.COPY_SEGMENT_STARTED and now_ms - segment.event_timestamp_ms < COPY_GRACE_MS
        for segment in segments
    )


class PartitionRemover:
    """One broker's remover: works on the partitions of the metadata topic that this broker leads."""

    def __init__(
        self, tier: Tier, topic: MetadataTopic, scan: MetadataScan, led: Callable[[], Collection[int]], log_dir: str
    ) -> None:
        """`led` returns the partitions of the metadata topic that this broker leads now."""
        self._tier = tier
        self._topic = topic
        self._scan = scan
        self._led = led
        self._positions = Positions(tier.ports.disk, f"{log_dir}/{POSITIONS_FILE}")
        self._waiting: dict[int, int] = {}
        self._failed: dict[TopicIdPartition, Failure] = {}

    async def run(self) -> None:
        """Pass after pass until it is cancelled."""
        failures = 0
        while True:
            try:
                done = await self.run_once()
            except Exception:
                # Any error: the next pass finds every mark again.
                _log.exception("A pass of the partition remover failed")
                done = False
            failures = 0 if done else failures + 1
            config = self._tier.config()
            pause_ms: float = config.remote_partition_remover_task_interval_ms
            if failures:
                pause_ms = min(pause_ms, delay_ms(failures, config, self._tier.ports.random))
            await tasks.sleep_ms(pause_ms)

    async def run_once(self) -> bool:
        """One pass over all led partitions of the metadata topic; False when something is left to do soon."""
        led = sorted(self._led())
        self._waiting = {target: count for target, count in self._waiting.items() if target in led}
        offset_ranges = await self._committed_ranges(led)
        done = offset_ranges.keys() >= set(led)
        for target, offsets in offset_ranges.items():
            try:
                done = await self._pass(target, offsets) and done
            except (KafkaError, OSError) as error:
                done = False
                self._tier.meters.retried("Removal")
                level = logging.INFO if isinstance(error, KafkaError) and error.retriable else logging.WARNING
                _log.log(level, "Deleted partitions told by %s-%d wait: %s", METADATA_TOPIC, target, error)
        self._tier.meters.partitions_to_remove = sum(self._waiting.values())
        return done

    async def _committed_ranges(self, targets: Collection[int]) -> dict[int, OffsetRange]:
        try:
            return await self._scan.offset_ranges(targets)
        except (KafkaError, OSError) as error:
            _log.info("Offsets of %s cannot be had for now: %s", METADATA_TOPIC, error)
            return {}

    async def _pass(self, target: int, offset_ranges: OffsetRange) -> bool:
        position = self._positions.of(target)
        start = position if offset_ranges.start <= position <= offset_ranges.end else offset_ranges.start
        deletions = Deletions()
        async for records in self._scan.records(target, OffsetRange(start, offset_ranges.end)):
            for record in records:
                deletions.apply(record)
        for offset, reason in deletions.unreadable:
            self._tier.unreadable_records.note(METADATA_TOPIC, target, offset, reason)
        pending = deletions.pending
        self._waiting[target] = len(pending)
        self._failed = {
            failed: failure for failed, failure in self._failed.items() if failure.target != target or failed in pending
        }
        due = [partition for partition in pending if self._is_due(partition)]
        if due:
            caches, read_to = await self._caches(target, offset_ranges, due)
            for partition in due:
                if await self._removed(target, partition, pending[partition], caches[partition], read_to):
                    del pending[partition]
                    self._waiting[target] = len(pending)
        read_on = min((deletion.offset for deletion in pending.values()), default=offset_ranges.end)
        if read_on != position:
            await self._tier.ports.workers.run(lambda: self._positions.store(target, read_on))
        return not pending

    def _is_due(self, partition: TopicIdPartition) -> bool:
        failure = self._failed.get(partition)
        return failure is None or failure.due_ms <= self._tier.ports.clock.monotonic_ms()

    async def _caches(
        self, target: int, offset_ranges: OffsetRange, partitions: Collection[TopicIdPartition]
    ) -> tuple[dict[TopicIdPartition, RemoteLogMetadataCache], int]:
        """Reads the segments of the wanted partitions from the metadata partition, up to an offset."""
        caches = {partition: RemoteLogMetadataCache(partition) for partition in partitions}
        now = (await self._scan.offset_ranges([target])).get(target, offset_ranges)
        async for records in self._scan.records(target, now):
            apply_segments(records, caches)
        return caches, now.end

    async def _removed(
        self, target: int, partition: TopicIdPartition, deletion: Deletion, cache: RemoteLogMetadataCache, read_to: int
    ) -> bool:
        """Whether all is gone now."""
        try:
            removed = await self._remove(target, partition, deletion, cache, read_to)
        except (KafkaError, OSError):
            raise  # of the metadata topic: no other partition could say what becomes of it either
        except Exception as error:  # logged; the other partitions are removed, and this one is tried again
            self._put_off(target, partition, error)
            return False
        self._failed.pop(partition, None)
        return removed

    def _put_off(self, target: int, partition: TopicIdPartition, error: Exception) -> None:
        tier, failure = self._tier, self._failed.get(partition)
        tier.meters.retried("Removal")
        count = 1 if failure is None else failure.count + 1
        pause_ms = delay_ms(count, tier.config(), tier.ports.random)
        self._failed[partition] = Failure(target, count, tier.ports.clock.monotonic_ms() + pause_ms)
        _log.warning(
            "Remote data of deleted partition %s could not be removed yet; next try in %.0f s, others go on: %s",
            partition, pause_ms / 1000, error,
            exc_info=None if isinstance(error, RemoteStorageError) else error,
        )  # fmt: skip

    async def _remove(
        self, target: int, partition: TopicIdPartition, deletion: Deletion, cache: RemoteLogMetadataCache, read_to: int
    ) -> bool:
        """Whether all is gone now; not when a copy may be under way, or another broker leads meanwhile."""
        tier, segments = self._tier, list(cache.segments())
        if target not in self._led():
            return False
        if still_copied(segments, tier.ports.clock.time_ms()):
            _log.info("Remote data of deleted %s is removed later: a copy into it began a moment ago", partition)
            return False

        async def publish(event: SegmentUpdate | PartitionDelete) -> None:
            await self._topic.produce(target, encode(event))

        def progress(state: PartitionDeleteState) -> PartitionDelete:
            return PartitionDelete(partition, tier.broker_id, tier.ports.clock.time_ms(), state)

        if deletion.state is MARKED:
            await publish(progress(STARTED))
        segments.sort(key=lambda segment: segment.start_offset)
        await delete_all(tier, segments, publish)
        if not await self._is_all(target, partition, cache, read_to):
            _log.info("Remote data of deleted %s: another segment was told of meanwhile, and goes next", partition)
            return False
        await publish(progress(FINISHED))
        tier.meters.partitions_removed += 1
        _log.info("Removed %d remote segments of deleted partition %s", len(segments), partition)
        return True

    async def _is_all(
        self, target: int, partition: TopicIdPartition, cache: RemoteLogMetadataCache, read_to: int
    ) -> bool:
        """Whether the deletion's events are the only ones since: a broker may have begun a copy after the mark, and
        died before it read the mark.
        """
        now = (await self._scan.offset_ranges([target])).get(target)
        if now is None:
            return False
        async for records in self._scan.records(target, OffsetRange(read_to, now.end)):
            apply_segments(records, {partition: cache})
        return not any(True for _ in cache.segments())


class Positions:
    """The position in each partition of the metadata topic, on disk. Without it reading begins at the start."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._offsets: dict[int, int] | None = None

    def of(self, partition: int) -> int:
        """The stored offset, else 0."""
        if self._offsets is None:
            self._offsets = self._load()
        return self._offsets.get(partition, 0)

    def _load(self) -> dict[int, int]:
        try:
            lines = self._disk.read(self._path).decode().splitlines()
            return {int(partition): int(offset) for partition, offset in (line.split() for line in lines)}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            _log.warning("%s cannot be read, so %s is read from its start: %s", self._path, METADATA_TOPIC, error)
            return {}

    def store(self, partition: int, offset: int) -> None:
        """Durable when it returns."""
        self.of(partition)
        assert self._offsets is not None
        self._offsets[partition] = offset
        text = "".join(f"{metadata_partition} {at}\n" for metadata_partition, at in sorted(self._offsets.items()))
        self._disk.write_atomic(self._path, text.encode(), sync=True)
