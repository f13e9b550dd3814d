"""Open transactions (KIP-664): the producer that holds a partition, and the transactional id that it has.

DescribeProducers is answered by the partition's leader, ListTransactions and DescribeTransactions by the coordinators.
A right that is missing leaves out what it is for: the producer is known then and its transactional id is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from backend.control.gateway.gateway_errors import GatewayError
from backend.control.gateway.kafka_client import Gateway, describe_failure
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import TopicPartition

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CoordinatedTransaction:
    """A transaction as its coordinator lists it; times are None where it may not be described."""

    producer_id: int
    transactional_id: str
    state: str
    started_ms: int | None
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The transaction that holds a partition's last stable offset.

    `written_ms`: when its newest record there was made; None: not known. `coordinated` None: no coordinator lists it,
    as one that hangs (KIP-890), or it may not be listed.
    """

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    written_ms: int | None
    coordinated: CoordinatedTransaction | None = None


async def open_transactions(
    gateway: Gateway, partitions: Mapping[int, Sequence[TopicPartition]], broker_ids: Iterable[int]
) -> list[OpenTransaction]:
    """The oldest open transaction of each of these partitions, given by leader; of some that do not answer none."""
    described = await asyncio.gather(*(_producers(gateway, leader, led) for leader, led in partitions.items()))
    held = [transaction for transactions in described for transaction in transactions]
    producer_ids = sorted({transaction.producer_id for transaction in held})
    if not producer_ids:
        return []
    by_producer: dict[int, CoordinatedTransaction] = {}
    for states in await asyncio.gather(*(_transactions(gateway, i, producer_ids) for i in sorted(broker_ids))):
        by_producer |= {state.producer_id: state for state in states}
    return [replace(transaction, coordinated=by_producer.get(transaction.producer_id)) for transaction in held]


async def _producers(gateway: Gateway, leader: int, partitions: Sequence[TopicPartition]) -> list[OpenTransaction]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in partitions:
        by_topic[tp.topic].append(tp.partition)
    topics = m.DescribeProducersRequest.Topics
    request = m.DescribeProducersRequest(
        topics=[topics(name=topic, partition_indexes=numbers) for topic, numbers in by_topic.items()]
    )
    try:
        response, _ = await gateway.ask_node(leader, request, m.DescribeProducersResponse)
    except (GatewayError, KafkaError) as error:
        _log.debug("broker %d does not describe producers: %s", leader, describe_failure(error))
        return []
    return oldest_transactions(response)


def oldest_transactions(response: m.DescribeProducersResponse) -> list[OpenTransaction]:
    """Of each partition of the response the transaction that began first, where one is open."""
    result = []
    for topic in response.topics:
        for partition in topic.partitions:
            producers = [p for p in partition.active_producers if p.current_txn_start_offset >= 0]
            if partition.error_code != ErrorCode.NONE or not producers:
                continue
            first = min(producers, key=lambda producer: producer.current_txn_start_offset)
            result.append(
                OpenTransaction(
                    topic.name,
                    partition.partition_index,
                    first.current_txn_start_offset,
                    first.producer_id,
                    first.producer_epoch,
                    first.coordinator_epoch,
                    first.last_timestamp if first.last_timestamp >= 0 else None,
                )
            )
    return result


async def _transactions(gateway: Gateway, broker_id: int, producer_ids: Sequence[int]) -> list[CoordinatedTransaction]:
    """The transactions of these producers that the broker coordinates, with their times where it may be asked."""
    request = m.ListTransactionsRequest(producer_id_filters=list(producer_ids))
    try:
        listed, _ = await gateway.ask_node(broker_id, request, m.ListTransactionsResponse)
        ids = [state.transactional_id for state in listed.transaction_states]
        if listed.error_code != ErrorCode.NONE or not ids:
            return []
        described, _ = await gateway.ask_node(
            broker_id, m.DescribeTransactionsRequest(transactional_ids=ids), m.DescribeTransactionsResponse
        )
    except (GatewayError, KafkaError) as error:
        _log.debug("broker %d does not list transactions: %s", broker_id, describe_failure(error))
        return []
    return transaction_states(listed, described)


def transaction_states(
    listed: m.ListTransactionsResponse, described: m.DescribeTransactionsResponse
) -> list[CoordinatedTransaction]:
    """The transactions that a coordinator listed, with their times where it described them."""
    times = {
        state.transactional_id: (
            state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
            state.transaction_timeout_ms if state.transaction_timeout_ms >= 0 else None,
        )
        for state in described.transaction_states
        if state.error_code == ErrorCode.NONE
    }
    return [
        CoordinatedTransaction(
            state.producer_id,
            state.transactional_id,
            state.transaction_state,
            *times.get(state.transactional_id, (None, None)),
        )
        for state in listed.transaction_states
    ]
