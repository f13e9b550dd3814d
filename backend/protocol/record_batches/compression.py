"""The four codecs of record batches, written as Kafka's Java client writes them and read with a bound on the output.

A few bytes can claim to hold gigabytes, so every decompression goes into a buffer that only grows when what came
before really filled it, and stops at the caller's limit. Snappy exists in two forms: raw, and the framing of the
xerial library that Java uses; both are read.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Any, Final

import cramjam

from backend.protocol.buffers import Buffer
from backend.protocol.errors import DecodeError
from backend.protocol.varint import decode_uvarint


class Compression(IntEnum):
    """Codec of a batch: bits 0-2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# A batch is at most max.message.bytes (1 MiB by default) on the wire; 128 times that is more than any real data yields.
DECOMPRESSED_BYTES_MAX: Final = 128 << 20
# The first guess of the output: room for ratios up to 8 without a second attempt; each next guess is 4 times larger,
# so failed attempts cost at most a third of the last one.
_FIRST_GUESS_RATIO: Final = 8
_FIRST_GUESS_BYTES_MIN: Final = 64 << 10
_GROWTH: Final = 4

# The defaults: Deflater's, zstd-jni's, and the fast LZ4 compressor, which Kafka calls level 9.
GZIP_LEVEL_DEFAULT: Final = -1
LZ4_LEVEL_DEFAULT: Final = 9
ZSTD_LEVEL_DEFAULT: Final = 3

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable since version 1
_XERIAL_BLOCK_BYTES: Final = 32 << 10  # block size of SnappyOutputStream
_INT32: Final = Struct(">i")
_UINT32_LITTLE: Final = Struct("<I")

# LZ4 frame header: magic, version 01, independent blocks (the only kind Java reads) of 64 KiB, header checksum.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES: Final = 64 << 10
_LZ4_STORED: Final = 1 << 31  # set in a block's length when the block is not compressed
_LZ4_END: Final = bytes(4)
_LZ4_FLAGS_AT: Final = 4
# Of the flags: version 01 and independent blocks must be, the reserved bit and a dictionary must not.
_LZ4_FLAGS_MASK: Final = 0b1110_0011
_LZ4_FLAGS: Final = 0b0110_0000
_LZ4_BLOCK_CHECKSUM: Final = 0b0001_0000
_LZ4_CONTENT_SIZE: Final = 0b0000_1000
_LZ4_CONTENT_CHECKSUM: Final = 0b0000_0100


def _grow(name: str, decompress_into: Callable[[Any, Any], int], data: Buffer, max_bytes: int) -> memoryview:
    size = min(max_bytes, max(_FIRST_GUESS_BYTES_MIN, _FIRST_GUESS_RATIO * len(data)))
    while True:
        output = bytearray(size)
        try:
            return memoryview(output)[: decompress_into(data, output)]
        except cramjam.DecompressionError as error:
            # The library reports a full output as a failed write and broken input in its own words.
            if "whole buffer" not in str(error):
                raise DecodeError(f"{name} data of {len(data)} bytes is broken: {error}") from error
        if size >= max_bytes:
            raise DecodeError(f"{name} data of {len(data)} bytes holds more than the {max_bytes} bytes allowed")
        size = min(max_bytes, size * _GROWTH)


def _snappy_block(data: Buffer, max_bytes: int) -> memoryview:
    try:
        size, _ = decode_uvarint(data, 0)
    except IndexError as error:
        raise DecodeError("snappy data is empty") from error
    if size > max_bytes:
        raise DecodeError(f"snappy data of {len(data)} bytes holds {size} bytes, {max_bytes} are allowed")
    # A copy of up to 64 bytes takes 2 bytes of input at least: a size beyond that ratio is a lie, not worth a buffer.
    if size > 64 * len(data):
        raise DecodeError(f"snappy data of {len(data)} bytes is broken: it cannot hold {size} bytes")
    output = bytearray(size)
    try:
        written = cramjam.snappy.decompress_raw_into(data, output)
    except cramjam.DecompressionError as error:
        raise DecodeError(f"snappy data of {len(data)} bytes is broken: {error}") from error
    return memoryview(output)[:written]


