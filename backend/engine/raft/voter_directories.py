"""The directory of each voter as the log names it (VotersRecord of KIP-853; Kafka's VoterSetHistory).

A voter is an id and a directory: a new disk under an old id is not the voter that acknowledged what is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from immutables import Map

from backend.protocol.buffers import Buffer
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.control_records import ControlType, control_type, voter_directories
from backend.protocol.record_batches.record_batch import crc_valid, iter_batches, iter_records

VoterDirectories = Map[int, bytes]
UNKNOWN: Final[VoterDirectories] = Map()


def directories_in(data: Buffer) -> Iterator[tuple[int, VoterDirectories]]:
    """(offset, voter → directory) of each VotersRecord in whole batches. DecodeError."""
    for position, header in iter_batches(data):
        if not header.is_control:
            continue
        if not crc_valid(data, position, header):
            raise DecodeError(f"the control batch at offset {header.base_offset} has a wrong CRC")
        for record in iter_records(data, position):
            if control_type(record.key) == ControlType.KRAFT_VOTERS:
                yield header.base_offset, Map(voter_directories(record.value or b""))


class VoterDirectoryHistory:
    """The voters' directories by the offset from which the log names them; truncation removes later entries."""

    def __init__(self, initial: VoterDirectories = UNKNOWN) -> None:
        """`initial`: what the snapshot says that the log begins with."""
        self._entries: list[tuple[int, VoterDirectories]] = [(-1, initial)]

    @property
    def latest(self) -> VoterDirectories:
        """The directories by the whole log, committed or not."""
        return self._entries[-1][1]

    def below(self, offset: int) -> VoterDirectories:
        """The directories by the records below an offset."""
        return next(directories for at, directories in reversed(self._entries) if at < offset or at < 0)

    def is_superseded(self, voter: int, directory_id: bytes) -> bool:
        """Whether the voter was known by this directory and then by another one.

        A later record without the voter says nothing of it.
        """
        directories = [named for _, voters in self._entries if (named := voters.get(voter)) is not None]
        return directory_id in directories and directories[-1] != directory_id

    def add(self, offset: int, directories: VoterDirectories) -> None:
        """A record has been appended."""
        self._entries.append((offset, directories))

    def truncate_to(self, offset: int) -> None:
        """Records at or past the offset are gone."""
        self._entries = [self._entries[0], *(entry for entry in self._entries[1:] if entry[0] < offset)]
