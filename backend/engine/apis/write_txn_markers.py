"""WriteTxnMarkers (27), versions 1-2: how a transaction ended, written into the partitions led here (KIP-98).

Version 2 says which transaction.version the transaction was made under: from 2 on the marker's epoch must be later than
that of the records (KIP-890, KIP-1228). A marker in `__consumer_offsets` also settles the offsets of the transaction.
Kafka: `KafkaApis.handleWriteTxnMarkersRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.config import BrokerConfig
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.coordinator.group.group_records import OFFSETS_TOPIC
from backend.engine.coordinator.transaction.transaction import EPOCH_BUMPED_SINCE
from backend.engine.coordinator.transaction.transaction_state import Producer
from backend.engine.ports import Ports, tasks
from backend.engine.ports.time_slices import TimeSlicer, in_parts
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import messages as m
from backend.protocol.errors import NONE, ErrorCode, KafkaError
from backend.protocol.record_batches.control_records import end_txn_marker
from backend.tiering.ids import TopicPartition

API_KEY: Final = 27
MIN_VERSION: Final = 1
MAX_VERSION: Final = 2
NOBODY: Final = -1
# Markers of one transaction that wait for the in-sync replicas together: more than a transaction has partitions.
MARKERS_AT_A_TIME: Final = 500

_Marker = m.WriteTxnMarkersRequest.Markers
_MarkerResult = m.WriteTxnMarkersResponse.Markers
_PartitionResult = _MarkerResult.Topics.Partitions


class WriteTxnMarkersServices(Protocol):
    """The parts of the node that these functions use."""

    config: BrokerConfig
    ports: Ports
    replica_manager: ReplicaManager
    group_coordinator: GroupCoordinator
    time_slicer: TimeSlicer


async def write_txn_markers(
    services: WriteTxnMarkersServices, context: RequestContext, request: m.WriteTxnMarkersRequest
) -> m.WriteTxnMarkersResponse:
    """Answers once the in-sync replicas have the markers: one code for each partition that a producer wrote to."""
    time_slice = services.time_slicer.time_slice()
    results: dict[int, dict[str, dict[int, int]]] = {}
    for marker in request.markers:
        of_producer = results.setdefault(marker.producer_id, {})
        partitions: dict[TopicPartition, None] = {}
        for topic in marker.topics:
            partitions.update(dict.fromkeys(TopicPartition(topic.name, index) for index in topic.partition_indexes))
            await time_slice.step()
        for some in in_parts(partitions, MARKERS_AT_A_TIME):
            codes = await tasks.gather([_write(services, marker, partition) for partition in some])
            for partition, code in zip(some, codes, strict=True):
                of_producer.setdefault(partition.topic, {})[partition.partition] = code
            await time_slice.step()
    markers = []
    for producer_id, topics in results.items():
        markers.append(_response(producer_id, topics))
        await time_slice.step()
    return m.WriteTxnMarkersResponse(markers=markers)


def _response(producer_id: int, topics: dict[str, dict[int, int]]) -> _MarkerResult:
    return _MarkerResult(
        producer_id=producer_id,
        topics=[
            _MarkerResult.Topics(
                name=name,
                partitions=[_PartitionResult(partition_index=index, error_code=code) for index, code in codes.items()],
            )
            for name, codes in topics.items()
        ],
    )


async def _write(services: WriteTxnMarkersServices, marker: _Marker, partition: TopicPartition) -> int:
    try:
        await _append(services, marker, partition)
    except KafkaError as error:
        return error.code
    return NONE


async def _append(services: WriteTxnMarkersServices, marker: _Marker, partition: TopicPartition) -> None:
    hosted = services.replica_manager.partition(partition.topic, partition.partition)
    if NOBODY in (marker.producer_id, marker.producer_epoch):
        # No batch can say that it is a marker of nobody; Kafka's attempt to write one ends with this code too.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker needs a producer id and an epoch")
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
