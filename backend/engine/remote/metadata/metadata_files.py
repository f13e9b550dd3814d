"""Local files with the state of ``__remote_log_metadata`` across restarts (KIP-405, "RLMM's local files").

Three kinds of files lie in the first log directory. They only save time: a restart that cannot use them reads the topic
from its beginning, as Kafka 4.3 always does.

``_rlmm_committed_offsets``  lines ``<metadata partition> <next offset>``: all stores below are complete up to there
``_rlmm_committed_records``  lines ``<metadata partition> <next offset> <offset of the last record> <its CRC-32C>``
``_rlmm_<topic id>-<partition>``  the store of one user partition

A store is the KIP's flat file: magic (unsigned varint), topic name, topic id, metadata topic offset (varlong), then
entries of length, type, version (unsigned varints) and data. Type 3 is Kafka's RemoteLogSegmentMetadataSnapshotRecord.
Two types are ours: 100, the map of a leader epoch (which segments of it are shown and which are superseded depends on
the order of events, which the segments alone do not show), and 101, the end: user partition, overlap mode and a CRC-32C
of everything before.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

from crc32c import crc32c

from backend.engine.ports.disk import Disk
from backend.engine.remote.metadata.remote_log_metadata_cache import EpochMap, Overlap, RemoteLogMetadataCache
from backend.protocol.errors import DecodeError
from backend.protocol.remote_log.metadata_serde import SegmentMetadata, SegmentSnapshot, decode, encode
from backend.protocol.varint import decode_uvarint, decode_varlong, encode_uvarint, encode_varint
from backend.tiering.ids import UUID_BYTES, TopicIdPartition, uuid_text

COMMITTED_OFFSETS: Final = "_rlmm_committed_offsets"
COMMITTED_RECORDS: Final = "_rlmm_committed_records"
STORE_PREFIX: Final = "_rlmm_"
MAGIC: Final = 1
ENTRY_VERSION: Final = encode_uvarint(0)
EPOCH_TYPE: Final = 100
END_TYPE: Final = 101
_EPOCH: Final = Struct(">i??qII")  # epoch; nested; has a highest offset, which; shown; unreferenced
_END: Final = Struct(">iBI")  # user partition, overlap mode, CRC
_END_HEAD: Final = bytes((2 + _END.size, END_TYPE, 0))  # length, type and version
_END_BYTES: Final = len(_END_HEAD) + _END.size
_OVERLAPS: Final = tuple(Overlap)
_BIG_ENDIAN_SWAP: Final = array("H", b"\x00\x01")[0] != 1

_log = logging.getLogger(__name__)


class StoreUnusable(Exception):
    """The file is damaged, of another partition or of another mode."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Up to where a metadata partition has been read, and how to know its records again."""

    next_offset: int
    last_offset: int
    last_crc: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A user partition's cache, complete up to and including `offset` of its metadata partition."""

    cache: RemoteLogMetadataCache
    offset: int


def record_crc(value: bytes | None) -> int:
    """The CRC-32C by which a record is recognised; events have the same bytes only where one repeats another."""
    return crc32c(value or b"")


class MetadataFiles:
    """The files of one broker. Every call blocks: make it on a worker."""

    def __init__(self, disk: Disk, folder: str, overlap: Overlap) -> None:
        self._disk = disk
        self._folder = folder
        self._overlap = overlap

    def committed(self) -> dict[int, Resume]:
        """Returns the positions on which both committed files agree; none where they are missing or cannot be read."""
        offsets = {row[0]: row[1] for row in self._rows(COMMITTED_OFFSETS, 2)}
        positions = {}
        for target, next_offset, last_offset, crc in self._rows(COMMITTED_RECORDS, 4):
            if offsets.get(target) == next_offset and 0 <= last_offset < next_offset:
                positions[target] = Resume(next_offset, last_offset, crc)
        return positions

    def _rows(self, name: str, columns: int) -> list[list[int]]:
        try:
            lines = self._disk.read(f"{self._folder}/{name}").decode("ascii").splitlines()
            rows = [[int(word) for word in line.split()] for line in lines]
            if any(len(row) != columns for row in rows):
                raise ValueError(f"a line has not {columns} numbers")
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            _log.warning("%s/%s cannot be used; remote log metadata is read again: %s", self._folder, name, error)
            return []
        return rows

    def load(self, partition: TopicIdPartition) -> Stored | None:
        """Returns the store of a user partition; None where there is no usable one."""
        path = self._path(partition)
        try:
            return parse_store(self._disk.read(path), partition, self._overlap)
        except FileNotFoundError:
            return None
        except (OSError, StoreUnusable) as error:
            _log.warning("%s cannot be used; metadata of %s is read again: %s", path, partition, error)
            return None

    def save(self, changed: Iterable[Stored], hosted: Iterable[TopicIdPartition], resume: Mapping[int, Resume]) -> None:
        """Writes the stores that changed, then what all stores of `hosted` are complete up to. OSError.

        Stores of others go first: nobody would keep them complete. Each file is whole or not there, and the committed
        ones come last: a crash in between leaves stores that are ahead of them, which are read again.
        """
        kept = {self._name(partition) for partition in hosted} | {COMMITTED_OFFSETS, COMMITTED_RECORDS}
        for name in self._disk.list_dir(self._folder):
            if name.startswith(STORE_PREFIX) and name not in kept:
                self._disk.remove(f"{self._folder}/{name}")
        for stored in changed:
            self._disk.write_atomic(self._path(stored.cache.topic_id_partition), build_store(stored, self._overlap))
        by_target = sorted(resume.items())
        records = "".join(f"{t} {r.next_offset} {r.last_offset} {r.last_crc}\n" for t, r in by_target)
        self._disk.write_atomic(f"{self._folder}/{COMMITTED_RECORDS}", records.encode())
        offsets = "".join(f"{target} {position.next_offset}\n" for target, position in by_target)
        self._disk.write_atomic(f"{self._folder}/{COMMITTED_OFFSETS}", offsets.encode())

    def _path(self, partition: TopicIdPartition) -> str:
        return f"{self._folder}/{self._name(partition)}"

    @staticmethod
    def _name(partition: TopicIdPartition) -> str:
        return f"{STORE_PREFIX}{uuid_text(partition.topic_id)}-{partition.partition}"


