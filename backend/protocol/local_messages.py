"""A Fetch and its response as message objects, which nodes of one process send one another instead of frames.

Followers of partitions and of the metadata ask for every record by Fetch, so nearly all traffic between such nodes is
this. Nobody changes a message that was sent: both ends may still read it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from backend.protocol.buffers import Buffer
from backend.protocol.frames import RequestHeader
from backend.protocol.messages import FetchRequest, FetchResponse

# Bytes of a message besides its partitions, and of each partition: about those of its frame, for limits.
MESSAGE_BYTES: Final = 64
PARTITION_BYTES: Final = 48


class LocalFetchRequest(NamedTuple):
    """A Fetch on its way to the node that answers it."""

    header: RequestHeader
    message: FetchRequest

    @property
    def size_bytes(self) -> int:
        """About as much as its frame."""
        partitions = 0
        for topic in self.message.topics:
            partitions += len(topic.partitions)
        for forgotten in self.message.forgotten_topics_data:
            partitions += len(forgotten.partitions)
        return MESSAGE_BYTES + PARTITION_BYTES * partitions

    def read_files(self) -> None:
        """It has no records."""


class LocalFetchResponse(NamedTuple):
    """The response to a Fetch on its way to the node that asked."""

    correlation_id: int
    message: FetchResponse

    @property
    def size_bytes(self) -> int:
        """About as much as its frame."""
        size = MESSAGE_BYTES
        for topic in self.message.responses:
            for row in topic.partitions:
                size += PARTITION_BYTES + len(row.records or b"")
        return size

    def read_files(self) -> None:
        """Makes one buffer of all records, as a decoder gives them; FileUnreadable (`ports.file_range`)."""
        for topic in self.message.responses:
            for row in topic.partitions:
                records = row.records
                if isinstance(records, list):
                    row.records = b"".join(records)
                elif records is not None and not isinstance(records, Buffer):
                    row.records = bytes(records)
