"""Remote segments of the metadata topic, and whether their objects are there. Pure.

Objects lie as Kafka's LocalTieredStorage lays them out; see :mod:`backend.engine.remote.storage.object_store_manager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from backend.cli.remote.record_text import TopicRecord
from backend.engine.remote.metadata.remote_log_metadata_cache import RemoteLogMetadataCache
from backend.engine.remote.storage.object_store_manager import LOG_SUFFIX, former_object_key, object_key
from backend.protocol.remote_log.metadata_serde import PartitionDelete, SegmentMetadata, SegmentSnapshot
from backend.tiering.ids import TopicIdPartition, uuid_text
from backend.tiering.segment_state import PartitionDeleteState, SegmentState

# A transaction index is optional; whether a segment has one is only known where the flag says that it has none.
REQUIRED_SUFFIXES: Final = (LOG_SUFFIX, "index", "timeindex", "snapshot", "leader_epoch_checkpoint")
OPTIONAL_SUFFIXES: Final = ("txnindex",)


class ObjectProblem(StrEnum):
    """The fault of an object."""

    MISSING = "missing"
    """A readable segment lacks it: offsets of the segment cannot be read."""
    SIZE_MISMATCH = "size mismatch"
    """The log object has other bytes than the ledger says."""
    ORPHANED = "orphaned"
    """No segment that the ledger knows owns it: it costs money and nobody will ever delete it."""


@dataclass(frozen=True, slots=True, order=True)
class LedgerProblem:
    """One object with a problem."""

    problem: ObjectProblem
    key: str
    detail: str

    def document(self) -> dict[str, Any]:
        return {"problem": self.problem.value, "object": self.key, "detail": self.detail}


class SegmentLedger:
    """Remote segments by partition, from the records of the metadata topic."""

    def __init__(self) -> None:
        self._caches: dict[TopicIdPartition, RemoteLogMetadataCache] = {}
        self.unreadable = 0
        """Records that no version of the format explains."""

    def apply(self, records: Iterable[TopicRecord]) -> None:
        """Takes records in the order of their partition."""
        for record in records:
            event = record.event
            if event is None or isinstance(event, SegmentSnapshot):
                self.unreadable += record.value is not None
            elif isinstance(event, PartitionDelete):
                if event.state is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                    self._caches.pop(event.topic_id_partition, None)
            else:
                partition = event.topic_id_partition
                cache = self._caches.get(partition)
                if cache is None:
                    cache = self._caches[partition] = RemoteLogMetadataCache(partition)
                cache.apply(event)

    def segments(self, topic: str | None = None, partition: int | None = None) -> Iterator[SegmentMetadata]:
        """Segments that are not deleted, by partition and offset; only of a topic, or of one partition of it."""
        for tip in sorted(self._caches):
            if topic in (None, tip.topic) and partition in (None, tip.partition):
                yield from sorted(
                    self._caches[tip].segments(), key=lambda segment: (segment.start_offset, segment.segment_id)
                )


def compare(segments: Iterable[SegmentMetadata], objects: Mapping[str, int]) -> list[LedgerProblem]:
    """Problems of the objects (key to bytes) that the segments should have, and of those that no segment has.

    A segment that is being copied or deleted may have any part of its objects.
    """
    owned: set[str] = set()
    problems: list[LedgerProblem] = []
    for segment in segments:
        keys = {suffix: _key(segment, suffix, objects) for suffix in (*REQUIRED_SUFFIXES, *OPTIONAL_SUFFIXES)}
        owned.update(keys.values())
        if segment.state is not SegmentState.COPY_SEGMENT_FINISHED:
            continue
        subject = (
            f"offsets {segment.start_offset} to {segment.end_offset} of {segment.topic_id_partition},"
            f" segment {uuid_text(segment.segment_id)}"
        )
        problems += [
            LedgerProblem(ObjectProblem.MISSING, keys[suffix], subject)
            for suffix in REQUIRED_SUFFIXES
            if keys[suffix] not in objects
        ]
        size = objects.get(keys[LOG_SUFFIX])
        if size not in (None, segment.segment_size_bytes):
            detail = f"{size} bytes, the ledger says {segment.segment_size_bytes}; {subject}"
            problems.append(LedgerProblem(ObjectProblem.SIZE_MISMATCH, keys[LOG_SUFFIX], detail))
    problems += [
        LedgerProblem(ObjectProblem.ORPHANED, key, f"{size} bytes that no segment of the ledger owns")
        for key, size in objects.items()
        if key not in owned
    ]
    return sorted(problems)


def _key(segment: SegmentMetadata, suffix: str, objects: Mapping[str, int]) -> str:
    key, former = object_key(segment, suffix), former_object_key(segment, suffix)
    return former if former is not None and former in objects and key not in objects else key


def segment_document(segment: SegmentMetadata) -> dict[str, Any]:
    """A segment for scripts, with the field names of the API's segments."""
    tip = segment.topic_id_partition
    return {
        "topic": tip.topic,
        "topic_id": uuid_text(tip.topic_id),
        "partition": tip.partition,
        "segment_id": uuid_text(segment.segment_id),
        "start_offset": segment.start_offset,
        "next_offset": segment.end_offset + 1,
        "segment_size_bytes": segment.segment_size_bytes,
        "state": segment.state.name,
        "leader_epochs": [list(entry) for entry in segment.segment_leader_epochs],
        "broker_id": segment.broker_id,
        "max_timestamp_ms": segment.max_timestamp_ms,
        "event_timestamp_ms": segment.event_timestamp_ms,
        "txn_index_empty": segment.txn_index_empty,
        "custom_metadata": None if segment.custom_metadata is None else segment.custom_metadata.hex(),
    }
