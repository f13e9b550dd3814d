"""Values of `__cluster_metadata` (KIP-500): a frame around each metadata record, in the log and in snapshots.

The frame is three unsigned varints, frame version 1, record type and record version, in front of the record; nothing
may follow it (`MetadataRecordSerde`). A type or version that Kafka 4.3 does not know is returned as such, so that
a reader can count and name it instead of stopping.
"""

from dataclasses import dataclass
from typing import Final

from backend.protocol import codec
from backend.protocol.errors import DecodeError, EncodeError
from backend.protocol.messages import Message, record_class
from backend.protocol.varint import decode_uvarint, encode_uvarint

GROUP: Final = "metadata-records"
FRAME_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of a type or version that Kafka 4.3 does not have."""

    type: int
    version: int
    body: bytes


def encode(record: Message, version: int) -> bytes:
    """The framed bytes of a metadata record; raises EncodeError for another kind of message."""
    if record.GROUP != GROUP:
        raise EncodeError(f"{record.NAME} is not a metadata record")
    head = (encode_uvarint(FRAME_VERSION), encode_uvarint(record.KEY), encode_uvarint(version))
    return b"".join((*head, codec.encode(record, version)))


def decode(value: bytes | bytearray | memoryview | None) -> tuple[Message | UnknownRecord, int]:
    """The record and its version; raises DecodeError for another frame version, a broken record or trailing bytes."""
    if not value:
        raise DecodeError("a metadata record has no value")
    if len(value) > 2 and value[0] == FRAME_VERSION and value[1] < 128 and value[2] < 128:
        # The first bytes of every record of Kafka 4.3: each varint takes one byte.
        key, version, position = value[1], value[2], 3
    else:
        key, version, position = _read_frame(value)
    try:
        cls = record_class(GROUP, key)
    except KeyError:
        return UnknownRecord(key, version, bytes(value[position:])), version
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        return UnknownRecord(key, version, bytes(value[position:])), version
    record, end = codec.decode(cls, version, value, position)
    if end != len(value):
        raise DecodeError(f"{len(value) - end} bytes follow the end of {cls.NAME} version {version}")
    return record, version


def _read_frame(value: bytes | bytearray | memoryview) -> tuple[int, int, int]:
    """Type and version of the record, and where it begins."""
    try:
        frame_version, position = decode_uvarint(value, 0)
        if frame_version != FRAME_VERSION:
            raise DecodeError(f"a metadata record has frame version {frame_version}, not {FRAME_VERSION}")
        key, position = decode_uvarint(value, position)
        version, position = decode_uvarint(value, position)
    except IndexError as error:
        raise DecodeError(f"a metadata record of {len(value)} bytes is cut off in its frame") from error
    return key, version, position
