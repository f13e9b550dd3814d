"""One partition of a Produce request and its row of the response: may it be written to, and what is said about it."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from backend.engine.apis.api_declaration import RequestContext
from backend.engine.apis.produce.produce_append import ATTRIBUTES_AT, CODEC_MASK
from backend.engine.apis.produce.produce_verification import ProduceQueue
from backend.engine.apis.support.leader_hint import leader_hint
from backend.engine.common.topic_names import INTERNAL_TOPICS
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.coordinator.transaction.transaction_verifier import TransactionVerifier
from backend.engine.log.log_appender import AppendInfo
from backend.engine.log.log_errors import InvalidBatch, RecordsRejected
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import Ports, tasks
from backend.engine.replica.partition import Partition
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 0
LEADER_HINT_SINCE: Final = 10
# Versions that may carry zstd (KIP-110).
ZSTD_SINCE: Final = 7
ZSTD: Final = 4
# Kafka's admin client may write to internal topics (AdminUtils.ADMIN_CLIENT_ID).
ADMIN_CLIENT_ID: Final = "__admin_client"
ALL: Final = -1
_VALID_ACKS: Final = frozenset({0, 1, ALL})

# Errors that Kafka's ReplicaManager expects; beside any other the row has the log's start offset.
_WITHOUT_START: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

_log = logging.getLogger(__name__)

_PartitionResponse = m.ProduceResponse.Responses.PartitionResponses


class ProduceServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    ports: Ports
    metadata: MetadataCache
    replica_manager: ReplicaManager
    transaction_verifier: TransactionVerifier
    metrics: BrokerMetrics
    produce_queue: ProduceQueue
    large_batches: tasks.Lock


def topic_name(services: ProduceServices, topic_id: bytes) -> str | None:
    topic = services.metadata.image.topics.get(topic_id)
    return None if topic is None else topic.name


def not_appended(
    services: ProduceServices,
    context: RequestContext,
    topic: str | None,
    index: int,
    records: object,
    error: KafkaError,
) -> _PartitionResponse:
    _count_refused(services.metrics, topic or "", records, error)
    if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        # Ends the client's producer, so its operator will look for the reason here.
        _log.error(
            "Broker %d refused records of client %r for %s-%d: %s",
            services.node_id, context.client_id, topic, index, error.message,
        )  # fmt: skip
    return _refused(index, error)


def writable_partition(
    services: ProduceServices, context: RequestContext, acks: int, topic: str | None, index: int
) -> Partition:
    if acks not in _VALID_ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1, not {acks}")
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    if topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
    return services.replica_manager.partition(topic, index)


def records_of(part: m.ProduceRequest.TopicData.PartitionData, version: int) -> memoryview:
    """The batch as a view of the request; what only this API's versions forbid is refused here."""
    records = part.records
    if not isinstance(records, (bytes, bytearray, memoryview)):
        raise KafkaError(ErrorCode.INVALID_RECORD, f"there are no records for partition {part.index}")
    view = memoryview(records)
    if version < ZSTD_SINCE and len(view) > ATTRIBUTES_AT and view[ATTRIBUTES_AT] & CODEC_MASK == ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {version} must not carry zstd; use version 7 or later",
        )
    return view


def _refused(index: int, error: KafkaError) -> _PartitionResponse:
    row = _PartitionResponse(index=index, error_code=error.code, base_offset=-1, error_message=error.message)
    if isinstance(error, RecordsRejected):
        row.record_errors = [
            _PartitionResponse.RecordErrors(batch_index=at, batch_index_error_message=text)
            for at, text in error.record_errors
        ]
    return row


def log_start_beside(partition: Partition, error: KafkaError) -> int:
    """The log's start offset, which Kafka answers beside an error unless its ReplicaManager expects the error."""
    return -1 if error.code in _WITHOUT_START else partition.log.log_start_offset


def _count_refused(metrics: BrokerMetrics, topic: str, records: object, error: KafkaError) -> None:
    """Kafka keeps these in the broker's totals, the size of what was too large by topic as well."""
    total = metrics.all_topics
    if error.code is ErrorCode.MESSAGE_TOO_LARGE and isinstance(records, (bytes, bytearray, memoryview)):
        for meters in (total, metrics.topic(topic)):
            meters.bytesrejected += len(records)
    elif isinstance(error, InvalidBatch):
        setattr(total, error.meter, getattr(total, error.meter) + 1)
    elif isinstance(error, RecordsRejected) and error.code is ErrorCode.INVALID_RECORD:
        total.nokeycompactedtopicrecords += len(error.record_errors)


def count_appended(metrics: BrokerMetrics, topic: str, info: AppendInfo) -> None:
    messages = info.last_offset - info.first_offset + 1
    for meters in (metrics.all_topics, metrics.topic(topic)):
        meters.messagesin += messages
        meters.bytesin += info.size_bytes


def hint_leaders(services: ProduceServices, context: RequestContext, response: m.ProduceResponse) -> None:
    """Adds the leader of each partition for clients that came to the wrong broker."""
    nodes: dict[int, m.ProduceResponse.NodeEndpoints] = {}
    for topic in response.responses:
        name = topic.name or topic_name(services, topic.topic_id)
        for row in topic.partition_responses:
            if row.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER or name is None:
                continue
            hint = leader_hint(services, context, name, row.index)
            row.current_leader = _PartitionResponse.CurrentLeader(
                leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
            )
            if hint.host is not None:
                nodes[hint.leader_id] = m.ProduceResponse.NodeEndpoints(
                    node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack
                )
    response.node_endpoints = list(nodes.values())
