"""The reading half of the topic-based metadata manager: ``__remote_log_metadata`` → caches (KIP-405; `ConsumerTask`).

One task reads the metadata partitions of all hosted user partitions. A newly hosted partition makes its metadata
partition be read from the start again; an offset kept for every user partition makes that harmless. A partition is
ready once everything has been read that was there when it was assigned. Nothing a record contains stops the task:
what cannot be read is logged, counted and skipped; a metadata partition that cannot be read rests alone.

With files (``metadata_files``) a partition begins where an earlier run of this broker stopped, once the last record of
that run was seen to be in the topic still; otherwise it is read from the start like any other.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from backend.engine.common.event_sink import EventSink
from backend.engine.common.unreadable_records import UnreadableRecords
from backend.engine.ports import Ports, tasks
from backend.engine.remote.metadata.applied_barrier import AppliedWaits
from backend.engine.remote.metadata.hosted_partition import Hosted
from backend.engine.remote.metadata.metadata_files import MetadataFiles, Stored
from backend.engine.remote.metadata.metadata_record import MetadataRecord
from backend.engine.remote.metadata.metadata_topic import (
    METADATA_TOPIC,
    FetchedPartition,
    MetadataTopic,
)
from backend.engine.remote.metadata.remote_log_metadata_cache import Overlap, RemoteLogMetadataCache
from backend.engine.remote.metadata.resume_points import ResumePoints
from backend.protocol.codec import DecodeError
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.remote_log.metadata_serde import SegmentSnapshot, decode, metadata_partition
from backend.tiering.ids import OffsetRange, TopicIdPartition

if TYPE_CHECKING:
    from backend.engine.remote.metadata.record_runs import ApplyPlan, Run

FETCH_WAIT_MS: Final = 500
RETRY_MS: Final = 100
RETRY_MAX_MS: Final = 2000
# About 4 us an event: the loop is held for 2 ms at a time.
EVENTS_PER_TURN: Final = 512
# An event of a run takes about a tenth of one that is applied alone.
RUN_EVENTS_PER_EVENT: Final = 8
# Copies of about 100 bytes a segment are made before they are written: 50 MB at a time and a metadata partition more.
SEGMENTS_PER_SAVE: Final = 500_000

_log = logging.getLogger(__name__)


class MetadataConsumer:
    """Reads what the hosted partitions need and keeps one cache for each."""

    def __init__(
        self,
        topic: MetadataTopic,
        partitions_count: int,
        ports: Ports,
        events: EventSink,
        overlap: Overlap,
        files: MetadataFiles | None = None,
        unreadable_records: UnreadableRecords | None = None,
        deleted: tasks.Queue[TopicIdPartition] | None = None,
    ) -> None:
        """`deleted` gets each hosted partition whose topic is deleted, as the metadata topic says."""
        self._topic = topic
        self._count = partitions_count
        self._ports = ports
        self._events = events
        self._overlap = overlap
        self._deleted = tasks.Queue() if deleted is None else deleted
        self.hosted: dict[TopicIdPartition, Hosted] = {}
        """What is read of each partition; for others to look at."""
        self._by_target: dict[int, dict[TopicIdPartition, Hosted]] = {}
        # Next offset to read of every metadata partition that is being read.
        self._positions: dict[int, int] = {}
        # End of a metadata partition when a user partition was added to it.
        self._end_at_assignment: dict[int, int] = {}
        self._resume = ResumePoints(ports, files)
        # Whether a partition left since: its store must go.
        self._has_unhosted = False
        self._waits = AppliedWaits()
        self._changed = tasks.Event()
        self._fetching: tasks.Task[Sequence[FetchedPartition]] | None = None
        self._closing = False
        # Metadata partitions that could not be read, and until when they are not asked for again (monotonic ms).
        self._paused_until_ms: dict[int, float] = {}
        self._unreadable = unreadable_records or UnreadableRecords()
        self.records_skipped = 0
        """Records without a value or that no version of the format explains."""

    def assign(self, added: Iterable[TopicIdPartition]) -> None:
        """Starts to read for partitions; those hosted already are left alone."""
        fresh = [partition for partition in added if partition not in self.hosted]
        for partition in fresh:
            target = metadata_partition(partition.topic_id, partition.partition, self._count)
            hosted = Hosted(RemoteLogMetadataCache(partition, self._overlap), target, self._deleted)
            self.hosted[partition] = hosted
            self._by_target.setdefault(target, {})[partition] = hosted
            position = self._positions.pop(target, None)
            if position is not None:
                self._end_at_assignment[target] = position
        if fresh:
            self._interrupt()

    def unassign(self, removed: Iterable[TopicIdPartition]) -> None:
        """Forgets partitions; metadata partitions that are not needed any more are not read on."""
        for partition in removed:
            hosted = self.hosted.pop(partition, None)
            if hosted is None:
                continue
            self._has_unhosted = True
            target = hosted.metadata_partition
            del self._by_target[target][partition]
            if not self._by_target[target]:
                del self._by_target[target]
                self._positions.pop(target, None)
                self._end_at_assignment.pop(target, None)
                self._resume.forget(target)
                gone = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} is not hosted here any more")
                self._waits.fail(target, gone)

    def _interrupt(self) -> None:
        self._changed.set()
        if self._fetching is not None:
            self._fetching.cancel()

    def ready_cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache | None:
        """The cache if it has caught up: what every look-up begins with."""
        hosted = self.hosted.get(partition)
        return hosted.cache if hosted is not None and hosted.is_ready else None

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self.ready_cache(partition) is not None

    async def wait_ready(self, partition: TopicIdPartition, timeout_ms: float) -> bool:
        """Whether the partition's cache has caught up, after waiting for it."""
        hosted = self.hosted.get(partition)
        if hosted is None or hosted.is_ready:
            return hosted is not None
        try:
            await tasks.wait_for(hosted.ready.wait(), timeout_ms)
        except tasks.Timeout:
            return False
        return True

    def reads(self, target: int) -> bool:
        """Whether a metadata partition belongs to any hosted partition."""
        return target in self._by_target

    async def wait_applied(self, target: int, offset: int, timeout_ms: float) -> None:
        """Returns once the record at `offset` of a metadata partition has been applied here; Timeout when it is not."""
        if self._positions.get(target, -1) > offset:
            return
        await self._waits.wait(target, offset, timeout_ms)

    async def run(self) -> None:
        """Reads until it is cancelled."""
        retry_ms = RETRY_MS
        while not self._closing:
            try:
                all_started = await self._start_partitions()
                if self._positions:
                    for fetched in await self._fetch(FETCH_WAIT_MS if all_started else RETRY_MS):
                        await self._apply_fetched(fetched)
                elif all_started:
                    await self._changed.wait()
                else:
                    await tasks.sleep_ms(RETRY_MS)
                retry_ms = RETRY_MS
            except (KafkaError, OSError) as error:
                _log.warning("Reading %s failed; next try in %d ms: %s", METADATA_TOPIC, retry_ms, error)
                await tasks.sleep_ms(retry_ms)
                retry_ms = min(2 * retry_ms, RETRY_MAX_MS)
            except Exception:
                # A reader that ends would leave the remote tier of every partition not ready for ever.
                _log.exception("Reading %s failed; next try in %d ms", METADATA_TOPIC, RETRY_MAX_MS)
                await tasks.sleep_ms(RETRY_MAX_MS)

    async def _start_partitions(self) -> bool:
        """Finds out where to start and when new partitions are ready; False when some could not be asked for."""
        self._changed.clear()
        await self._look_up_files()
        needed = {hosted.metadata_partition for hosted in self.hosted.values() if hosted.ready_at is None}
        needed |= self._by_target.keys() - self._positions.keys()
        if not needed:
            return True
        offset_ranges = await self._topic.offsets(sorted(needed))
        for target, offset_range in offset_ranges.items():
            members = self._by_target.get(target, {}).values()
            # Assigned while we asked: its file is to be looked at first. And all may have left.
            if not members or not all(hosted.looked_up for hosted in members):
                continue
            if target not in self._positions:
                self._positions[target] = self._start_of(target, offset_range)
            for hosted in members:
                if hosted.ready_at is None:
                    hosted.ready_at = offset_range.end
            self._note_progress(target)
        return needed <= offset_ranges.keys()

    async def _look_up_files(self) -> None:
        """Takes over what an earlier run stored of partitions that are new here."""
        for partition, hosted in [(p, h) for p, h in self.hosted.items() if not h.looked_up]:
            stored = await self._resume.stored(partition, hosted.metadata_partition)
            if stored is not None:
                hosted.cache, hosted.applied_offset = stored.cache, stored.offset
                hosted.restored, hosted.saved_changes = True, hosted.changes
            hosted.looked_up = True

    def _start_of(self, target: int, offset_range: OffsetRange) -> int:
        """The position to read on: the earliest that its partitions need, and the record that proves the files."""
        members = self._by_target[target].values()
        starts = [hosted.applied_offset + 1 for hosted in members if hosted.ready_at is None]
        kept = self._end_at_assignment.pop(target, None)
        if kept is not None:
            starts.append(kept)
        if any(hosted.restored and hosted.ready_at is None for hosted in members):
            proof = self._resume.proof_of(target, offset_range)
            if proof is None:
                self._discard(target, f"it holds offsets {offset_range.start} to {offset_range.end} now")
                return offset_range.start
            starts.append(proof)
        return max(offset_range.start, min(starts, default=offset_range.start))

    def _discard(self, target: int, reason: str) -> None:
        """Drops the files of a metadata partition, which contradict the topic: it is read from its start."""
        _log.warning(
            "Partition %d of %s is not as the local files have it and is read from its start: %s",
            target,
            METADATA_TOPIC,
            reason,
        )
        self._resume.drop(target)
        self._positions.pop(target, None)
        self._end_at_assignment.pop(target, None)
        for partition, hosted in self._by_target.get(target, {}).items():
            if hosted.restored:
                hosted.cache, hosted.applied_offset = RemoteLogMetadataCache(partition, self._overlap), -1
                hosted.restored, hosted.saved_changes = False, -1
                hosted.ready_at = None

    async def _fetch(self, max_wait_ms: int) -> Iterable[FetchedPartition]:
        now_ms = self._ports.clock.monotonic_ms()
        self._paused_until_ms = {
            target: until_ms for target, until_ms in self._paused_until_ms.items() if until_ms > now_ms
        }
        positions = {
            target: position for target, position in self._positions.items() if target not in self._paused_until_ms
        }
        if not positions:
            await tasks.sleep_ms(RETRY_MS)
            return ()
        request = self._topic.fetch(positions, max_wait_ms=max_wait_ms)
        fetching = tasks.start(request, name=f"fetch of {METADATA_TOPIC}")
        self._fetching = fetching
        try:
            return await fetching
        except tasks.Cancelled:
            if self._closing or not fetching.cancelled():
                raise
            return ()
        finally:
            self._fetching = None

    async def _apply_fetched(self, fetched: FetchedPartition) -> None:
        target = fetched.partition
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._restart(target)
            return
        if fetched.error is not ErrorCode.NONE:
            self._paused_until_ms[target] = self._ports.clock.monotonic_ms() + RETRY_MAX_MS
            _log.warning(
                "Partition %d of %s cannot be read at offset %d; next try in %d ms, others go on: %s",
                target, METADATA_TOPIC, self._positions.get(target, -1), RETRY_MAX_MS, fetched.error.name,
            )  # fmt: skip
            return
        self.records_skipped += len(fetched.unreadable)
        # The record that proves the local files is looked for one by one.
        if fetched.plan is None or self._resume.is_unproven(target):
            await self._apply_each(target, fetched.records)
        else:
            await self._apply_plan(target, fetched.records, fetched.plan)
        if target not in self._positions:
            return
        if self._resume.is_unproven(target, fetched.next_offset):
            self._discard(target, "the record that was read last is gone")
            return
        if fetched.records:
            self._resume.read(target, fetched.records[-1])
        self._positions[target] = fetched.next_offset
        self._note_progress(target)

    async def _apply_each(self, target: int, records: Sequence[MetadataRecord]) -> None:
        """One record after the other, until the metadata partition is to be read from elsewhere.

        A partition assigned meanwhile sets the position back: what is left of this answer comes again.
        """
        unproven = self._resume.is_unproven(target)
        for applied, record in enumerate(records, start=1):
            if target not in self._positions:
                return
            if unproven and not self._resume.believes(target, record):
                self._discard(target, f"the record at offset {record.offset} is not the one that was read last")
                return
            self._apply(target, record)
            if applied % EVENTS_PER_TURN == 0:
                await tasks.sleep_ms(0)

    async def _apply_plan(self, target: int, records: Sequence[MetadataRecord], plan: ApplyPlan) -> None:
        """The same for records that are sorted by partition: whole runs at once."""
        applied = 0
        for span in plan.spans:
            taken = 0
            if span.run is not None:
                taken = self._apply_run(target, span.partition, span.run)
                applied += taken // RUN_EVENTS_PER_EVENT
            for index in span.indices[taken:]:
                self._apply(target, records[index])
                applied += 1
                if applied % EVENTS_PER_TURN == 0:
                    await tasks.sleep_ms(0)
                    if target not in self._positions:
                        return
            if applied >= EVENTS_PER_TURN:
                applied = 0
                await tasks.sleep_ms(0)
                if target not in self._positions:
                    return

    def _apply_run(self, target: int, partition: TopicIdPartition, run: Run) -> int:
        """Returns the number of a run's records that are done."""
        hosted = self.hosted.get(partition)
        if hosted is None or hosted.metadata_partition != target or run.offsets[-1] <= hosted.applied_offset:
            return len(run.offsets)
        return hosted.apply_run(run)

    async def _restart(self, target: int) -> None:
        """The metadata partition lost what we were about to read: everything it still has is read again."""
        _log.warning(
            "Partition %d of %s does not have the expected offset; reading it from its start", target, METADATA_TOPIC
        )
        if self._resume.is_unproven(target):
            self._discard(target, "it does not have the expected offset")
        self._positions.pop(target, None)
        self._resume.forget(target)
        for hosted in self._by_target.get(target, {}).values():
            hosted.applied_offset = -1
        await tasks.sleep_ms(RETRY_MS)

    def _apply(self, target: int, record: MetadataRecord) -> None:
        if record.value is None:
            self.records_skipped += 1
            return
        try:
            event = decode(record.value)
        except DecodeError as error:
            self._skip(target, record, str(error))
            return
        if isinstance(event, SegmentSnapshot):
            self._skip(target, record, "a snapshot names no partition")
            return
        hosted = self.hosted.get(event.topic_id_partition)
        if hosted is None or record.offset <= hosted.applied_offset or hosted.metadata_partition != target:
            return
        hosted.apply(event, record.offset)

    def _skip(self, target: int, record: MetadataRecord, reason: str) -> None:
        self.records_skipped += 1
        self._unreadable.note(METADATA_TOPIC, target, record.offset, reason)

    def _note_progress(self, target: int) -> None:
        position = self._positions[target]
        for partition, hosted in self._by_target.get(target, {}).items():
            if not hosted.is_ready and hosted.ready_at is not None and position >= hosted.ready_at:
                hosted.set_ready()
                _log.info("Remote log metadata of %s is ready: %d segments", partition, hosted.cache.count)
                self._events.emit(
                    "rlmm_ready",
                    topic=partition.topic,
                    topic_id=partition.topic_id,
                    partition=partition.partition,
                    metadata_partition=target,
                    next_offset=position,
                )
        self._waits.reached(target, position)

    async def save(self) -> None:
        """Writes what is known to the files, so that a restart need not read it again. A failure is logged."""
        waiting = deque(self._by_target)
        while True:
            await self._resume.wait_idle()
            positions: dict[int, int] = {}
            changed: list[tuple[Hosted, int, Stored]] = []
            while waiting and sum(stored.cache.count for _, _, stored in changed) < SEGMENTS_PER_SAVE:
                self._collect(waiting.popleft(), positions, changed)
            left, self._has_unhosted = self._has_unhosted, False
            stores = [stored for _, _, stored in changed]
            if not await self._resume.save(stores, list(self.hosted), positions, set(self._by_target), force=left):
                return
            for hosted, changes, _ in changed:
                hosted.saved_changes = changes
            if not waiting:
                return

    def _collect(self, target: int, positions: dict[int, int], changed: list[tuple[Hosted, int, Stored]]) -> None:
        """Adds a metadata partition's position, if all of its partitions can be written, and those that changed."""
        members = self._by_target.get(target, {}).values()
        # While a partition catches up the position is behind what the others have applied.
        ready = members and all(hosted.is_ready for hosted in members)
        if not ready or target not in self._positions or not self._resume.can_save(target):
            return
        positions[target] = self._positions[target]
        for hosted in members:
            if hosted.changes != hosted.saved_changes:
                changed.append((hosted, hosted.changes, Stored(hosted.cache.copy(), hosted.applied_offset)))

    def close(self) -> None:
        """Lets nothing wait any longer; the owner cancels the task."""
        self._closing = True
        self._waits.close()
