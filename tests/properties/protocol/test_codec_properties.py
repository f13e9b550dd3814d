"""Every message in every version: what is written is read back, and what is broken is refused as DecodeError."""

import tracemalloc
from random import Random

import pytest

from backend.protocol import codec
from backend.protocol.errors import DecodeError
from backend.protocol.messages import message_class
from backend.protocol.messages.schema import names
from tests.properties.protocol.random_messages import as_values, random_message

PAIRS = [
    (name, version)
    for name in names()
    for version in range(message_class(name).MIN_VERSION, message_class(name).MAX_VERSION + 1)
]


def test_the_table_has_every_message_of_kafka_4_3() -> None:
    assert len(names()) == 268
    assert len(PAIRS) == 724


def test_every_message_is_read_back_as_it_was_written() -> None:
    for name, version in PAIRS:
        cls = message_class(name)
        for seed in range(4):
            message = random_message(Random(f"round trip {name} {version} {seed}"), name, version)
            data = codec.encode(message, version)
            assert data == b"".join(map(bytes, codec.encode_chunks(message, version)))
            for buffer in (data, bytearray(data), memoryview(b"??" + data)[2:]):
                decoded, end = codec.decode(cls, version, buffer)
                assert end == len(data), (name, version)
                assert as_values(decoded) == as_values(message), (name, version)
            decoded, end = codec.decode(cls, version, b"###" + data, 3)
            assert end == 3 + len(data)
            assert codec.encode(decoded, version) == data


def test_a_new_message_is_the_same_after_a_round_trip() -> None:
    for name, version in PAIRS:
        cls = message_class(name)
        message, _ = codec.decode(cls, version, codec.encode(cls(), version))
        assert message == cls(), (name, version)


def test_a_message_that_is_cut_off_is_refused() -> None:
    for name, version in PAIRS:
        rng = Random(f"cut {name} {version}")
        data = codec.encode(random_message(rng, name, version), version)
        for end in {rng.randrange(len(data)) for _ in range(8)} if data else ():
            with pytest.raises(DecodeError):
                codec.decode(message_class(name), version, data[:end])


def _broken(rng: Random, data: bytes) -> bytes:
    """The data with some bytes replaced by what lengths and counts go wrong with."""
    broken = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(broken) + 1)
        piece = rng.choice(
            (
                b"\xff\xff\xff\xff",
                b"\x7f\xff\xff\xff",
                b"\x80\x00\x00\x00",
                b"\xff\xff\xff\xff\x0f",
                b"\xff\xff\xff\xff\xff\xff",
                rng.randbytes(rng.randint(1, 6)),
            )
        )
        broken[at : at + len(piece)] = piece
    return bytes(broken)


def test_broken_and_random_bytes_are_a_message_or_a_decode_error() -> None:
    refused = 0
    for name, version in PAIRS:
        cls = message_class(name)
        rng = Random(f"broken {name} {version}")
        data = codec.encode(random_message(rng, name, version), version)
        for buffer in [_broken(rng, data) for _ in range(12)] + [rng.randbytes(rng.randint(0, 60)) for _ in range(6)]:
            try:
                _, end = codec.decode(cls, version, buffer)
                assert 0 <= end <= len(buffer)
            except DecodeError:
                refused += 1
    assert refused > len(PAIRS)  # the bytes really are broken


def test_a_length_is_never_believed_beyond_the_bytes_that_are_there() -> None:
    # Nothing in Kafka's messages needs more than a few hundred bytes of objects for each byte on the wire.
    for name, version in PAIRS[::7]:
        cls = message_class(name)
        rng = Random(f"memory {name} {version}")
        data = codec.encode(random_message(rng, name, version), version)
        codec.decode(cls, version, data)  # the generated functions are there before memory is counted
        for _ in range(4):
            buffer = _broken(rng, data)
            tracemalloc.start()
            try:
                codec.decode(cls, version, buffer)
            except DecodeError:
                pass
            finally:
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
            assert peak < 400 * len(buffer) + 64_000, (name, version, buffer.hex())
