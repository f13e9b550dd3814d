"""`.snapshot`: the producer state of a partition at one offset (`ProducerStateManager.writeSnapshot` of Kafka).

int16 version 1; uint32 CRC-32C of everything after it; int32 count; 46 bytes for each producer. A file named N holds
the state of all records below offset N.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from crc32c import crc32c

VERSION: Final = 1
NONE: Final = -1
_HEADER: Final = Struct(">hIi")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_CRC_END: Final = 6


class CorruptSnapshot(ValueError):
    """A producer snapshot whose bytes cannot be right."""


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One producer; -1 stands for none in every field but `offset_delta`."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int  # last minus first offset of the producer's last batch
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """A snapshot's bytes; the empty one is `0001 48674bc7 00000000`."""
    packed = [
        _ENTRY.pack(
            e.producer_id,
            e.epoch,
            e.last_sequence,
            e.last_offset,
            e.offset_delta,
            e.timestamp_ms,
            e.coordinator_epoch,
            e.current_txn_first_offset,
        )
        for e in entries
    ]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEADER.pack(VERSION, crc32c(body), len(packed)) + body[_COUNT.size :]


def decode_snapshot(data: bytes | memoryview) -> list[SnapshotEntry]:
    """Raises `CorruptSnapshot`."""
    if len(data) < _HEADER.size:
        raise CorruptSnapshot(f"a producer snapshot has at least {_HEADER.size} bytes, not {len(data)}")
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"the producer snapshot has version {version}, not {VERSION}")
    if crc32c(bytes(data[_CRC_END:])) != crc:
        raise CorruptSnapshot("the producer snapshot's checksum does not match its bytes")
    if count < 0 or len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"the producer snapshot announces {count} entries but has {len(data)} bytes")
    return [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(data[_HEADER.size :])]


def java_map_order(producer_ids: Iterable[int]) -> list[int]:
    """Ids in the order in which a `java.util.HashMap<Long, ?>` of them iterates: the order of Kafka's entries."""
    ids = list(producer_ids)
    capacity = 16
    while len(ids) > capacity * 3 // 4:
        capacity *= 2

    def bucket(producer_id: int) -> int:
        unsigned = producer_id & 0xFFFF_FFFF_FFFF_FFFF
        folded = (unsigned ^ (unsigned >> 32)) & 0xFFFF_FFFF
        return (folded ^ (folded >> 16)) & (capacity - 1)

    return sorted(ids, key=bucket)
