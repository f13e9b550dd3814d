"""Produce (0), versions 3-13: appends record batches to led partitions.

acks 0 and 1 are answered in the same callback that received them; acks=all waits for the in-sync replicas. KIP-98
idempotence (checked by the log), KIP-467 record errors, KIP-516 topic ids (13), KIP-951 leader hints, KIP-890
confirmation of transactional batches by their coordinator (`produce_verification`).
Versions: 7 zstd, 8 record errors, 10 leader hints, 11 TRANSACTION_ABORTABLE, 12 the leader adds partitions to
transactions, 13 topic ids.
Kafka: `KafkaApis.handleProduceRequest`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, Deferred, NoAnswer, RequestContext
from backend.engine.apis.produce import produce_verification
from backend.engine.apis.produce.produce_append import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    INLINE_BYTES_MAX,
    RequestCost,
    ValidationWork,
    append_within,
    carry_out,
    may_be_large,
)
from backend.engine.apis.produce.produce_verification import ProduceQueue
from backend.engine.apis.produce.repeated_partitions import without_repeats
from backend.engine.apis.support.leader_hint import leader_hint
from backend.engine.common.topic_names import INTERNAL_TOPICS
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.coordinator.transaction.transaction_verifier import TransactionVerifier
from backend.engine.log.log_appender import AppendInfo
from backend.engine.log.log_errors import InvalidBatch, RecordsRejected
from backend.engine.log.validation.produced_batch import ValidatedBatch
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import Ports, tasks
from backend.engine.replica.partition import Partition
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import frames
from backend.protocol import messages as m
from backend.protocol.buffers import Chunk
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.frames import RequestHeader
from backend.protocol.produce_fast_path import (
    TOPIC_IDS_SINCE,
    SingleBatchProduce,
    encode_single_batch,
    read_single_batch,
)

API_KEY: Final = 0
MIN_VERSION: Final = 3
MAX_VERSION: Final = 13
# Kafka 4 shows 0 for the sake of old librdkafka, and serves 3 and up.
ADVERTISED_MIN: Final = 0
LEADER_HINT_SINCE: Final = 10
# Versions that may carry zstd (KIP-110).
ZSTD_SINCE: Final = 7
ZSTD: Final = 4
_TRANSACTIONAL_MASK: Final = 0x10
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
Required = list[tuple[int, Partition, int]]


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


def produce(
    services: ProduceServices, context: RequestContext, request: m.ProduceRequest
) -> m.ProduceResponse | tasks.Future[m.ProduceResponse] | tasks.Task[m.ProduceResponse | None] | None:
    """Appends everything, then answers at once or when it is acknowledged; None for acks=0."""
    request.topic_data = without_repeats(request.topic_data)
    queue = services.produce_queue
    if request.transactional_id is None:
        if _has_transactional_records(request):
            return _refuse_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif services.replica_manager.config.transaction_partition_verification_enable:
        by_id = context.api_version >= TOPIC_IDS_SINCE
        if queue.is_busy(context.connection_id) or produce_verification.first_batches(services, request, by_id=by_id):
            return queue.append_in_order(context.connection_id, lambda: _confirm_and_append(services, context, request))
    appending = _Appending(services, context, request, {})
    if queue.is_busy(context.connection_id) or not appending.go_on():
        return queue.append_in_order(context.connection_id, appending.finish)
    return appending.respond()


async def _confirm_and_append(
    services: ProduceServices, context: RequestContext, request: m.ProduceRequest
) -> m.ProduceResponse | tasks.Future[m.ProduceResponse] | None:
    version = context.api_version
    # Determined again: the requests before this one may have begun the transaction meanwhile.
    first = produce_verification.first_batches(services, request, by_id=version >= TOPIC_IDS_SINCE)
    refused = await produce_verification.confirm(services, request.transactional_id or "", version, first)
    return await _Appending(services, context, request, refused).finish()


class _Appending:
    """One request's batches on their way into the logs, in order."""

    def __init__(
        self,
        services: ProduceServices,
        context: RequestContext,
        request: m.ProduceRequest,
        unconfirmed: produce_verification.UnconfirmedPartitions,
    ) -> None:
        self._services = services
        self._context = context
        self._request = request
        self._unconfirmed = unconfirmed
        self._response = m.ProduceResponse()
        self._rows: list[_PartitionResponse] = []
        self._required: Required = []
        self._refused = False
        self._running: Generator[ValidationWork, ValidatedBatch | None, None] | None = None
        self._work: ValidationWork = None

    def go_on(self) -> bool:
        """Appends on the loop; whether that was all. If not, `finish` goes on."""
        self._running = self._append_all()
        try:
            self._work = next(self._running)
        except StopIteration:
            return True
        return False

    async def finish(self) -> m.ProduceResponse | tasks.Future[m.ProduceResponse] | None:
        """Appends what is left, and answers."""
        running = self._running
        if running is None:
            if self.go_on():
                return self.respond()
            running = self._running
            assert running is not None
        while True:
            try:
                try:
                    done = await carry_out(self._services, self._work)
                except KafkaError as error:
                    self._work = running.throw(error)
                else:
                    self._work = running.send(done)
            except StopIteration:
                return self.respond()

    def _append_all(self) -> Generator[ValidationWork, ValidatedBatch | None, None]:
        services, version = self._services, self._context.api_version
        rows = self._rows
        cost = RequestCost(services.ports.clock.monotonic_ms)
        for topic in self._request.topic_data:
            name = topic.name if version < TOPIC_IDS_SINCE else _topic_name(services, topic.topic_id)
            topic_response = m.ProduceResponse.Responses(topic_id=topic.topic_id, name=topic.name)
            self._response.responses.append(topic_response)
            for part in topic.partition_data:
                row = yield from self._append(name, part, cost)
                self._refused = self._refused or row.error_code != 0
                topic_response.partition_responses.append(row)
                rows.append(row)
                if cost.slice_is_over():
                    yield None

    def _append(
        self, topic: str | None, part: m.ProduceRequest.TopicData.PartitionData, cost: RequestCost
    ) -> Generator[ValidationWork, ValidatedBatch | None, _PartitionResponse]:
        services, context, acks = self._services, self._context, self._request.acks
        try:
            partition = _partition(services, context, acks, topic, part.index)
            records = _records(part, context.api_version)
            if self._unconfirmed and (reason := self._unconfirmed.get(partition.topic_partition)) is not None:
                raise reason
        except KafkaError as error:
            return _not_appended(services, context, topic, part.index, part.records, error)
        try:
            info = yield from append_within(services, cost, partition, records, acks)
        except KafkaError as error:
            row = _not_appended(services, context, topic, part.index, part.records, error)
            row.log_start_offset = _log_start_beside(partition, error)
            return row
        if acks == ALL:
            self._required.append((len(self._rows), partition, info.last_offset + 1))
        _count(services.metrics, partition.topic_id_partition.topic, info)
        return _PartitionResponse(
            index=part.index,
            base_offset=info.first_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )

    def respond(self) -> m.ProduceResponse | tasks.Future[m.ProduceResponse] | None:
        """Once all is appended: at once, when it is acknowledged, or None for acks=0."""
        services, request, response = self._services, self._request, self._response
        total = services.metrics.all_topics
        total.totalproducerequests += 1
        if self._refused:
            total.failedproducerequests += 1
            if self._context.api_version >= LEADER_HINT_SINCE:
                _hint_leaders(services, self._context, response)
        if request.acks == 0:
            if self._refused:
                # The client reads no answers; a closed connection is the only thing it can notice.
                raise NoAnswer("records sent with acks=0 were refused")
            return None
        if not self._required:
            return response
        return _when_acknowledged(services, request, response, self._rows, self._required)


