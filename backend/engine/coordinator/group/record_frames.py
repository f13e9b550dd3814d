"""The int16 before each key and value of `__consumer_offsets`: the kind of a key, or the version of a value."""

from __future__ import annotations

from struct import Struct
from typing import Final

from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError

KEY_VERSION: Final = 0
_INT16: Final = Struct(">h")
VALUE_OFFSET: Final = _INT16.size


def encode_key(message: m.Message) -> bytes:
    return _INT16.pack(message.KEY) + codec.encode(message, KEY_VERSION)


def encode_value(message: m.Message, version: int) -> bytes:
    return _INT16.pack(version) + codec.encode(message, version)


def key_kind(key: bytes) -> int:
    """The kind of a record. Raises DecodeError."""
    if len(key) < _INT16.size:
        raise DecodeError("a key of __consumer_offsets has no kind")
    return int(_INT16.unpack_from(key)[0])


def value_version(value: bytes) -> int:
    """Raises DecodeError."""
    if len(value) < _INT16.size:
        raise DecodeError("a value of __consumer_offsets has no version")
    return int(_INT16.unpack_from(value)[0])
