"""Bugs for each checker, each planted into one function of the engine for one run: what the checkers are there for."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import pytest

from backend.engine.apis import write_txn_markers
from backend.engine.apis.services import BrokerServices
from backend.engine.broker.partition_marker import PartitionMarker
from backend.engine.controller.image.metadata_image import PartitionRegistration
from backend.engine.log import local_retention
from backend.engine.log.leader_epoch_cache import LeaderEpochCache
from backend.engine.log.local_retention import RetentionDecision, RetentionState, decide
from backend.engine.log.log_appender import AppendInfo
from backend.engine.log.log_config import LogConfig
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.remote.manager import partition_remover, remote_log_manager, task_loop
from backend.engine.remote.manager.copy_task import CopyTask
from backend.engine.remote.manager.segment_deletion import delete_all
from backend.engine.remote.manager.tier import Tier
from backend.engine.remote.storage.object_store_manager import LOG_SUFFIX, ObjectStoreRemoteStorageManager, object_key
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageManager, RetriableRemoteStorageError
from backend.engine.replica.partition import Partition
from backend.engine.replica.replica_progress import ReplicaProgress
from backend.protocol.errors import ErrorCode
from backend.protocol.messages import WriteTxnMarkersRequest
from backend.protocol.record_batches.record_batch import iter_batches, patch_offset_and_epoch
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.ids import TopicIdPartition, TopicPartition

Plant = Callable[[pytest.MonkeyPatch], None]


def leader_acknowledges_at_once(patch: pytest.MonkeyPatch) -> None:
    """acks=all is answered as soon as the leader has the records."""
    patch.setattr(Partition, "acknowledged", lambda self, required_offset: ErrorCode.NONE)


def followers_stamp_their_own_epoch(patch: pytest.MonkeyPatch) -> None:
    """A follower writes what it fetches under the present leader epoch instead of the one it was produced under."""
    append = UnifiedLog.append_as_follower

    def careless(self: UnifiedLog, records: memoryview, leader_epoch: int, *, now_ms: int = 0) -> AppendInfo:
        stamped = memoryview(bytearray(records))
        for position, header in iter_batches(stamped):
            patch_offset_and_epoch(stamped, position, header.base_offset, leader_epoch)
        return append(self, stamped, leader_epoch, now_ms=now_ms)

    patch.setattr(UnifiedLog, "append_as_follower", careless)


def retention_does_not_ask_the_remote_tier(patch: pytest.MonkeyPatch) -> None:
    """Local segments go although nothing has copied them."""

    def careless(segments: Any, state: RetentionState, config: LogConfig, *, now_ms: int) -> RetentionDecision:
        return decide(segments, replace(state, highest_remote_offset=1 << 60), config, now_ms=now_ms)

    patch.setattr(local_retention, "decide", careless)


def epochs_begin_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """A log notes its first leader epoch only, so that its chain does not know who wrote what."""
    assign, begin = LeaderEpochCache.assign, LeaderEpochCache.begin

    def careless(self: LeaderEpochCache, epoch: int, start_offset: int) -> bool:
        return self.is_empty and assign(self, epoch, start_offset)

    def careless_leader(self: LeaderEpochCache, epoch: int, start_offset: int) -> None:
        if self.is_empty:
            begin(self, epoch, start_offset)

    patch.setattr(LeaderEpochCache, "assign", careless)
    patch.setattr(LeaderEpochCache, "begin", careless_leader)


def failed_copies_count_as_finished(patch: pytest.MonkeyPatch) -> None:
    """The storage's error is lost, so metadata says that objects are there that are not."""
    copy_data = ObjectStoreRemoteStorageManager.copy_log_segment_data

    def careless(self: ObjectStoreRemoteStorageManager, metadata: SegmentMetadata, data: Any) -> bytes | None:
        try:
            return copy_data(self, metadata, data)
        except RetriableRemoteStorageError:
            return None

    patch.setattr(ObjectStoreRemoteStorageManager, "copy_log_segment_data", careless)


def deletion_forgets_the_log(patch: pytest.MonkeyPatch) -> None:
    """Of a deleted segment the largest object stays for ever."""
    delete = ObjectStoreRemoteStorageManager.delete_log_segment_data

    def careless(self: ObjectStoreRemoteStorageManager, metadata: SegmentMetadata) -> None:
        key = object_key(metadata, LOG_SUFFIX)
        stored = self._store._objects.stored  # type: ignore[attr-defined]  # the simulation's store
        kept = stored.get(key)
        delete(self, metadata)
        if kept is not None:
            stored[key] = kept

    patch.setattr(ObjectStoreRemoteStorageManager, "delete_log_segment_data", careless)


class _DeletesNothing:
    def delete_log_segment_data(self, metadata: SegmentMetadata) -> None:
        """Says that it did."""