def _has_transactional_records(request: m.ProduceRequest) -> bool:
    """RequestUtils.hasTransactionalRecords of Kafka; control batches of clients are caught here too."""
    for topic in request.topic_data:
        for part in topic.partition_data:
            records = part.records
            if (
                isinstance(records, (bytes, bytearray, memoryview))
                and len(records) > ATTRIBUTES_AT
                and records[ATTRIBUTES_AT] & _TRANSACTIONAL_MASK
            ):
                return True
    return False


def _refuse_all(request: m.ProduceRequest, code: ErrorCode) -> m.ProduceResponse | None:
    """Every partition with the error, nothing appended."""
    if request.acks == 0:
        raise NoAnswer("a request sent with acks=0 was refused")
    response = m.ProduceResponse()
    for topic in request.topic_data:
        rows = [_PartitionResponse(index=part.index, error_code=code, base_offset=-1) for part in topic.partition_data]
        response.responses.append(
            m.ProduceResponse.Responses(topic_id=topic.topic_id, name=topic.name, partition_responses=rows)
        )
    return response


def _when_acknowledged(
    services: ProduceServices,
    request: m.ProduceRequest,
    response: m.ProduceResponse,
    rows: list[_PartitionResponse],
    required: Required,
) -> m.ProduceResponse | tasks.Future[m.ProduceResponse]:
    """The response once every high watermark has passed what was appended, or when the client's time is up."""
    answered: tasks.Future[m.ProduceResponse] | None = None
    done = False

    def respond(errors: dict[int, ErrorCode]) -> None:
        nonlocal done
        done = True
        for index, error in errors.items():
            rows[index].error_code = error
        if answered is not None and not answered.done():
            answered.set_result(response)

    services.replica_manager.wait_for_acks(required, request.timeout_ms, respond)
    if done:
        return response
    answered = tasks.eager_future()  # its answer waited for followers and is sent at once
    return answered


