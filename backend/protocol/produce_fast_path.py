"""The most frequent Produce request, one batch to one partition, decoded and answered without message objects.

Versions 9-13, acks=1 or all, no transactional id, one batch for one partition: what a producer sends that does not
batch. The bytes are those of the generated codec; whatever is different in any way is left to it.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from backend.protocol.errors import DecodeError, ErrorCode
from backend.protocol.record_batches.record_batch import HEADER_BYTES
from backend.protocol.varint import decode_uvarint

FIRST_VERSION: Final = 9  # the first flexible one
LAST_VERSION: Final = 13
TOPIC_IDS_SINCE: Final = 13
_PRODUCE: Final = 0
# API key, version, correlation id, length of the client id.
_HEAD: Final = Struct(">hhih")
# Tags of the header, transactional id (null), acks, time-out, number of topics + 1.
_BEGIN: Final = Struct(">BBhiB")
# Number of partitions + 1, index.
_PARTITION: Final = Struct(">Bi")
_ACKS: Final = (1, -1)
_ONE: Final = 2
_NO_TAGS: Final = b"\0\0\0"
_ATTRIBUTES_AT: Final = 22
_TRANSACTIONAL: Final = 0x10
# Length of the frame, correlation id, tags, number of topics + 1.
_ANSWER_HEAD: Final = Struct(">iiBB")
# Number of partitions + 1, index, error, base offset, append time, log start; no record errors, no message, no tags of
# partition and topic; throttle time, no tags.
_ANSWER_ROW: Final = Struct(">BihqqqBBBBiB")
_ANSWER_BYTES: Final = _ANSWER_HEAD.size - 4 + _ANSWER_ROW.size


class SingleBatchProduce(NamedTuple):
    """The fields of such a request. `topic_field` is its topic as it stands in request and answer."""

    version: int
    correlation_id: int
    client_id: str | None
    acks: int
    timeout_ms: int
    topic_field: bytes
    partition: int
    records: memoryview

    @property
    def topic_id(self) -> bytes:
        """From version 13 on."""
        return self.topic_field

    @property
    def topic_name(self) -> str:
        """Before version 13."""
        return self.topic_field[1:].decode()


def read_single_batch(frame: bytearray) -> SingleBatchProduce | None:
    """The request of a frame; None for any other one, and for what is no request at all."""
    try:
        key, version, correlation_id, size = _HEAD.unpack_from(frame)
        if key != _PRODUCE or not FIRST_VERSION <= version <= LAST_VERSION or size < -1:
            return None
        at = 10 if size < 0 else 10 + size
        client_id = None if size < 0 else frame[10:at].decode()
        tags, transactional_id, acks, timeout_ms, topics = _BEGIN.unpack_from(frame, at)
        if acks not in _ACKS or tags or transactional_id or topics != _ONE:
            return None
        at += _BEGIN.size
        # A compact string counts its own length byte; longer ones than 126 have two, and topics' have up to 249.
        end = at + (16 if version >= TOPIC_IDS_SINCE else frame[at])
        if version < TOPIC_IDS_SINCE and not at + 1 < end < at + 128:
            return None
        topic_field = bytes(frame[at:end])
        partitions, index = _PARTITION.unpack_from(frame, end)
        length, at = decode_uvarint(frame, end + _PARTITION.size)
        end = at + length - 1
        if partitions != _ONE or length <= HEADER_BYTES or frame[end:] != _NO_TAGS:
            return None
        if frame[at + _ATTRIBUTES_AT] & _TRANSACTIONAL:
            return None
        if version < TOPIC_IDS_SINCE:
            topic_field[1:].decode()
    except (StructError, IndexError, UnicodeDecodeError, DecodeError):
        return None
    records = memoryview(frame)[at:end]
    return SingleBatchProduce(version, correlation_id, client_id, acks, timeout_ms, topic_field, index, records)


def encode_single_batch(
    request: SingleBatchProduce,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    error: ErrorCode = ErrorCode.NONE,
) -> bytes:
    """The frame of the answer to a request whose records were appended, with its length in front. `error`: why they
    were not acknowledged.
    """
    topic = request.topic_field
    return b"".join((
        _ANSWER_HEAD.pack(_ANSWER_BYTES + len(topic), request.correlation_id, 0, _ONE),
        topic,
        _ANSWER_ROW.pack(
            _ONE, request.partition, error, base_offset, log_append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0
        ),
    ))  # fmt: skip
