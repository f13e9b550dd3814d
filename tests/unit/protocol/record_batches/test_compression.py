"""The four codecs against an independent implementation (Arrow's), and bombs."""

import tracemalloc
from random import Random

import pyarrow
import pytest

from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.compression import Compression, compress, decompress

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
TEXTS = {
    "empty": b"",
    "short": b"a",
    "text": b"the same words again and again, " * 5000,
    "random": Random(1).randbytes(200_000),
    "exactly one block": bytes(64 << 10),
    "mixed": b"".join(Random(seed).randbytes(1000) + bytes(1000) for seed in range(200)),
}


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("text", TEXTS)
def test_what_is_compressed_comes_back(codec: Compression, text: str) -> None:
    data = TEXTS[text]
    for given in (data, memoryview(data), bytearray(data)):
        packed = compress(codec, given)
        for buffer in (bytes(packed), memoryview(packed), bytearray(packed)):
            assert decompress(codec, buffer, max(len(data), 1)) == data


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("text", ["short", "text", "random", "exactly one block", "mixed"])
def test_arrow_reads_what_we_compress_and_we_read_what_it_does(codec: Compression, text: str) -> None:
    data = TEXTS[text]
    arrow = pyarrow.Codec(codec.name.lower())
    assert arrow.decompress(bytes(compress(codec, data)), len(data), asbytes=True) == data
    assert decompress(codec, arrow.compress(data, asbytes=True)) == data


@pytest.mark.parametrize("text", ["short", "text", "random"])
def test_snappy_blocks_are_those_of_arrow_in_the_framing_of_java(text: str) -> None:
    data = TEXTS[text]
    arrow = pyarrow.Codec("snappy")
    assert decompress(Compression.SNAPPY, arrow.compress(data, asbytes=True)) == data, "raw, as librdkafka may send it"
    packed = bytes(compress(Compression.SNAPPY, data))
    assert packed[:16] == bytes.fromhex("82534e4150505900 00000001 00000001")
    position = 16
    parts: list[bytes] = []
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        block = packed[position + 4 : position + 4 + size]
        parts.append(arrow.decompress(block, min(32 << 10, len(data) - len(parts) * (32 << 10)), asbytes=True))
        position += 4 + size
    assert b"".join(parts) == data


def test_lz4_frames_are_of_the_kind_that_java_reads() -> None:
    packed = bytes(compress(Compression.LZ4, b"x" * 100))
    assert packed.startswith(bytes.fromhex("04224d18 60 40 82")), "independent blocks of 64 KiB, no checksums"
    assert packed.endswith(bytes(4))


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_and_takes_no_memory(codec: Compression) -> None:
    packed = bytes(compress(codec, bytes(64 << 20)))
    limit = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="allowed"):
            decompress(codec, packed, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit + len(packed)
    assert len(decompress(codec, packed, 64 << 20)) == 64 << 20


def test_a_snappy_block_that_claims_more_than_it_can_hold_takes_no_memory() -> None:
    claim = b"\xff\xff\xff\x3f" + bytes(20)  # 128 MiB - 1 in 24 bytes
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decompress(Compression.SNAPPY, claim)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("codec", CODECS)
def test_broken_data_is_refused_as_a_decode_error(codec: Compression) -> None:
    rng = Random(codec)
    packed = bytes(compress(codec, TEXTS["mixed"]))
    for size in (0, 1, 5, 17, len(packed) // 2, len(packed) - 1):
        with pytest.raises(DecodeError):
            decompress(codec, packed[:size])
    for _ in range(200):
        broken = bytearray(packed)
        broken[rng.randrange(60)] ^= 1 << rng.randrange(8)
        try:
            decompress(codec, broken)
        except DecodeError:
            continue
    for _ in range(100):
        try:
            decompress(codec, rng.randbytes(rng.randint(1, 100)))
        except DecodeError:
            continue


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(DecodeError):
        decompress(5, b"")
    with pytest.raises(ValueError, match="unknown"):
        compress(5, b"")
