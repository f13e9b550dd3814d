"""Error codes, uuids, variable-length integers and the hash, against other libraries and known values."""

import pickle
from random import Random
from typing import Any

import pytest
from kafka import errors as kafka_python_errors
from kafka.partitioner.default import murmur2 as kafka_python_murmur2
from kio.schema.errors import ErrorCode as KioErrorCode

from backend.protocol.errors import DecodeError, ErrorCode, KafkaError, error_code, error_for
from backend.protocol.ids import TopicIdPartition, TopicPartition, uuid_bytes, uuid_text
from backend.protocol.murmur2 import murmur2, to_positive
from backend.protocol.varint import decode_uvarint, decode_varlong, encode_uvarint, encode_varint


def test_error_codes_have_kafkas_numbers_names_and_retries() -> None:
    assert {(code.value, code.name.lower(), code.retriable) for code in ErrorCode} == {
        (int(code), code.name, code.retriable) for code in KioErrorCode
    }
    error_classes: list[Any] = [c for c in vars(kafka_python_errors).values() if hasattr(c, "retriable")]
    numbers = {c.errno: c.retriable for c in error_classes if isinstance(getattr(c, "errno", None), int)}
    shared = [code for code in ErrorCode if code.value in numbers and code.value > 0]
    assert len(shared) > 100
    differ = {code.name for code in shared if numbers[code.value] != code.retriable}
    # kafka-python refuses to send a corrupt batch again; Kafka's own client tries once more.
    assert differ == {"CORRUPT_MESSAGE"}


def test_an_error_carries_its_code_a_sentence_and_whether_to_try_again() -> None:
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert error.retriable
    assert error.message == "not leader or follower"
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "x is no y")) == "INVALID_CONFIG: x is no y"
    assert not error_for(109).retriable
    assert error_for(109).code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert error_for(9999, "why").code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9999" in str(error_for(9999, "why"))
    assert "why" in str(error_for(9999, "why"))
    assert error_code(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    again = pickle.loads(pickle.dumps(KafkaError(ErrorCode.NONE, "a")))
    assert (again.code, again.message) == (ErrorCode.NONE, "a")


def test_uuids_have_kafkas_text() -> None:
    assert uuid_text(bytes(range(1, 17))) == "AQIDBAUGBwgJCgsMDQ4PEA"
    for seed in range(50):
        value = Random(seed).randbytes(16)
        assert len(uuid_text(value)) == 22
        assert uuid_bytes(uuid_text(value)) == value
    for text in ("", "AQID", "AQIDBAUGBwgJCgsMDQ4PE!", "AQIDBAUGBwgJCgsMDQ4PEB", "AQIDBAUGBwgJCgsMDQ4PEA=="):
        with pytest.raises(ValueError, match="uuid"):
            uuid_bytes(text)
    with pytest.raises(ValueError, match="16 bytes"):
        uuid_text(b"")


def test_partitions_print_as_in_kafkas_logs() -> None:
    tip = TopicIdPartition("orders", bytes(range(1, 17)), 3)
    assert str(tip) == "AQIDBAUGBwgJCgsMDQ4PEA:orders-3"
    assert str(tip.topic_partition) == str(TopicPartition("orders", 3)) == "orders-3"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), ((1 << 32) - 1, "ffffffff0f")]
)
def test_unsigned_varints(value: int, text: str) -> None:
    assert encode_uvarint(value).hex() == text
    assert decode_uvarint(bytes.fromhex("ff" + text), 1) == (value, 1 + len(text) // 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-(1 << 31), "ffffffff0f"),
        ((1 << 63) - 1, "feffffffffffffffff01"),
        (-(1 << 63), "ffffffffffffffffff01"),
    ],
)
def test_signed_varints(value: int, text: str) -> None:
    assert encode_varint(value).hex() == text
    assert decode_varlong(bytes.fromhex(text), 0) == (value, len(text) // 2)


def test_varints_that_are_too_long_or_cut_off_are_refused() -> None:
    for text in ("ffffffff10", "ffffffffff00", "808080808000"):
        with pytest.raises(DecodeError):
            decode_uvarint(bytes.fromhex(text), 0)
    for text in ("ffffffffffffffffff02", "80808080808080808080800000"):
        with pytest.raises(DecodeError):
            decode_varlong(bytes.fromhex(text), 0)
    for reader in (decode_uvarint, decode_varlong):
        with pytest.raises(IndexError):
            reader(b"\x80\x80", 0)
    with pytest.raises(ValueError, match="cannot hold"):
        encode_uvarint(-1)


def test_murmur2_is_kafkas() -> None:
    assert murmur2(bytes.fromhex("8f905eef")) == -275787385
    for size in range(40):
        data = Random(size).randbytes(size)
        assert to_positive(murmur2(data)) == kafka_python_murmur2(data) & 0x7FFFFFFF
