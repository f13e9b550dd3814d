"""Records of `__transaction_state`: those that Apache Kafka wrote while `tests.scenarios.transaction_script` ran."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from backend.engine.coordinator.transaction.transaction import Transaction, TransactionState
from backend.engine.coordinator.transaction.transaction_records import (
    decode_transaction,
    encode_tombstone,
    encode_transaction,
)
from backend.protocol.errors import DecodeError
from backend.tiering.ids import TopicPartition

FIXTURE: Final = Path(__file__).parents[4] / "fixtures" / "apache-kafka-4.3.1" / "transaction-state.json"


def kafkas() -> list[tuple[bytes, bytes]]:
    return [(bytes.fromhex(key), bytes.fromhex(value)) for key, value in json.loads(FIXTURE.read_text())]


def test_kafkas_records_are_read_and_written_the_same() -> None:
    states: Counter[TransactionState] = Counter()
    for key, value in kafkas():
        result = decode_transaction(key, value)
        assert result is not None
        name, transaction = result
        assert transaction is not None
        assert transaction.transactional_id == name
        states[transaction.state] += 1
        again = encode_transaction(transaction, 2, 0)
        assert again.key == key
        assert decode_transaction(again.key, again.value) == result
        if len(transaction.partitions) <= 1:
            assert again.value == value
        else:
            # Kafka writes the partitions in the order of a hash set.
            assert sorted(again.value or b"") == sorted(value)
    assert states.keys() == set(TransactionState) - {TransactionState.DEAD}


def test_a_cluster_without_tagged_fields_gets_the_plain_form() -> None:
    transaction = Transaction(
        transactional_id="x",
        producer_id=7,
        epoch=2,
        previous_producer_id=7,
        timeout_ms=5,
        state=TransactionState.ONGOING,
        partitions=frozenset({TopicPartition("a", 1), TopicPartition("a", 0), TopicPartition("b", 0)}),
        started_ms=3,
        updated_ms=4,
        client_version=0,
    )
    record = encode_transaction(transaction, 0, 0)
    assert (record.value or b"")[:2] == b"\x00\x00"
    result = decode_transaction(record.key, record.value)
    assert result is not None
    assert result[1] is not None
    assert (result[1].partitions, result[1].previous_producer_id) == (transaction.partitions, -1)


def test_a_tombstone_forgets() -> None:
    record = encode_tombstone("x", 0)
    assert decode_transaction(record.key, record.value) == ("x", None)


def test_what_is_no_record_is_told_apart_from_one_of_a_later_kind() -> None:
    assert decode_transaction(b"\x00\x09what", b"") is None
    for key, value in ((None, b""), (b"\x00", b""), (kafkas()[0][0], b"\x00"), (kafkas()[0][0], b"\x00\x63")):
        with pytest.raises(DecodeError):
            decode_transaction(key, value)
    key, value = kafkas()[0]
    with pytest.raises(DecodeError, match="unknown state"):
        decode_transaction(key, value[:16] + b"\x63" + value[17:])
