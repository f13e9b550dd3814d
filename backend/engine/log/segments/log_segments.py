"""The segments of a log in the order of their offsets (`LogSegments` of Kafka)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from backend.engine.log.segments.log_segment import LogSegment


class LogSegments(Sequence[LogSegment]):
    """Ascending segments; at least one while a log is open, the last one being active."""

    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: Sequence[LogSegment] = ()) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in self._segments]

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # Sequence's overloads for int and slice
        return self._segments[index]

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    @property
    def active(self) -> LogSegment:
        return self._segments[-1]

    @property
    def first_base_offset(self) -> int:
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def add(self, segment: LogSegment) -> None:
        """Adds a new last segment, or replaces the last one when it has the same base offset."""
        if self._bases and self._bases[-1] == segment.base_offset:
            self._segments[-1] = segment
            return
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def remove(self, segment: LogSegment) -> None:
        at = self._segments.index(segment)
        del self._segments[at]
        del self._bases[at]

    def replace(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Puts one segment in the place of consecutive ones, the first of which has its base offset."""
        at = self._segments.index(old[0])
        if self._segments[at : at + len(old)] != list(old) or old[0].base_offset != new.base_offset:
            raise ValueError(f"{new} cannot take the place of {list(old)}")
        self._segments[at : at + len(old)] = [new]
        self._bases[at : at + len(old)] = [new.base_offset]

    def floor_index(self, offset: int) -> int:
        """Index of the segment with the greatest base offset <= `offset`; -1 when there is none."""
        return bisect_right(self._bases, offset) - 1

    def floor(self, offset: int) -> LogSegment | None:
        """The segment that contains the offset, if any does."""
        at = self.floor_index(offset)
        return self._segments[at] if at >= 0 else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segment that contains the offset (or the first one) and all after it."""
        return self._segments[max(0, self.floor_index(offset)) :]

    def starting_at_or_after(self, offset: int) -> list[LogSegment]:
        """Segments whose base offset is at or past `offset`."""
        return self._segments[bisect_left(self._bases, offset) :]
