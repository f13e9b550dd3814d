"""The fast path of Produce: one batch to one partition, without message objects (decision 0009)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from backend.engine.apis.api_declaration import Deferred, RequestContext
from backend.engine.apis.produce.produce_append import INLINE_BYTES_MAX, may_be_large
from backend.engine.apis.produce.produce_rows import (
    ALL,
    API_KEY,
    LEADER_HINT_SINCE,
    ProduceServices,
    count_appended,
    hint_leaders,
    log_start_beside,
    not_appended,
    topic_name,
)
from backend.engine.common.topic_names import INTERNAL_TOPICS
from backend.engine.log.log_appender import AppendInfo
from backend.engine.ports import tasks
from backend.engine.replica.partition import Partition
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
        name = topic_name(services, request.topic_id)
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
    count_appended(services.metrics, name, info)
    if request.acks == ALL:
        return _when_acknowledged_on_fast_path(services, request, partition, info)
    return (encode_single_batch(request, info.first_offset, info.log_append_time_ms, info.log_start_offset),)


def _header(request: SingleBatchProduce) -> RequestHeader:
    return RequestHeader(API_KEY, request.version, request.correlation_id, request.client_id)


def _when_acknowledged_on_fast_path(
    services: ProduceServices, request: SingleBatchProduce, partition: Partition, info: AppendInfo
) -> Sequence[Chunk] | Deferred:
    """As `produce` waits, for one batch."""
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
    row = not_appended(services, context, topic, request.partition, request.records, error)
    row.log_start_offset = log_start_beside(partition, error)
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
        hint_leaders(services, context, response)
    return response