def _topic_name(services: ProduceServices, topic_id: bytes) -> str | None:
    topic = services.metadata.image.topics.get(topic_id)
    return None if topic is None else topic.name


def _not_appended(
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


def _partition(
    services: ProduceServices, context: RequestContext, acks: int, topic: str | None, index: int
) -> Partition:
    if acks not in _VALID_ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1, not {acks}")
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    if topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
    return services.replica_manager.partition(topic, index)


def _records(part: m.ProduceRequest.TopicData.PartitionData, version: int) -> memoryview:
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


def _log_start_beside(partition: Partition, error: KafkaError) -> int:
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


def _count(metrics: BrokerMetrics, topic: str, info: AppendInfo) -> None:
    messages = info.last_offset - info.first_offset + 1
    for meters in (metrics.all_topics, metrics.topic(topic)):
        meters.messagesin += messages
        meters.bytesin += info.size_bytes


def _hint_leaders(services: ProduceServices, context: RequestContext, response: m.ProduceResponse) -> None:
    """Adds the leader of each partition for clients that came to the wrong broker."""
    nodes: dict[int, m.ProduceResponse.NodeEndpoints] = {}
    for topic in response.responses:
        name = topic.name or _topic_name(services, topic.topic_id)
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


def produce_by_fast_path(
    services: ProduceServices, context: Callable[[RequestHeader], RequestContext], frame: bytearray
) -> Sequence[Chunk] | Deferred | None:
    """Serves one batch to one partition as `produce` does, without message objects (`protocol.produce_fast_path`).

    Returns the frame of the answer; None, with nothing done, for a request that `produce` has to serve.
    """
    request = read_single_batch(frame)
    if request is None or services.metadata.image.client_quotas:
        return None
    if request.version < TOPIC_IDS_SINCE:
        name: str | None = request.topic_name
    else:
        name = _topic_name(services, request.topic_id)
    if name is None or name in INTERNAL_TOPICS:
        return None
    partition = services.replica_manager.find(name, request.partition)
    if not isinstance(partition, Partition):
        return None
    try:
        info = partition.append(request.records, acks=request.acks, decompressed_bytes_max=INLINE_BYTES_MAX)
    except KafkaError as error:
        if may_be_large(error, request.records):
            return None
        response = _refused_alone(services, context(_header(request)), name, partition, request, error)
        return frames.encode_response(response, request.version, request.correlation_id)
    services.metrics.all_topics.totalproducerequests += 1
    _count(services.metrics, name, info)
    if request.acks == ALL:
        return _when_acknowledged_on_fast_path(services, request, partition, info)
    return (encode_single_batch(request, info.first_offset, info.log_append_time_ms, info.log_start_offset),)


def _header(request: SingleBatchProduce) -> RequestHeader:
    return RequestHeader(API_KEY, request.version, request.correlation_id, request.client_id)


def _when_acknowledged_on_fast_path(
    services: ProduceServices, request: SingleBatchProduce, partition: Partition, info: AppendInfo
) -> Sequence[Chunk] | Deferred:
    """As `_when_acknowledged`."""
    deferred: Deferred | None = None
    made: Sequence[Chunk] | None = None

    def respond(errors: dict[int, ErrorCode]) -> None:
        nonlocal made
        error = errors.get(0, ErrorCode.NONE)
        made = (encode_single_batch(request, info.first_offset, info.log_append_time_ms, info.log_start_offset, error),)
        if deferred is not None and not deferred.frame.done():
            deferred.frame.set_result(made)

    services.replica_manager.wait_for_acks([(0, partition, info.last_offset + 1)], request.timeout_ms, respond)
    if made is not None:
        return made
    deferred = Deferred(_header(request), tasks.eager_future())
    return deferred


def _refused_alone(
    services: ProduceServices,
    context: RequestContext,
    topic: str,
    partition: Partition,
    request: SingleBatchProduce,
    error: KafkaError,
) -> m.ProduceResponse:
    row = _not_appended(services, context, topic, request.partition, request.records, error)
    row.log_start_offset = _log_start_beside(partition, error)
    topic_response = m.ProduceResponse.Responses(partition_responses=[row])
    if request.version < TOPIC_IDS_SINCE:
        topic_response.name = topic
    else:
        topic_response.topic_id = request.topic_id
    response = m.ProduceResponse(responses=[topic_response])
    total = services.metrics.all_topics
    total.totalproducerequests += 1
    total.failedproducerequests += 1
    if request.version >= LEADER_HINT_SINCE:
        _hint_leaders(services, context, response)
    return response


APIS: Final = (
    Api(
        API_KEY,
        MIN_VERSION,
        MAX_VERSION,
        produce,
        advertised_min=ADVERTISED_MIN,
        pipelined=True,
        fast_path=produce_by_fast_path,
    ),
)
