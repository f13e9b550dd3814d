"""Every way of checking a batch's records says what the plainest walk says, whatever the bytes."""

from __future__ import annotations

import random
from typing import Final

import pytest

from backend.protocol.record_batches.record_check import MalformedRecords, check_only_record
from backend.protocol.record_batches.record_codec import Header, RecordData, decode_records, encode_record
from backend.protocol.record_batches.record_columns import check_many
from backend.protocol.record_batches.record_validation import MANY_RECORDS, check_records
from backend.protocol.varint import encode_varint
from tests.effort import effort
from tests.properties.protocol.reference_walk import NoRecords, Walked, walk

# Bytes on which readers of varints and lengths turn.
_EDGES: Final = (0, 1, 2, 3, 6, 12, 13, 14, 63, 64, 126, 127, 128, 129, 130, 254, 255)


def _records(chance: random.Random, count: int) -> list[bytes]:
    """Encoded records: alike, of random shapes, or alike with exceptions."""
    shape = chance.choice(("alike", "random", "mixed"))
    key, value = chance.choice((None, b"", b"k" * 9, b"k" * 200)), chance.choice((None, b"v" * 30, b"v" * 1000))
    headers: list[Header] = [("name", b"value")] * chance.choice((0, 0, 0, 1, 3, 10, 20))
    step_ms = chance.choice((0, 1, 3, -2, 10**12))
    encoded = []
    for index in range(count):
        if shape == "random" or (shape == "mixed" and chance.random() < 0.02):
            key = chance.choice((None, bytes(chance.randrange(40)), bytes(chance.randrange(300))))
            value = chance.choice((None, bytes(chance.randrange(300))))
            headers = [("n" * chance.randrange(3), chance.choice((None, b"", b"x")))] * chance.choice((0, 0, 1, 2, 9))
        encoded.append(encode_record(RecordData(0, key, value, headers), step_ms * index, index))
    return encoded


def _mutate(chance: random.Random, encoded: list[bytes]) -> bytes:
    """Some bytes changed, in places that say something most often; or moved, cut, repeated; or nothing."""
    data = bytearray(b"".join(encoded))
    if not data:
        return b""
    for _ in range(chance.choice((0, 1, 1, 1, 2, 5))):
        at = chance.randrange(len(data))
        if chance.random() < 0.7:  # within the first bytes of a record
            index = chance.randrange(len(encoded))
            at = min(sum(map(len, encoded[:index])) + chance.randrange(12), len(data) - 1)
        what = chance.randrange(8)
        if what < 4:
            data[at] = chance.choice(_EDGES)
        elif what == 4:
            data[at] = chance.randrange(256)
        elif what == 5:
            number = chance.choice((-1, -2, 0, 5, 2**31 - 1, -(2**31), 2**31, 2**40, 2**63 - 1, -(2**63)))
            data[at : at + chance.randrange(3)] = encode_varint(number)
        elif what == 6:
            data[at : at + chance.randrange(1, 9)] = b""
        else:
            data[at:at] = bytes(data[at : at + chance.randrange(1, 30)])
        if not data:
            return b""
    return bytes(data)


def _walked(data: bytes, count: int) -> Walked | None:
    try:
        return walk(data, count)
    except NoRecords:
        return None


@pytest.mark.parametrize("group", range(4))
def test_all_agree(group: int) -> None:
    for seed in range(effort(40, 5_000, check=10)):
        _compare(random.Random(f"{group} {seed}"))


def _compare(chance: random.Random) -> None:
    count = chance.choice((1, 2, 3, 20, MANY_RECORDS - 1, MANY_RECORDS, 200, 700, 3000))
    encoded = _records(chance, count)
    for _ in range(4):
        data = _mutate(chance, encoded)
        claimed = count if chance.random() < 0.9 else max(1, count + chance.choice((-1, 1)))
        expected = _walked(data, claimed)
        for check in (check_records, check_many):
            try:
                actual: tuple[object, ...] | None = tuple(check(data, claimed))
            except MalformedRecords:
                actual = None
            assert actual == expected, (check.__name__, claimed, data[:100].hex())
        if expected is not None and expected.consecutive:
            records = list(decode_records(data, claimed, 0, 0, None))
            assert [record.offset for record in records] == list(range(claimed))


def test_an_only_record_says_the_same_without_the_loop() -> None:
    without_loop = 0
    for seed in range(effort(2_000, 200_000)):
        chance = random.Random(seed)
        data = _mutate(chance, _records(chance, 1))
        expected, records_summary = _walked(data, 1), check_only_record(data)
        assert records_summary is None or tuple(records_summary) == expected, data[:100].hex()
        without_loop += records_summary is not None
    assert without_loop > effort(200, 20_000)


def test_no_count_and_no_bytes_are_refused() -> None:
    for data, count in ((b"", 0), (b"", 1), (bytes(7), 0), (bytes(6), 1), (bytes(70), -1)):
        with pytest.raises(MalformedRecords):
            check_records(data, count)
