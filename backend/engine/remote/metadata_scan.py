"""Reading partitions of ``__remote_log_metadata`` from one offset to another, for those who act on deleted partitions.

The metadata manager's own reader (``rlmm_consumer``) follows only the partitions that this broker hosts; a deleted one
is nobody's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

from backend.engine.ports import tasks
from backend.engine.remote.metadata_topic import METADATA_TOPIC, MetadataRecord, MetadataTopic
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import OffsetRange

FETCH_WAIT_MS: Final = 500
# Fetches in a row that bring nothing below the high watermark: half a minute without a leader.
EMPTY_FETCHES_MAX: Final = 60
# About 4 us an event: the loop is held for 2 ms at a time.
EVENTS_PER_TURN: Final = 512


class MetadataScan:
    """One reading at a time; whoever comes meanwhile waits."""

    def __init__(self, topic: MetadataTopic) -> None:
        self._topic = topic
        self._turn = tasks.Lock()

    async def held(self, partitions: Collection[int]) -> dict[int, OffsetRange]:
        """What the partitions hold now; those whose leader does not say are left out."""
        return await self._topic.offsets(partitions)

    async def records(self, partition: int, offsets: OffsetRange) -> AsyncIterator[Sequence[MetadataRecord]]:
        """The records of a range that is committed, in pieces that hold up the loop for no long time.

        KafkaError when they cannot be read; what has been given until then is right.
        """
        position, empty = offsets.start, 0
        async with self._turn:
            while position < offsets.end:
                fetched = await self._topic.fetch({partition: position}, max_wait_ms=FETCH_WAIT_MS)
                empty += 1
                for piece in fetched:
                    if piece.error is not ErrorCode.NONE and not piece.error.retriable:
                        raise KafkaError(piece.error, f"offset {position} of {METADATA_TOPIC}-{partition}")
                    if piece.next_offset > position:
                        position, empty = piece.next_offset, 0
                    wanted = [record for record in piece.records if record.offset < offsets.end]
                    for start in range(0, len(wanted), EVENTS_PER_TURN):
                        yield wanted[start : start + EVENTS_PER_TURN]
                        await tasks.sleep_ms(0)
                if empty >= EMPTY_FETCHES_MAX:
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT, f"{METADATA_TOPIC}-{partition} cannot be read at offset {position}"
                    )
