"""Produce (0), versions 3-13: appends record batches to led partitions.

acks 0 and 1 are answered in the same callback that received them; acks=all waits for the in-sync replicas. KIP-98
idempotence (checked by the log), KIP-467 record errors, KIP-516 topic ids (13), KIP-951 leader hints, KIP-890
confirmation of transactional batches by their coordinator (`produce_verification`).
Versions: 7 zstd, 8 record errors, 10 leader hints, 11 TRANSACTION_ABORTABLE, 12 the leader adds partitions to
transactions, 13 topic ids.
Kafka: `KafkaApis.handleProduceRequest`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from backend.engine.apis.api_declaration import Api, NoAnswer, RequestContext
from backend.engine.apis.produce import produce_verification
from backend.engine.apis.produce.produce_append import (
    ATTRIBUTES_AT,
    RequestCost,
    ValidationWork,
    append_within,
    carry_out,
)
from backend.engine.apis.produce.produce_rows import (
    ALL,
    API_KEY,
    LEADER_HINT_SINCE,
    ProduceServices,
    count_appended,
    hint_leaders,
    log_start_beside,
    not_appended,
    records_of,
    topic_name,
    writable_partition,
)
from backend.engine.apis.produce.repeated_partitions import without_repeats
from backend.engine.apis.produce.single_batch_produce import produce_by_fast_path
from backend.engine.log.validation.produced_batch import ValidatedBatch
from backend.engine.ports import tasks
from backend.engine.replica.partition import Partition
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.produce_fast_path import TOPIC_IDS_SINCE

MIN_VERSION: Final = 3
MAX_VERSION: Final = 13
# Kafka 4 shows 0 for the sake of old librdkafka, and serves 3 and up.
ADVERTISED_MIN: Final = 0
_TRANSACTIONAL_MASK: Final = 0x10
_PartitionResponse = m.ProduceResponse.Responses.PartitionResponses
Required = list[tuple[int, Partition, int]]


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
            name = topic.name if version < TOPIC_IDS_SINCE else topic_name(services, topic.topic_id)
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
            partition = writable_partition(services, context, acks, topic, part.index)
            records = records_of(part, context.api_version)
            if self._unconfirmed and (reason := self._unconfirmed.get(partition.topic_partition)) is not None:
                raise reason
        except KafkaError as error:
            return not_appended(services, context, topic, part.index, part.records, error)
        try:
            info = yield from append_within(services, cost, partition, records, acks)
        except KafkaError as error:
            row = not_appended(services, context, topic, part.index, part.records, error)
            row.log_start_offset = log_start_beside(partition, error)
            return row
        if acks == ALL:
            self._required.append((len(self._rows), partition, info.last_offset + 1))
        count_appended(services.metrics, partition.topic_id_partition.topic, info)
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
                hint_leaders(services, self._context, response)
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