def _snappy(data: Buffer, max_bytes: int) -> Buffer:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, max_bytes)
    view, position, parts, total = memoryview(data), len(_XERIAL_HEADER), [], 0
    while position < len(view):
        if position + 4 > len(view):
            raise DecodeError(f"snappy data of {len(view)} bytes is cut off inside a block length")
        (size,) = _INT32.unpack_from(view, position)
        position += 4
        if not 0 <= size <= len(view) - position:
            raise DecodeError(f"a snappy block claims {size} bytes and {len(view) - position} are left")
        part = _snappy_block(view[position : position + size], max_bytes - total)
        parts.append(part)
        total += len(part)
        position += size
    return parts[0] if len(parts) == 1 else b"".join(parts)


def check_lz4_frame(data: Buffer) -> None:
    """Raises DecodeError unless data that `decompress` has read is one frame of the kind that Kafka's clients read."""
    flags = data[_LZ4_FLAGS_AT]
    if flags & _LZ4_FLAGS_MASK != _LZ4_FLAGS:
        raise DecodeError(f"the lz4 frame has flags {flags:#04x}; Kafka reads independent blocks without dictionary")
    position = len(_LZ4_HEADER) + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    size = -1
    while size:
        (size,) = _UINT32_LITTLE.unpack_from(data, position)
        position += _UINT32_LITTLE.size + (size & ~_LZ4_STORED) + (checksum_bytes if size else 0)
    position += 4 if flags & _LZ4_CONTENT_CHECKSUM else 0
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes follow the lz4 frame")


def decompress(codec: int, data: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """The decompressed `data`, at most `max_bytes`; DecodeError for more, for broken data and for an unknown codec."""
    match codec:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return _grow("gzip", cramjam.gzip.decompress_into, data, max_bytes)
        case Compression.SNAPPY:
            return _snappy(data, max_bytes)
        case Compression.LZ4:
            return _grow("lz4", cramjam.lz4.decompress_into, data, max_bytes)
        case Compression.ZSTD:
            return _grow("zstd", cramjam.zstd.decompress_into, data, max_bytes)
        case _:
            raise DecodeError(f"compression type {codec} is unknown; Kafka has 0 to {max(Compression)}")


def _compress_snappy(data: Buffer) -> bytes:
    view, parts = memoryview(data), [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _lz4_block(uncompressed: memoryview, level: int | None) -> bytes:
    if level is None or level == LZ4_LEVEL_DEFAULT:
        return bytes(cramjam.lz4.compress_block(uncompressed, store_size=False))
    # The library takes levels for frames only: of a frame with one block this is the block.
    frame = memoryview(bytes(cramjam.lz4.compress(uncompressed, level=level)))
    (size,) = _UINT32_LITTLE.unpack_from(frame, len(_LZ4_HEADER))
    start = len(_LZ4_HEADER) + _UINT32_LITTLE.size
    return bytes(uncompressed) if size & _LZ4_STORED else bytes(frame[start : start + size])


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    view, parts = memoryview(data), [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        uncompressed = view[start : start + _LZ4_BLOCK_BYTES]
        block = _lz4_block(uncompressed, level)
        if len(block) < len(uncompressed):
            parts += (_UINT32_LITTLE.pack(len(block)), block)
        else:
            parts += (_UINT32_LITTLE.pack(len(uncompressed) | _LZ4_STORED), bytes(uncompressed))
    return b"".join((*parts, _LZ4_END))


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`data` in the form that every Kafka client reads; ValueError for an unknown codec.

    A level is one of Kafka's `compression.*.level`; None is Kafka's default.
    """
    match codec:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            is_default = level is None or level == GZIP_LEVEL_DEFAULT
            return bytes(cramjam.gzip.compress(data) if is_default else cramjam.gzip.compress(data, level=level))
        case Compression.SNAPPY:
            return _compress_snappy(data)
        case Compression.LZ4:
            return _compress_lz4(data, level)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL_DEFAULT if level is None else level))
        case _:
            raise ValueError(f"compression type {codec} is unknown; use 0 to {max(Compression)}")
