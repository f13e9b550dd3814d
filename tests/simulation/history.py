"""The responses that clients got, and the promises that follow from them: the memory that the checkers compare with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from backend.protocol.record_batches.record_batch import BatchHeader


class Batch(NamedTuple):
    """A committed batch: what every replica and every reader must have at its base offset."""

    last_offset: int
    leader_epoch: int
    crc: int

    @classmethod
    def of(cls, header: BatchHeader) -> Batch:
        return cls(header.last_offset, header.leader_epoch, header.crc)


@dataclass(slots=True)
class PartitionHistory:
    """One partition of one topic life."""

    # Records that were acknowledged to a producer (acks=all): offset → value.
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    # Batches that were below some replica's high watermark, by base offset.
    committed: dict[int, Batch] = field(default_factory=dict)
    # The highest last stable offset and log start that any leader has had.
    stable_end: int = 0
    log_start: int = 0
    # Up to here somebody asked for records to be deleted; -1 once retention may delete any of them.
    deleted_to: int = 0


@dataclass(slots=True)
class TopicHistory:
    """One life of a topic."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionHistory]
    # Unclean elections are allowed: acknowledged records may be lost, but reads still follow one chain of epochs.
    unclean: bool
    tiered: bool
    # Keeps the last record of each key, in new batches.
    compacted: bool = False
    # Records have the broker's time, not the producer's.
    broker_stamps: bool = False
    # Was tiered from its beginning; `tiered` is False from the moment at which somebody may have switched that off.
    may_tier: bool = False
    # Retention has had a limit at some time: log start may be anywhere.
    limited: bool = False
    deleting: bool = False

    @property
    def keeps_records(self) -> bool:
        """Whether what was committed stays as it is until log start passes it."""
        return not (self.unclean or self.compacted)


@dataclass(slots=True)
class History:
    """All topics that live."""

    topics: dict[str, TopicHistory] = field(default_factory=dict)
    acknowledged: int = 0
    reads: int = 0
    remote_reads: int = 0

    @property
    def living(self) -> list[TopicHistory]:
        return [topic for topic in self.topics.values() if not topic.deleting]
