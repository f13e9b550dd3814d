"""PartitionRecords read in bulk: of many partitions that are alike, one is decoded and the others share its value.

Behind topic id and partition index a PartitionRecord says nothing of its own, and thousands of partitions have the same
replicas, leader, epochs and directories. Their registrations are immutable, so one can stand for all.
"""

from __future__ import annotations

from typing import Final

from backend.engine.controller.image import PartitionRegistration
from backend.engine.controller.replay import PartitionCreated, new_partition
from backend.protocol import cluster_metadata
from backend.protocol import messages as m

# A frame's version, the record's type and version take a byte each, then come partition index and topic id.
_FRAME_BYTES: Final = 3
_INDEX_END: Final = _FRAME_BYTES + 4
_TOPIC_END: Final = _INDEX_END + 16
# Kinds of partitions that are remembered, with about 600 bytes each; beyond them every one is decoded.
ALIKE_MAX: Final = 65_536


class BulkDecoder:
    """For one snapshot or one stretch of the log. Gives what `cluster_metadata.decode` gives, but partitions as
    `PartitionCreated`.
    """

    def __init__(self) -> None:
        record = m.PartitionRecord
        frames = (
            bytes((cluster_metadata.FRAME_VERSION, record.KEY, version))
            for version in range(record.MIN_VERSION, record.MAX_VERSION + 1)
        )
        self._alike: dict[bytes, dict[bytes, PartitionRegistration]] = {frame: {} for frame in frames}

    def decode(self, value: bytes | None) -> object:
        """The record in a value. DecodeError as `cluster_metadata.decode`."""
        alike = None if value is None else self._alike.get(value[:_FRAME_BYTES])
        if value is None or alike is None:
            return cluster_metadata.decode(value)[0]
        rest = value[_TOPIC_END:]
        registration = alike.get(rest)
        if registration is None:
            record = cluster_metadata.decode(value)[0]
            if not isinstance(record, m.PartitionRecord):
                return record
            registration = new_partition(record)
            if len(alike) < ALIKE_MAX:
                alike[rest] = registration
        index = int.from_bytes(value[_FRAME_BYTES:_INDEX_END], "big", signed=True)
        return PartitionCreated(value[_INDEX_END:_TOPIC_END], index, registration)
