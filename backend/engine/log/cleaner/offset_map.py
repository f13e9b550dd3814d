"""The last offset of each key of a log's dirty part, in bounded memory (`SkimpyOffsetMap` of Kafka)."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

# Keys from this size on are kept as digests of this size; a shorter key stands for itself and can equal no digest.
DIGEST_BYTES: Final = 16
# One entry at worst: 110 bytes of a dict that has just doubled, 49 of a digest, 32 of an offset.
ENTRY_BYTES: Final = 192


class OffsetMap:
    """Key → offset. `latest_offset` is the offset up to which the map speaks, -1 before anything was put."""

    __slots__ = ("_last_offset_of", "capacity", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        self.capacity = int(max(0, memory_bytes) // ENTRY_BYTES * load_factor)
        self.latest_offset = -1
        self._last_offset_of: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._last_offset_of)

    @property
    def is_full(self) -> bool:
        return len(self._last_offset_of) >= self.capacity

    @property
    def utilization(self) -> float:
        """Share of the room that is used, 0 to 1."""
        return len(self._last_offset_of) / self.capacity if self.capacity else 1.0

    def put(self, key: bytes, offset: int) -> None:
        """Offsets of one key must ascend. The caller asks :attr:`is_full` before."""
        self._last_offset_of[key if len(key) < DIGEST_BYTES else _digest(key)] = offset

    def get(self, key: bytes) -> int:
        """The last offset of the key, -1 when it has none here."""
        return self._last_offset_of.get(key if len(key) < DIGEST_BYTES else _digest(key), -1)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()
