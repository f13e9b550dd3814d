"""Copying a led partition's sealed segments to the remote tier, oldest first (KIP-405; `RLMCopyTask`).

One :class:`CopyTask` per led partition; ``task_loop`` calls :meth:`CopyTask.run` over and over. Order within a
segment: STARTED is on the metadata topic before the first byte goes out, FINISHED only after the last, and only then
does the highest remote offset rise, which is what lets local retention drop the segment.
"""

from __future__ import annotations

import logging
from typing import Final

from backend.engine.log.checkpoint_files import encode_epochs
from backend.engine.log.log_errors import DamagedIndex
from backend.engine.log.segments.log_segment import LogSegment
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import tasks
from backend.engine.remote.manager.copied_offsets import complete_epochs, find_copied, find_log_start
from backend.engine.remote.manager.segment_deletion import delete_segment
from backend.engine.remote.manager.tier import PartitionView, Tier
from backend.engine.remote.metadata.remote_segment_index import segment_index
from backend.engine.remote.storage.remote_storage_manager import (
    LogSegmentData,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from backend.protocol.errors import KafkaError
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentUpdate
from backend.tiering.ids import uuid_text
from backend.tiering.segment_state import SegmentState

ALL_EPOCHS: Final = -1
# A copy that waits for its quota looks again after this at the latest: the quota may have been raised.
QUOTA_WAIT_MS: Final = 1000

_log = logging.getLogger(__name__)


class CustomMetadataTooLarge(RemoteStorageError):
    """The storage returned more custom metadata than a record may carry; copying stops until something changes."""


class CopyTask:
    """Copies one partition while this broker leads it."""

    def __init__(self, view: PartitionView, tier: Tier) -> None:
        self.partition = view.topic_id_partition
        self._view = view
        self._tier = tier
        self._log_dir = ""
        self._log_start_found = False
        # Last offset known to be copied; None until it has been looked up.
        self._copied: int | None = None
        self.cancelled = False
        # Set with `cancelled` when the partition is deleted: a copy that lands after all is taken back.
        self.deleted = False

    async def run(self) -> None:
        """One pass over what can be copied now. Raises RemoteStorageError or KafkaError when it could not be done."""
        log = self._view.log
        if self._is_over() or not self._tier.is_ready(self.partition):
            return
        try:
            self._recount(log)
            self._discover(log)
            for segment, next_base in self._candidates(log):
                if not await self._may_copy(segment.size_bytes):
                    return
                await self._copy(log, segment, next_base)
        except CustomMetadataTooLarge:
            self._count_error()
            self.cancelled = True
            raise
        except RetriableRemoteStorageError:
            raise
        except (RemoteStorageError, KafkaError) as error:
            if not (isinstance(error, KafkaError) and error.retriable):
                self._count_error()
            raise
        finally:
            # The present leader has the gauges.
            if not self.cancelled:
                self.update_lag()

    def _is_over(self) -> bool:
        log = self._view.log
        return self.cancelled or not log.remote_enabled or log.config.remote_log_copy_disable

    def _count_error(self) -> None:
        if not self.cancelled:
            self._tier.meters.mark(self.partition.topic, "remotecopyerrors")

    async def _may_copy(self, size_bytes: int) -> bool:
        """Waits for the broker's copy quota and takes the segment's share of it; False when the task is over.

        Between the last check of the quota and the count lies no wait, so no two copies take the same share.
        """
        quota = self._tier.copy_quota
        while not self._is_over():
            throttle_ms = quota.throttle_ms()
            if not throttle_ms:
                quota.record(size_bytes)
                return True
            quota.throttled.record(throttle_ms)
            _log.debug("Copy of %s waits %d ms for the copy quota", self.partition, throttle_ms)
            await tasks.sleep_ms(min(throttle_ms, QUOTA_WAIT_MS))
        return False

    def _recount(self, log: UnifiedLog) -> None:
        """Reads the highest copied offset again while anything is in deletion.

        An earlier leader may have been deleting everything remote, when tiering was off, and its last event may have
        come after this broker read the offset. Segments that are still local are then copied again, and stay local
        until they are. A log that begins behind that offset has nothing to copy again: what is deleted has expired.
        """
        metadata, before = self._tier.metadata, self._copied
        if before is None or before < log.log_start_offset:
            return
        if not segment_index(metadata, self.partition).summary.deleting:
            return
        log.forget_highest_remote_offset()
        self._copied = find_copied(log, metadata, self.partition).offset
        log.update_highest_remote_offset(self._copied)
        if self._copied < before:
            _log.warning("%s is copied up to offset %d, not to %d: what lies between is deleted, and copied again",
                         log, self._copied, before)  # fmt: skip

    def _discover(self, log: UnifiedLog) -> None:
        metadata = self._tier.metadata
        complete_epochs(log, metadata, self.partition)
        epochs = log.leader_epochs.entries
        if log.dir != self._log_dir:
            # A first run, or the replica moved to another disk.
            self._log_dir, self._log_start_found, self._copied = log.dir, False, None
        if not self._log_start_found:
            start = find_log_start(
                epochs, lambda epoch: metadata.segments_of(self.partition, epoch), log.local_log_start_offset
            )
            log.maybe_increment_log_start_offset(start)
            self._log_start_found = True
        if self._copied is None:
            highest = find_copied(log, metadata, self.partition)
            self._copied = highest.offset
            log.update_highest_remote_offset(highest.offset)
            _log.info("%s is copied up to offset %d (epoch %d)", log, highest.offset, highest.epoch)

    def _candidates(self, log: UnifiedLog) -> list[tuple[LogSegment, int]]:
        """Segments to copy with the base offset of the one after: everything sealed and stable past what is copied."""
        copied = -1 if self._copied is None else self._copied
        stable = log.last_stable_offset
        if stable <= 0 or copied >= stable:
            return []
        from_offset = max(copied + 1, log.log_start_offset)
        segments = log.segments.from_offset(from_offset)
        following = [segment.base_offset for segment in segments[1:]]
        return [(segment, end) for segment, end in zip(segments, following, strict=False) if end <= stable]

    async def _check_indexes(self, log: UnifiedLog, segment: LogSegment) -> None:
        """Keeps damaged indexes from being copied: readers of the remote segment have no others. Raises DamagedIndex
        until the log has rebuilt it.
        """
        try:
            await self._tier.workers.run(segment.check_index_files)
        except DamagedIndex as error:
            if log.segments.floor(segment.base_offset) is segment:
                segment.damaged = True
                log.health.note_damaged_index(error)
            raise

    async def _copy(self, log: UnifiedLog, segment: LogSegment, next_base: int) -> None:
        tier, partition = self._tier, self.partition
        await self._check_indexes(log, segment)
        await self._ensure_snapshot(log, segment, next_base)
        if next_base <= log.log_start_offset or self._is_over():
            # Retention has taken it while it waited for the quota or for its snapshot.
            return
        started = SegmentMetadata(
            topic_id_partition=partition,
            segment_id=tier.ports.random.uuid(),
            start_offset=segment.base_offset,
            end_offset=next_base - 1,
            broker_id=tier.broker_id,
            max_timestamp_ms=segment.largest_timestamp,
            event_timestamp_ms=tier.ports.clock.time_ms(),
            segment_leader_epochs=log.leader_epochs.entries_in_range(segment.base_offset, next_base),
            segment_size_bytes=segment.size_bytes,
            custom_metadata=None,
            state=SegmentState.COPY_SEGMENT_STARTED,
            txn_index_empty=segment.txn_index_empty,
        )
        data = LogSegmentData(
            log_path=segment.files.log_path,
            offset_index_path=segment.files.offset_index_path,
            time_index_path=segment.files.time_index_path,
            txn_index_path=None if segment.txn_index_empty else segment.files.txn_index_path,
            producer_snapshot_path=log.producer_state.path(next_base),
            leader_epochs=encode_epochs(log.leader_epochs.entries_in_range(ALL_EPOCHS, next_base)),
        )
        tier.copying.add(started.segment_id)
        try:
            await self._publish_and_copy(started, data)
        finally:
            tier.copying.discard(started.segment_id)
        self._copied = started.end_offset
        if not self.cancelled:
            # A leader that was deposed meanwhile learns as a follower how much of it is in its new leader's history.
            log.update_highest_remote_offset(started.end_offset)

    async def _ensure_snapshot(self, log: UnifiedLog, segment: LogSegment, next_base: int) -> None:
        """The producer snapshot at the segment's end: no follower could go on from the segment without it.

        Kafka's copies fail for ever where the file was lost.
        """
        try:
            if await self._tier.workers.run(lambda: log.index_repair.restore_snapshot(next_base)):
                log.producer_state.find_stored()
                _log.warning("%s had lost its producer snapshot at %d, which was made again from its records", log,
                             next_base)  # fmt: skip
        except OSError as error:
            raise RetriableRemoteStorageError(
                f"Segment {segment.base_offset} of {self.partition} cannot be copied: its producer snapshot at"
                f" {next_base} is lost and could not be made again, which is tried again: {error}"
            ) from error

    async def _publish_and_copy(self, started: SegmentMetadata, data: LogSegmentData) -> None:
        tier, topic = self._tier, self.partition.topic
        await tier.metadata.add_segment(started)
        if self.deleted:
            await self._clean_up(started, "its topic was deleted")
            return
        self._emit(started, "started")
        tier.meters.mark(topic, "remotecopyrequests")
        began_ms = tier.ports.clock.monotonic_ms()
        try:
            custom = await tier.workers.run(lambda: tier.storage.copy_log_segment_data(started, data))
            limit = tier.config().remote_log_metadata_custom_metadata_max_bytes
            if custom is not None and len(custom) > limit:
                raise CustomMetadataTooLarge(
                    f"Custom metadata of segment {uuid_text(started.segment_id)} of {self.partition} has {len(custom)} "
                    f"bytes; remote.log.metadata.custom.metadata.max.bytes allows {limit}"
                )
        except RetriableRemoteStorageError as error:
            # The next run copies again under another id; what stands as STARTED is removed by expiration.
            self._emit(started, "failed", error)
            raise
        except RemoteStorageError as error:
            self._emit(started, "failed", error)
            await self._clean_up(started, "its copy failed")
            raise
        if self.deleted:
            await self._clean_up(started, "its topic was deleted")
            return
        await self._finish(started, custom)
        tier.meters.mark(topic, "remotecopybytes", started.segment_size_bytes)
        self._emit(started, "finished")
        _log.info(
            "Copied segment %d-%d of %s (%d bytes) as %s in %d ms",
            started.start_offset,
            started.end_offset,
            self.partition,
            started.segment_size_bytes,
            uuid_text(started.segment_id),
            tier.ports.clock.monotonic_ms() - began_ms,
        )

    async def _finish(self, started: SegmentMetadata, custom: bytes | None) -> None:
        """Publishes FINISHED. RetriableRemoteStorageError when it came too late: another broker, which leads by now,
        has deleted the segment and may have done so before its last object was there.
        """
        tier, segment_id = self._tier, started.segment_id
        await tier.metadata.update_segment(
            SegmentUpdate(
                self.partition,
                segment_id,
                tier.broker_id,
                tier.ports.clock.time_ms(),
                custom,
                SegmentState.COPY_SEGMENT_FINISHED,
            )
        )
        if self._is_finished(started):
            return
        error = RetriableRemoteStorageError(
            f"Segment {uuid_text(segment_id)} of {self.partition} was deleted by another broker while it was copied"
        )
        self._emit(started, "failed", error)
        # Known again, so that another broker removes its objects if this one does not come to it.
        again = started._replace(custom_metadata=custom)
        await tier.metadata.add_segment(again)
        await self._clean_up(again, "another broker had deleted it during its copy")
        raise error

    def _is_finished(self, started: SegmentMetadata) -> bool:
        metadata, segment_id = self._tier.metadata, started.segment_id
        epoch, start_offset = started.segment_leader_epochs[0]
        current = metadata.lookup(self.partition, epoch, start_offset)
        # Another copy of the same records may hide it.
        return (current is not None and current.segment_id == segment_id) or any(
            segment.segment_id == segment_id and segment.state is SegmentState.COPY_SEGMENT_FINISHED
            for segment in metadata.segments_of(self.partition, epoch)
        )

    async def _clean_up(self, started: SegmentMetadata, reason: str) -> None:
        """Takes back a copy that failed for good or is not needed any more, so that it does not stay as STARTED."""
        try:
            await delete_segment(self._tier, started)
        except RemoteStorageError as error:
            _log.warning(
                "Segment %s of %s could not be removed after %s; expiration or the partition remover tries again: %s",
                uuid_text(started.segment_id),
                self.partition,
                reason,
                error,
            )

    def _emit(self, segment: SegmentMetadata, outcome: str, error: Exception | None = None) -> None:
        self._tier.events.emit(
            "copy",
            topic=self.partition.topic,
            topic_id=self.partition.topic_id,
            partition=self.partition.partition,
            segment_id=segment.segment_id,
            start=segment.start_offset,
            end=segment.end_offset,
            bytes=segment.segment_size_bytes,
            outcome=outcome,
            error=None if error is None else str(error),
        )

    def update_lag(self) -> None:
        """Sets the gauges of what only the local disk holds; the active segment does not count."""
        log = self._view.log
        local = log.only_local_segments
        gauges = self._tier.meters.gauges(self.partition)
        gauges.remotecopylagbytes = max(0, sum(s.size_bytes for s in local) - log.active_segment.size_bytes)
        gauges.remotecopylagsegments = max(0, len(local) - 1)
