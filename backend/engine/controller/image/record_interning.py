"""Interning of partition records: of many that are alike, one is decoded and the others share its value.

PartitionRecords often differ in topic id and partition index only: thousands of partitions have the same replicas,
leader, epochs and directories. A broker that comes or goes changes thousands of them, many in the same way.
Registrations are immutable, so one can stand for all, also after a change.
"""

from __future__ import annotations

from typing import Final

from backend.engine.controller.image.metadata_image import PartitionRegistration
from backend.engine.controller.image.replay import PartitionChanged, PartitionCreated, new_partition
from backend.protocol import cluster_metadata
from backend.protocol import messages as m

# A frame's version, the record's type and version take a byte each, then come partition index and topic id.
_FRAME_BYTES: Final = 3
_INDEX_END: Final = _FRAME_BYTES + 4
_TOPIC_END: Final = _INDEX_END + 16
# Kinds of partitions that are remembered, with about 600 bytes each, and as many kinds of changes; beyond them every
# one is decoded.
ALIKE_MAX: Final = 65_536


class InterningDecoder:
    """Decodes one snapshot or one stretch of the log as `cluster_metadata.decode` does, but gives partitions as
    `PartitionCreated` and their changes as `PartitionChanged`.
    """

    def __init__(self) -> None:
        self._created: dict[bytes, dict[bytes, PartitionRegistration]] = {
            frame: {} for frame in _frames(m.PartitionRecord)
        }
        self._changes: dict[bytes, dict[bytes, _Change]] = {frame: {} for frame in _frames(m.PartitionChangeRecord)}

    def decode(self, value: bytes | None) -> object:
        """The record in a value. DecodeError as `cluster_metadata.decode`."""
        if value is not None:
            frame = value[:_FRAME_BYTES]
            changes = self._changes.get(frame)
            if changes is not None:
                return _changed(value, changes)
            created = self._created.get(frame)
            if created is not None:
                return _created(value, created)
        return cluster_metadata.decode(value)[0]


_Change = tuple[m.PartitionChangeRecord, dict[int, tuple[PartitionRegistration, PartitionRegistration]]]


def _frames(record: type[m.PartitionRecord | m.PartitionChangeRecord]) -> list[bytes]:
    """The first bytes of each version of a record."""
    versions = range(record.MIN_VERSION, record.MAX_VERSION + 1)
    return [bytes((cluster_metadata.FRAME_VERSION, record.KEY, version)) for version in versions]


def _created(value: bytes, alike: dict[bytes, PartitionRegistration]) -> object:
    rest = value[_TOPIC_END:]
    registration = alike.get(rest)
    if registration is None:
        record = cluster_metadata.decode(value)[0]
        if not isinstance(record, m.PartitionRecord):
            return record
        registration = new_partition(record)
        if len(alike) < ALIKE_MAX:
            alike[rest] = registration
    return PartitionCreated(value[_INDEX_END:_TOPIC_END], _index(value), registration)


def _changed(value: bytes, alike: dict[bytes, _Change]) -> object:
    rest = value[_TOPIC_END:]
    change = alike.get(rest)
    if change is None:
        record = cluster_metadata.decode(value)[0]
        if not isinstance(record, m.PartitionChangeRecord):
            return record
        change = (record, {})
        if len(alike) < ALIKE_MAX:
            alike[rest] = change
    return PartitionChanged(value[_INDEX_END:_TOPIC_END], _index(value), *change)


def _index(value: bytes) -> int:
    return int.from_bytes(value[_FRAME_BYTES:_INDEX_END], "big", signed=True)
