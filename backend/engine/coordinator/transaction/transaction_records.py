"""Records of `__transaction_state`: transactions ↔ keys and values (`TransactionLog` of Kafka).

A key begins with an int16 that says what the record is, a value with the int16 version of its message. A record without
a value forgets the transactional id.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from backend.engine.coordinator.transaction.transaction import Transaction, TransactionState
from backend.protocol import codec
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError
from backend.protocol.record_batches.record_codec import RecordData
from backend.tiering.ids import TopicPartition

TRANSACTIONS_TOPIC: Final = "__transaction_state"
_KEY_VERSION: Final = 0
# Version 1 has tagged fields, which transaction.version 1 allows.
_PLAIN_VALUE_VERSION: Final = 0
_TAGGED_VALUE_VERSION: Final = 1
_INT16: Final = Struct(">h")

_Partitions = m.TransactionLogValue.TransactionPartitions


def _key(transactional_id: str) -> bytes:
    return _INT16.pack(m.TransactionLogKey.KEY) + codec.encode(
        m.TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION
    )


def encode_transaction(transaction: Transaction, version: int, now_ms: int) -> RecordData:
    """The record of a transaction as it is to be; `version` is the cluster's transaction.version."""
    value_version = _TAGGED_VALUE_VERSION if version >= 1 else _PLAIN_VALUE_VERSION
    value = m.TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=_by_topic(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    if value_version >= _TAGGED_VALUE_VERSION:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    encoded = _INT16.pack(value_version) + codec.encode(value, value_version)
    return RecordData(now_ms, _key(transaction.transactional_id), encoded)


def _by_topic(transaction: Transaction) -> list[_Partitions] | None:
    if transaction.state is TransactionState.EMPTY:
        return None
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions):
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return [_Partitions(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()]


def encode_tombstone(transactional_id: str, now_ms: int) -> RecordData:
    """The record that forgets a transactional id."""
    return RecordData(now_ms, _key(transactional_id), None)


def decode_transaction(key: bytes | None, value: bytes | None) -> tuple[str, Transaction | None] | None:
    """(transactional id, transaction or None when it is forgotten); None for records of later kinds.

    Raises DecodeError.
    """
    if key is None or len(key) < _INT16.size:
        raise DecodeError("a record of __transaction_state has no key")
    if _INT16.unpack_from(key)[0] != m.TransactionLogKey.KEY:
        return None
    named, _ = codec.decode(m.TransactionLogKey, _KEY_VERSION, key, _INT16.size)
    if value is None:
        return named.transactional_id, None
    if len(value) < _INT16.size:
        raise DecodeError("a value of __transaction_state has no version")
    message, _ = codec.decode(m.TransactionLogValue, _INT16.unpack_from(value)[0], value, _INT16.size)
    try:
        state = TransactionState(message.transaction_status)
    except ValueError:
        raise DecodeError(f"a transaction has the unknown state {message.transaction_status}") from None
    partitions = frozenset(
        TopicPartition(topic.topic, index)
        for topic in message.transaction_partitions or ()
        for index in topic.partition_ids
    )
    return named.transactional_id, Transaction(
        transactional_id=named.transactional_id,
        producer_id=message.producer_id,
        epoch=message.producer_epoch,
        previous_producer_id=message.previous_producer_id,
        next_producer_id=message.next_producer_id,
        timeout_ms=message.transaction_timeout_ms,
        state=state,
        partitions=partitions,
        started_ms=message.transaction_start_timestamp_ms,
        updated_ms=message.transaction_last_update_timestamp_ms,
        client_version=message.client_transaction_version,
    )