def removed_topics_leave_their_objects(patch: pytest.MonkeyPatch) -> None:
    """The segments of a deleted topic are published as deleted without a call of the storage."""

    async def careless(tier: Tier, segments: Any, publish: Any) -> None:
        other = copy(tier)
        other.storage = cast(RemoteStorageManager, _DeletesNothing())
        await delete_all(other, segments, publish)

    patch.setattr(partition_remover, "delete_all", careless)


def deletions_are_never_marked(patch: pytest.MonkeyPatch) -> None:
    """The controller assumes that it has published the deletion of a partition."""

    async def careless(self: PartitionMarker, target: int, tip: TopicIdPartition) -> None:
        pass

    patch.setattr(PartitionMarker, "_publish", careless)


def followers_forget_their_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Every change of leaders sets a follower's high watermark back to its log start."""
    become_follower = Partition.become_follower

    def careless(self: Partition, registration: PartitionRegistration) -> bool:
        self.log.update_high_watermark(self.log.local_log_start_offset)
        return become_follower(self, registration)

    patch.setattr(Partition, "become_follower", careless)


def leaders_forget_their_log_start(patch: pytest.MonkeyPatch) -> None:
    """A new leader assumes that no record was ever deleted."""
    become_leader = Partition.become_leader

    def careless(self: Partition, registration: PartitionRegistration) -> bool:
        self.log._offsets.log_start = 0
        return become_leader(self, registration)

    patch.setattr(Partition, "become_leader", careless)


def copies_what_is_not_stable(patch: pytest.MonkeyPatch) -> None:
    """Sealed segments are copied before the in-sync replicas have them."""
    candidates = CopyTask._candidates

    def careless(self: CopyTask, log: UnifiedLog) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(UnifiedLog, "last_stable_offset", property(lambda log: log.log_end_offset))
            return candidates(self, log)

    patch.setattr(CopyTask, "_candidates", careless)


def nobody_comes_back_into_the_isr(patch: pytest.MonkeyPatch) -> None:
    """A leader takes out of the ISR who is late and never asks for them again."""
    patch.setattr(ReplicaProgress, "_maybe_expand", lambda self, replica, state, high_watermark: None)


def failed_tasks_are_not_tried_again(patch: pytest.MonkeyPatch) -> None:
    """One failure, and the copy task of a partition sleeps for days."""
    delay_ms = task_loop.delay_ms

    def never(failures: int, *rest: Any) -> float:
        return 1e9 if failures else delay_ms(failures, *rest)

    for module in (remote_log_manager, task_loop):
        patch.setattr(module, "delay_ms", never)


def unclean_topics_get_no_markers(patch: pytest.MonkeyPatch) -> None:
    """Leaders of the topic that allows unclean elections say that they have markers which they never write."""
    append = write_txn_markers._append

    async def careless(
        services: BrokerServices, marker: WriteTxnMarkersRequest.Markers, partition: TopicPartition
    ) -> None:
        if partition.topic != "u":
            await append(services, marker, partition)

    patch.setattr(write_txn_markers, "_append", careless)


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, the checker that must find it, and the first seed to try."""

    plant: Plant
    checker: str
    seed: int
    faults: tuple[str, ...]
    unclean: bool = False


DELETIONS: Final = ("topic deletion", "new topic", "look")
PLANTED: Final = (
    Planted(leader_acknowledges_at_once, "AcknowledgedSurvive", 22, ("crash", "hole", "election")),
    Planted(followers_stamp_their_own_epoch, "ReplicasAgree", 22, ("crash", "election")),
    Planted(retention_does_not_ask_the_remote_tier, "NoGap", 16, ("store trouble",)),
    Planted(epochs_begin_unnoticed, "ReadsFollowLineage", 23, ("election", "clean restart")),
    Planted(failed_copies_count_as_finished, "ObjectsAndMetadata", 7, ("store trouble",)),
    Planted(deletion_forgets_the_log, "ObjectsAndMetadata", 8, ("delete records", "retention")),
    Planted(removed_topics_leave_their_objects, "DeletedTopicsLeaveNothing", 8, DELETIONS),
    Planted(deletions_are_never_marked, "DeletedTopicsLeaveNothing", 8, DELETIONS),
    Planted(followers_forget_their_high_watermark, "NeverBack", 24, ("crash",)),
    Planted(leaders_forget_their_log_start, "NeverBack", 6, ("retention", "crash", "clean restart", "delete records")),
    Planted(copies_what_is_not_stable, "OffsetsInOrder", 3, ("hole", "bad line", "throttle")),
    Planted(nobody_comes_back_into_the_isr, "EverythingRecovers", 16, ("crash",)),
    Planted(failed_tasks_are_not_tried_again, "EverythingRecovers", 22, ("store trouble",)),
    Planted(unclean_topics_get_no_markers, "EverythingRecovers", 18, ("crash",), unclean=True),
)
