"""Names of partitions and ranges of offsets, as every layer above the protocol uses them."""

from dataclasses import dataclass

from backend.protocol.ids import (
    UUID_BYTES,
    UUID_TEXT_CHARS,
    ZERO_UUID,
    TopicIdPartition,
    TopicPartition,
    uuid_bytes,
    uuid_text,
)

__all__ = [
    "UUID_BYTES",
    "UUID_TEXT_CHARS",
    "ZERO_UUID",
    "OffsetRange",
    "TopicIdPartition",
    "TopicPartition",
    "uuid_bytes",
    "uuid_text",
]


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """A half-open range of offsets; Kafka's inclusive ends are converted at the edge."""

    start: int  # included
    end: int  # excluded

    @property
    def count(self) -> int:
        return max(0, self.end - self.start)

    @property
    def is_empty(self) -> bool:
        return self.end <= self.start

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.start <= offset < self.end
