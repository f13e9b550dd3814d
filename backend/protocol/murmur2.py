"""Murmur2 with Kafka's seed: how partitioners spread keys (`Utils.murmur2`)."""

from struct import Struct
from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_WORD: Final = Struct("<I")


def murmur2(data: bytes) -> int:
    """The hash as Java's signed 32-bit int."""
    size = len(data)
    value = _SEED ^ size
    whole = size & ~3
    for (word,) in _WORD.iter_unpack(data[:whole]):
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    if size > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    value ^= value >> 15
    return value - (1 << 32) if value >> 31 else value


def to_positive(value: int) -> int:
    """Without the sign bit (`Utils.toPositive`), before taking the remainder by a partition count."""
    return value & 0x7FFFFFFF
