"""The transaction that holds a partition: which producer's, by what leader and coordinator answer."""

from __future__ import annotations

from typing import Any

from backend.control.gateway.requests.transaction_requests import (
    CoordinatedTransaction,
    OpenTransaction,
    oldest_transactions,
    transaction_states,
)
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

TOPICS = m.DescribeProducersResponse.Topics
PARTITION = TOPICS.Partitions
PRODUCER = PARTITION.ActiveProducers


def producer(producer_id: int, start_offset: int, last_timestamp: int = 99) -> PRODUCER:
    return PRODUCER(
        producer_id=producer_id,
        producer_epoch=3,
        last_sequence=7,
        last_timestamp=last_timestamp,
        coordinator_epoch=1,
        current_txn_start_offset=start_offset,
    )


def test_of_several_producers_the_one_whose_transaction_began_first_holds_the_partition() -> None:
    active = [producer(1, -1), producer(2, 900), producer(3, 800, -1)]
    none = PARTITION(partition_index=1, error_code=0, error_message=None, active_producers=[producer(1, -1)])
    refused = PARTITION(
        partition_index=2,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        error_message=None,
        active_producers=[producer(1, 5)],
    )
    held = PARTITION(partition_index=0, error_code=0, error_message=None, active_producers=active)
    response = m.DescribeProducersResponse(topics=[TOPICS(name="orders", partitions=[held, none, refused])])
    assert oldest_transactions(response) == [OpenTransaction("orders", 0, 800, 3, 3, 1, None)]


def test_a_coordinator_tells_times_only_of_what_may_be_described() -> None:
    states = m.ListTransactionsResponse.TransactionStates
    listed = m.ListTransactionsResponse(
        transaction_states=[
            states(transactional_id="forgotten", producer_id=3, transaction_state="Ongoing"),
            states(transactional_id="secret", producer_id=4, transaction_state="Ongoing"),
        ]
    )
    times = m.DescribeTransactionsResponse.TransactionStates
    common: dict[str, Any] = {"transaction_state": "Ongoing", "producer_id": 3, "producer_epoch": 0, "topics": []}
    described = m.DescribeTransactionsResponse(
        transaction_states=[
            times(
                error_code=0,
                transactional_id="forgotten",
                transaction_timeout_ms=600_000,
                transaction_start_time_ms=5_000,
                **common,
            ),
            times(
                error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                transactional_id="secret",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                **common,
            ),
        ]
    )
    assert transaction_states(listed, described) == [
        CoordinatedTransaction(3, "forgotten", "Ongoing", 5_000, 600_000),
        CoordinatedTransaction(4, "secret", "Ongoing", None, None),
    ]
