"""Markers of ended transactions: WriteTxnMarkers to the partitions' leaders until every partition has its marker.

Kafka: `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`; KIP-1228 (the request
carries the transaction's version).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from backend.engine.controller.image.metadata_image import MetadataImage
from backend.engine.coordinator.request_batches import RequestBatches
from backend.engine.coordinator.transaction.transaction import Transaction, TransactionState
from backend.engine.ports import tasks
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError, error_for
from backend.protocol.messages import Message
from backend.tiering.ids import TopicPartition

WRITE_VERSION: Final = 2
# request.timeout.ms of Kafka between brokers.
SEND_TIMEOUT_MS: Final = 30_000
# Before leaders that could not take a marker are asked again.
RETRY_PAUSE_MS: Final = 100
# The producer, or this coordinator, has been replaced: another coordinator finishes the transaction.
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})

_log = logging.getLogger(__name__)

_Marker = m.WriteTxnMarkersRequest.Markers
MarkerCodes = dict[TopicPartition, int]


class SendToBroker(Protocol):
    """`ClusterClient.send_to_broker`: a request to a broker of the cluster. Raises KafkaError or DecodeError."""

    async def __call__(self, broker_id: int, request: Message, version: int, *, timeout_ms: float) -> Message: ...


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """One transaction's end, for some of its partitions."""

    transaction: Transaction
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]


class MarkersRefused(Exception):
    """A partition knows a later producer or coordinator."""


class TransactionMarkers:
    """Sends the markers of this coordinator's transactions."""

    def __init__(self, send: SendToBroker, image: Callable[[], MetadataImage]) -> None:
        self._send_to_broker = send
        self._image = image
        self._batches: RequestBatches[TransactionMarker, MarkerCodes] = RequestBatches(
            self._send, name="transaction markers"
        )

    async def write(
        self,
        transaction: Transaction,
        left: set[TopicPartition],
        coordinator_epoch: int,
        still_wanted: Callable[[], bool],
    ) -> None:
        """Returns once every partition has the marker, or is no more. Ends early once `still_wanted` is false.

        `left`: the transaction's partitions without the marker; it becomes empty as they get it. Raises MarkersRefused.
        """
        while left and still_wanted():
            left -= self._deleted(left)
            by_leader = self._by_leader(left)
            responses = await tasks.gather(
                self._ask(leader, TransactionMarker(transaction, coordinator_epoch, tuple(partitions)), left)
                for leader, partitions in by_leader.items()
            )
            for codes in responses:
                for partition, code in codes.items():
                    if code in _FENCED:
                        raise MarkersRefused(f"{partition} refuses the marker: {error_for(code)}")
            if left:
                await tasks.sleep_ms(RETRY_PAUSE_MS)

    def _deleted(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        image = self._image()
        return {partition for partition in partitions if image.partition(partition.topic, partition.partition) is None}

    def _by_leader(self, partitions: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions by their leaders; partitions without a leader are left out until they have one."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            registration = self._image().partition(partition.topic, partition.partition)
            if registration is not None and registration.leader >= 0:
                by_leader.setdefault(registration.leader, []).append(partition)
        return by_leader

    async def _ask(self, broker_id: int, marker: TransactionMarker, left: set[TopicPartition]) -> MarkerCodes:
        try:
            codes = await self._batches.ask(broker_id, marker)
            left.difference_update(partition for partition, code in codes.items() if code == ErrorCode.NONE)
            return codes
        except (KafkaError, DecodeError) as error:
            _log.info("Broker %d did not take the markers of transaction %s, it is asked again: %s",
                      broker_id, marker.transaction.transactional_id, error)  # fmt: skip
            return {}

    async def _send(self, broker_id: int, markers: Sequence[TransactionMarker]) -> Sequence[MarkerCodes]:
        request = m.WriteTxnMarkersRequest(markers=[_row(marker) for marker in markers])
        response = await self._send_to_broker(broker_id, request, WRITE_VERSION, timeout_ms=SEND_TIMEOUT_MS)
        if not isinstance(response, m.WriteTxnMarkersResponse):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id} answered something else")
        return [
            {
                TopicPartition(topic.name, partition.partition_index): partition.error_code
                for topic in row.topics
                for partition in topic.partitions
            }
            for row in response.markers
        ]


def _row(marker: TransactionMarker) -> _Marker:
    transaction = marker.transaction
    topics: dict[str, list[int]] = {}
    for partition in marker.partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return _Marker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_result=transaction.state is TransactionState.PREPARE_COMMIT,
        topics=[_Marker.Topics(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=transaction.client_version,
    )
