"""Reading partitions of ``__remote_log_metadata`` from one offset to another, for those who act on deleted partitions.

The metadata manager's own reader (``metadata_consumer``) follows only the partitions that this broker hosts; a deleted
one is hosted by no broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Final

from backend.engine.ports import tasks
from backend.engine.remote.metadata.metadata_record import MetadataRecord
from backend.engine.remote.metadata.metadata_topic import (
    METADATA_TOPIC,
    FetchedPartition,
    MetadataTopic,
)
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.remote_log.metadata_serde import PartitionDelete, SegmentSnapshot, decode
from backend.tiering.ids import OffsetRange, TopicIdPartition

FETCH_WAIT_MS: Final = 500
# Fetches in a row that bring nothing below the high watermark: half a minute without a leader.
EMPTY_FETCHES_MAX: Final = 60
# About 4 us an event: the loop is held for 2 ms at a time.
EVENTS_PER_TURN: Final = 512


class MetadataScan:
    """Reads one range at a time; other callers wait."""

    def __init__(self, topic: MetadataTopic) -> None:
        self._topic = topic
        self._lock = tasks.Lock()

    async def offset_ranges(self, partitions: Collection[int]) -> dict[int, OffsetRange]:
        """The present offsets of the partitions; without those whose leader does not answer."""
        return await self._topic.offsets(partitions)

    async def mentioned_partitions(self, partition: int, offsets: OffsetRange) -> dict[TopicIdPartition, bool]:
        """Every user partition that a record of a range names, and whether one of them is about its deletion.

        KafkaError when they cannot all be read.
        """
        partitions: dict[TopicIdPartition, bool] = {}
        async with self._lock:
            async for fetched in self._fetched(partition, offsets):
                if fetched.plan is None:
                    single: Iterable[MetadataRecord] = fetched.records
                else:
                    partitions.update(
                        (span.partition, False) for span in fetched.plan.spans if span.partition not in partitions
                    )
                    single = (
                        fetched.records[index]
                        for span in fetched.plan.spans
                        for index in (span.indices if span.run is None else ())
                    )
                for read, record in enumerate(single, start=1):
                    _note(record, partitions)
                    if read % EVENTS_PER_TURN == 0:
                        await tasks.sleep_ms(0)
        return partitions

    async def records(self, partition: int, offsets: OffsetRange) -> AsyncIterator[Sequence[MetadataRecord]]:
        """The records of a range that is committed, in lists small enough not to block the event loop.

        KafkaError when they cannot be read; what has been given until then is right.
        """
        async with self._lock:
            async for fetched in self._fetched(partition, offsets):
                committed = [record for record in fetched.records if record.offset < offsets.end]
                for start in range(0, len(committed), EVENTS_PER_TURN):
                    yield committed[start : start + EVENTS_PER_TURN]
                    await tasks.sleep_ms(0)

    async def _fetched(self, partition: int, offsets: OffsetRange) -> AsyncIterator[FetchedPartition]:
        """Yields the fetches of a committed range, until its end has been reached."""
        position, empty = offsets.start, 0
        while position < offsets.end:
            fetched = await self._topic.fetch({partition: position}, max_wait_ms=FETCH_WAIT_MS)
            empty += 1
            for result in fetched:
                if result.error is not ErrorCode.NONE and not result.error.retriable:
                    raise KafkaError(result.error, f"offset {position} of {METADATA_TOPIC}-{partition}")
                if result.next_offset > position:
                    position, empty = result.next_offset, 0
                yield result
            if empty >= EMPTY_FETCHES_MAX:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, f"{METADATA_TOPIC}-{partition} cannot be read at offset {position}"
                )


def _note(record: MetadataRecord, partitions: dict[TopicIdPartition, bool]) -> None:
    try:
        event = decode(record.value)
    except DecodeError:
        return
    if not isinstance(event, SegmentSnapshot):
        partition = event.topic_id_partition
        partitions[partition] = partitions.get(partition, False) or isinstance(event, PartitionDelete)
