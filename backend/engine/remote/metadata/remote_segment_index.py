"""The segments of a partition that a metadata manager knows; listed only when the list is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Protocol, cast, runtime_checkable

from backend.engine.remote.metadata.remote_log_metadata_manager import RemoteLogMetadataManager
from backend.engine.remote.metadata.segment_summary import SegmentSummary, summarize
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.ids import TopicIdPartition


@dataclass(frozen=True, slots=True)
class RemoteSegmentIndex:
    """The segments that are not deleted. A run that lets nothing go looks at the summary alone; one that does takes
    from `of_epoch` (by start offset) little more than what goes, unless `retention.bytes` is passed or leader epochs
    are forgotten.
    """

    summary: SegmentSummary
    segments: Callable[[], Iterable[SegmentMetadata]]
    of_epoch: Callable[[int], Iterable[SegmentMetadata]]


@runtime_checkable
class Summarizes(Protocol):
    """A metadata manager that need not list all segments for it. The contract (KIP-405) has the lists only."""

    def summary(self, partition: TopicIdPartition) -> SegmentSummary: ...

    def oldest_of(self, partition: TopicIdPartition, epoch: int) -> Iterable[SegmentMetadata]: ...


@cache
def _kind_summarizes(kind: type) -> bool:
    # To look for a protocol's methods takes as long as the rest of a run that finds nothing to do.
    return issubclass(kind, Summarizes)


def _summarizing(metadata: RemoteLogMetadataManager) -> Summarizes | None:
    return cast(Summarizes, metadata) if _kind_summarizes(type(metadata)) else None


def segment_index(metadata: RemoteLogMetadataManager, partition: TopicIdPartition) -> RemoteSegmentIndex:
    """Returns the present segments of a partition: use it before anything changes."""
    summaries = _summarizing(metadata)
    if summaries is not None:
        return RemoteSegmentIndex(
            summaries.summary(partition),
            lambda: metadata.segments(partition),
            lambda epoch: summaries.oldest_of(partition, epoch),
        )
    listed = list(metadata.segments(partition))
    return RemoteSegmentIndex(summarize(listed), lambda: listed, lambda epoch: metadata.segments_of(partition, epoch))
