"""The state of one user partition in the reading half of the metadata manager (``metadata_consumer``)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from backend.engine.ports import tasks
from backend.engine.remote.metadata.remote_log_metadata_cache import ApplyOutcome, RemoteLogMetadataCache
from backend.protocol.remote_log.metadata_serde import PartitionDelete, SegmentMetadata, SegmentUpdate
from backend.tiering.ids import TopicIdPartition
from backend.tiering.segment_state import PartitionDeleteState

if TYPE_CHECKING:
    from backend.engine.remote.metadata.record_runs import Run

_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Hosted:
    """A user partition that this broker hosts."""

    cache: RemoteLogMetadataCache
    metadata_partition: int
    # Gets the partition when the metadata topic says that its topic is deleted.
    deleted: tasks.Queue[TopicIdPartition]
    applied_offset: int = -1
    # Whether the files have been looked at, and whether the cache came from there.
    looked_up: bool = False
    restored: bool = False
    # Events applied, and how many of them the file has.
    changes: int = 0
    saved_changes: int = -1
    # End of the metadata partition when this one was assigned; None until it is known.
    ready_at: int | None = None
    is_ready: bool = False
    ready: tasks.Event = field(default_factory=tasks.Event)

    def set_ready(self) -> None:
        """The cache has caught up; waiting readers go on."""
        self.is_ready = True
        self.ready.set()

    def apply(self, event: SegmentMetadata | SegmentUpdate | PartitionDelete, offset: int) -> None:
        """Takes an event of this partition from a later offset of its metadata partition than all before."""
        self.applied_offset = offset
        self.changes += 1
        if isinstance(event, PartitionDelete):
            if event.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                self.cache = self.cache.empty()
            self.deleted.put_nowait(event.topic_id_partition)
            return
        outcome = self.cache.apply(event)
        if outcome is not ApplyOutcome.APPLIED and self.is_ready:
            _log.warning(
                "Dropped %s of segment %s of %s at offset %d: %s",
                event.state.name,
                event.segment_id.hex(),
                event.topic_id_partition,
                offset,
                outcome.value,
            )

    def apply_run(self, run: Run) -> int:
        """Returns the number of a run's first records that it applied; the rest is for :meth:`apply`."""
        if run.offsets[0] <= self.applied_offset:
            return 0
        taken = len(run.offsets) // len(run.starts) * self.cache.apply_run(run)
        if taken:
            self.applied_offset = run.offsets[taken - 1]
            self.changes += taken
        return taken
