"""WriteTxnMarkers (27), versions 1-2: a transaction's coordinator tells the partitions led here how it ended (KIP-98).

Version 2 says which transaction.version the transaction was made under: from 2 on the marker's epoch must be later than
that of the records (KIP-890, KIP-1228). A marker in `__consumer_offsets` also settles the offsets of the transaction.
"""

from __future__ import annotations

from typing import Final

from backend.engine.apis.context import Api, RequestContext
from backend.engine.apis.services import Services
from backend.engine.coordinator.group_records import OFFSETS_TOPIC
from backend.engine.coordinator.transaction import EPOCH_BUMPED_SINCE
from backend.engine.coordinator.transaction_state import Producer
from backend.engine.ports import tasks
from backend.protocol import messages as m
from backend.protocol.control_records import end_txn_marker
from backend.protocol.errors import KafkaError
from backend.tiering.ids import TopicPartition

API_KEY: Final = 27
MIN_VERSION: Final = 1
MAX_VERSION: Final = 2

_Asked = m.WriteTxnMarkersRequest.Markers
_Answer = m.WriteTxnMarkersResponse.Markers
_Row = _Answer.Topics.Partitions


async def write_txn_markers(
    services: Services, context: RequestContext, request: m.WriteTxnMarkersRequest
) -> m.WriteTxnMarkersResponse:
    """Answers once the in-sync replicas have the markers; one code for each."""
    answers = [_Answer(producer_id=marker.producer_id) for marker in request.markers]
    writing = []
    for marker, answer in zip(request.markers, answers, strict=True):
        for topic in marker.topics:
            rows = _Answer.Topics(name=topic.name)
            answer.topics.append(rows)
            for index in topic.partition_indexes:
                row = _Row(partition_index=index)
                rows.partitions.append(row)
                writing.append(_write(services, marker, TopicPartition(topic.name, index), row))
    await tasks.gather(writing)
    return m.WriteTxnMarkersResponse(markers=answers)


async def _write(services: Services, marker: _Asked, partition: TopicPartition, row: _Row) -> None:
    try:
        await _append(services, marker, partition)
    except KafkaError as error:
        row.error_code = error.code


async def _append(services: Services, marker: _Asked, partition: TopicPartition) -> None:
    hosted = services.replica_manager.partition(partition.topic, partition.partition)
    hosted.check_leader()
    producer = Producer(marker.producer_id, marker.producer_epoch)
    if marker.transaction_version >= EPOCH_BUMPED_SINCE:
        hosted.log.producer_state.check_bumped_epoch(producer.producer_id, producer.epoch)
    timeout_ms = services.config.request_timeout_ms
    if partition.topic == OFFSETS_TOPIC:
        await services.group_coordinator.offsets.end_transaction(
            partition.partition,
            producer,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            timeout_ms=timeout_ms,
        )
        return
    batch = end_txn_marker(
        commit=marker.transaction_result,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp_ms=services.ports.clock.time_ms(),
    )
    await services.replica_manager.append(partition, memoryview(batch), timeout_ms=timeout_ms)


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, write_txn_markers),)
