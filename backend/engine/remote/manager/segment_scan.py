"""Walking over the batches of a remote segment with few, ranged reads of the storage."""

from __future__ import annotations

from typing import Final

from backend.engine.remote.manager.tier import Tier
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageError
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.record_batch import HEADER_BYTES, MAGIC, BatchHeader, parse_header
from backend.protocol.remote_log.metadata_serde import SegmentMetadata
from backend.tiering.ids import uuid_text

# Between two index entries lie index.interval.bytes (4 KiB) and one batch: most often the wanted batch is in the
# first piece.
CHUNK_BYTES: Final = 16 * 1024


class CorruptSegment(RemoteStorageError):
    """A log or an index of a remote segment is damaged."""


class SegmentScan:
    """A window on a remote log file that moves forward."""

    def __init__(self, tier: Tier, metadata: SegmentMetadata) -> None:
        self._tier = tier
        self.metadata = metadata
        self.size_bytes = metadata.segment_size_bytes
        self._data = b""
        self._start = 0

    async def bytes_at(self, position: int, size: int, *, ahead: int = 0) -> memoryview:
        """Up to `size` bytes from a position, without a copy; shorter only at the end of the file. Reads `ahead` bytes
        more, if it reads.
        """
        end = min(position + size, self.size_bytes)
        held_end = self._start + len(self._data)
        if not (self._start <= position and end <= held_end):
            kept = self._data[position - self._start :] if self._start <= position < held_end else b""
            start = position + len(kept)
            last = min(end + ahead, self.size_bytes) - 1
            tier, metadata = self._tier, self.metadata
            fetched = (
                await tier.workers.run(lambda: tier.storage.fetch_log_segment(metadata, start, last))
                if start <= last
                else b""
            )
            self._data, self._start = (kept + fetched if kept else fetched), position
        offset = position - self._start
        return memoryview(self._data)[offset : offset + max(0, end - position)]

    async def header_at(self, position: int, *, ahead: int = CHUNK_BYTES) -> BatchHeader | None:
        """Header of the batch that starts there; None at the end of the file."""
        if position >= self.size_bytes:
            return None
        data = await self.bytes_at(position, HEADER_BYTES, ahead=ahead)
        try:
            header = parse_header(data)
        except DecodeError as error:
            raise self.corrupt(position, str(error)) from error
        if header.magic != MAGIC:
            raise self.corrupt(position, f"magic {header.magic}")
        return header

    async def check_entry(self, indexed: int | None, position: int, *, ahead: int = CHUNK_BYTES) -> None:
        """Raises CorruptSegment when an index entry leads to a batch past the offset that it names: what lies between
        would never be seen. `indexed` is None where there is no entry.
        """
        if indexed is None:
            return
        first = await self.header_at(position, ahead=ahead)
        if first is None or first.base_offset > indexed:
            there = "nothing" if first is None else f"offset {first.base_offset}"
            raise self.corrupt(position, f"its index promises offset {indexed}, there is {there}")

    async def find(self, position: int, offset: int, *, ahead: int = CHUNK_BYTES) -> tuple[int, BatchHeader] | None:
        """Position and header of the first batch that ends at or past `offset`, searching from a batch's start."""
        while (header := await self.header_at(position, ahead=ahead)) is not None:
            if header.last_offset > self.metadata.end_offset:
                raise self.corrupt(
                    position, f"offset {header.last_offset} is past its last, {self.metadata.end_offset}"
                )
            if header.last_offset >= offset:
                return position, header
            position += header.size_bytes
        return None

    def corrupt(self, position: int, problem: str) -> CorruptSegment:
        """Makes the error for bytes at `position` that cannot be right."""
        segment = f"{uuid_text(self.metadata.segment_id)} of {self.metadata.topic_id_partition}"
        return CorruptSegment(f"Remote segment {segment} has no batch at byte {position}: {problem}")