# The store of one partition.


def build_store(stored: Stored, overlap: Overlap) -> bytes:
    """The bytes of a store; about 95 a segment."""
    from backend.engine.remote.metadata.metadata_file_entries import canonical_entries  # with numpy

    partition = stored.cache.topic_id_partition
    name = partition.topic.encode()
    segments, epochs = stored.cache.numbered()
    out = bytearray(encode_uvarint(MAGIC) + encode_uvarint(len(name) + 1) + name + partition.topic_id)
    out += encode_varint(stored.offset)
    for part in segments:
        if isinstance(part, bytes):
            out += canonical_entries(part)
            continue
        # Without the frame version, which the KIP's entries do not have: type, version, data.
        entry = encode(SegmentSnapshot(*part[1:]))[1:]
        out += encode_uvarint(len(entry)) + entry
    for epoch, epoch_map in sorted(epochs.items()):
        entry = encode_uvarint(EPOCH_TYPE) + ENTRY_VERSION + _epoch_data(epoch, epoch_map)
        out += encode_uvarint(len(entry)) + entry
    return bytes(out) + _END_HEAD + _END.pack(partition.partition, _OVERLAPS.index(overlap), crc32c(bytes(out)))


def _epoch_data(epoch: int, held: EpochMap) -> bytes:
    hidden = array("I", sorted(held.unreferenced))
    highest = -1 if held.highest is None else held.highest
    head = _EPOCH.pack(epoch, held.nested, held.highest is not None, highest, len(held.starts), len(hidden))
    return head + _big_endian(held.starts) + _big_endian(held.rows) + _big_endian(hidden)


def _big_endian(values: array[int]) -> bytes:
    copied = values[:]
    if _BIG_ENDIAN_SWAP:
        copied.byteswap()
    return copied.tobytes()


def parse_store(data: bytes, partition: TopicIdPartition, overlap: Overlap) -> Stored:
    """Parses a file that `build_store` wrote for this partition in this mode. StoreUnusable for anything else."""
    end = len(data) - _END_BYTES
    if end < 0 or not data.startswith(_END_HEAD, end):
        raise StoreUnusable("it is damaged: it has no end")
    number, mode, crc = _END.unpack_from(data, end + len(_END_HEAD))
    if crc != crc32c(data[:end]):
        raise StoreUnusable("it is damaged: its checksum differs")
    if (number, mode) != (partition.partition, _OVERLAPS.index(overlap)):
        raise StoreUnusable("it is of another partition, or remote.log.metadata.overlap was changed")
    try:
        magic, at = decode_uvarint(data, 0)
        size, at = decode_uvarint(data, at)
        name, at = data[at : at + size - 1].decode(), at + size - 1
        topic_id, at = data[at : at + UUID_BYTES], at + UUID_BYTES
        offset, at = decode_varlong(data, at)
        if magic != MAGIC or (name, topic_id) != (partition.topic, partition.topic_id):
            raise StoreUnusable(f"it is of topic {name!r} in format {magic}")
        segments, epochs = _parse_entries(data, at, end, partition)
    except (IndexError, ValueError, StructError, DecodeError) as error:
        raise StoreUnusable(f"it is not of this format: {error}") from error
    return Stored(RemoteLogMetadataCache.restore(partition, overlap, segments, epochs), offset)


def _parse_entries(
    data: bytes, at: int, end: int, partition: TopicIdPartition
) -> tuple[list[bytes | SegmentMetadata], dict[int, EpochMap]]:
    from backend.engine.remote.metadata.metadata_file_entries import canonical_rows  # with numpy

    segments: list[bytes | SegmentMetadata] = []
    epochs: dict[int, EpochMap] = {}
    while at < end:
        rows, at = canonical_rows(data, at, end)
        if rows:
            segments.append(rows)
            continue
        size, at = decode_uvarint(data, at)
        kind, data_at = decode_uvarint(data, at)
        if kind == EPOCH_TYPE:
            epoch, held = _parse_epoch(data[data_at + 1 : at + size])
            epochs[epoch] = held
        elif kind < EPOCH_TYPE:
            event = decode(b"\x01" + data[at : at + size])
            if isinstance(event, SegmentSnapshot):
                segments.append(SegmentMetadata(partition, *event))
        # Entries of a later version are passed over, as the KIP wants it.
        at += size
    return segments, epochs


def _parse_epoch(data: bytes) -> tuple[int, EpochMap]:
    epoch, nested, has_highest, highest, shown, hidden = _EPOCH.unpack_from(data)
    held = EpochMap()
    held.nested, held.highest = nested, highest if has_highest else None
    at = _EPOCH.size
    held.starts, at = _array("q", data, at, shown)
    held.rows, at = _array("I", data, at, shown)
    rows, _ = _array("I", data, at, hidden)
    held.unreferenced = set(rows)
    return epoch, held


def _array(code: str, data: bytes, at: int, count: int) -> tuple[array[int], int]:
    values: array[int] = array(code)
    end = at + count * values.itemsize
    values.frombytes(data[at:end])
    if len(values) != count:
        raise IndexError("an entry is cut off")
    if _BIG_ENDIAN_SWAP:
        values.byteswap()
    return values, end
