"""ListOffsets (2), versions 1-11: offsets by name (-1 … -6) and by timestamp (KIP-79, 405, 734, 1005, 1023).

A timestamp on a tiered partition is looked for in the remote tier without holding anything else up (KIP-1075): the
response waits for all partitions, at most for the request's TimeoutMs (version 10) or, when that is not above 0,
`remote.list.offsets.request.timeout.ms`. The other names never need the tier, not even -3: the largest timestamp is
that of local records only, and unknown when everything is tiered.
Versions: 4 leader epochs, 7 MAX_TIMESTAMP, 8 EARLIEST_LOCAL, 9 LATEST_TIERED, 10 time-out,
11 EARLIEST_PENDING_UPLOAD.
Kafka: `KafkaApis.handleListOffsetRequest`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.ports import tasks
from backend.engine.ports.time_slices import Steps
from backend.engine.replica import offset_lookup
from backend.engine.replica.offset_lookup import OffsetQuery, OffsetResult
from backend.engine.replica.partition import Partition
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 2
MIN_VERSION: Final = 1
MAX_VERSION: Final = 11
# Before this version clients know LEADER_NOT_AVAILABLE only.
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
ISOLATION_LEVEL_MAX: Final = 1

_PartitionResponse = m.ListOffsetsResponse.Topics.Partitions
_PartitionQuery = m.ListOffsetsRequest.Topics.Partitions
# A row that waits for a search of the remote tier.
_Search = tuple[_PartitionResponse, Partition, OffsetQuery]


class ListOffsetsServices(Protocol):
    """The parts of the node that these functions use."""

    replica_manager: ReplicaManager


def list_offsets(
    services: ListOffsetsServices, context: RequestContext, request: m.ListOffsetsRequest
) -> Steps[m.ListOffsetsResponse | tasks.Future[m.ListOffsetsResponse]]:
    """Answers at once unless a partition has to be searched in the remote tier."""
    if not 0 <= request.isolation_level <= ISOLATION_LEVEL_MAX:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {request.isolation_level}; use 0 or 1"
        )
    response = m.ListOffsetsResponse()
    searches: list[_Search] = []
    query_of = _Queries(services, request)
    for topic in request.topics:
        topic_response = m.ListOffsetsResponse.Topics(name=topic.name)
        response.topics.append(topic_response)
        asked_of = {part.partition_index: part for part in topic.partitions}
        # Rarely anything is asked for twice, so it is only then looked for.
        twice = _named_twice(topic.partitions) if len(asked_of) < len(topic.partitions) else frozenset()
        yield
        for index, part in asked_of.items():
            yield
            row = _PartitionResponse(partition_index=index)
            topic_response.partitions.append(row)
            if index in twice:
                row.error_code = ErrorCode.INVALID_REQUEST
            else:
                search = _response(services, context, query_of(part), topic.name, row)
                if search is not None:
                    searches.append(search)
    if not searches:
        return response
    answered: tasks.Future[m.ListOffsetsResponse] = tasks.future()

    def respond(outcomes: list[OffsetResult | KafkaError]) -> None:
        for (row, _, _), outcome in zip(searches, outcomes, strict=True):
            if isinstance(outcome, KafkaError):
                _refuse(row, outcome, context.api_version)
            else:
                _fill(row, outcome)
        if not answered.done():
            answered.set_result(response)

    timeout_ms = request.timeout_ms if request.timeout_ms > 0 else None
    queries = [(partition, query) for _, partition, query in searches]
    services.replica_manager.search_offsets(queries, timeout_ms, respond)
    return answered


def _named_twice(partitions: list[_PartitionQuery]) -> frozenset[int]:
    counts = Counter(part.partition_index for part in partitions)
    return frozenset(index for index, count in counts.items() if count > 1)


class _Queries:
    """The query for each partition. For thousands it is nearly always the same: made once."""

    def __init__(self, services: ListOffsetsServices, request: m.ListOffsetsRequest) -> None:
        self._request = request
        self._kafka_compat = services.replica_manager.config.follower_fetch_tiered_compat == "kafka"
        self._last: OffsetQuery | None = None

    def __call__(self, part: _PartitionQuery) -> OffsetQuery:
        last = self._last
        if last is None or last.timestamp != part.timestamp or last.current_leader_epoch != part.current_leader_epoch:
            request = self._request
            self._last = last = OffsetQuery(
                part.timestamp,
                request.replica_id,
                request.isolation_level,
                part.current_leader_epoch,
                kafka_compat=self._kafka_compat,
            )
        return last


def _response(
    services: ListOffsetsServices, context: RequestContext, query: OffsetQuery, topic: str, row: _PartitionResponse
) -> _Search | None:
    """Fills the row, or says what has to be searched for it."""
    version = context.api_version
    replicas = services.replica_manager
    if not offset_lookup.is_known(query.timestamp, version):
        row.error_code = ErrorCode.UNSUPPORTED_VERSION
        return None
    try:
        partition = replicas.partition(topic, row.partition_index)
        if replicas.remote_logs is not None and offset_lookup.needs_remote(partition, query):
            offset_lookup.check(partition, query)
            return row, partition, query
        _fill(row, offset_lookup.look_up(partition, query))
    except KafkaError as error:
        _refuse(row, error, version)
    return None


def _fill(row: _PartitionResponse, result: OffsetResult) -> None:
    row.error_code = ErrorCode.NONE
    row.offset, row.timestamp, row.leader_epoch = result.offset, result.timestamp, result.leader_epoch


def _refuse(row: _PartitionResponse, error: KafkaError, version: int) -> None:
    late = error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_SINCE
    row.error_code = ErrorCode.LEADER_NOT_AVAILABLE if late else error.code


def _refuse_all(request: m.ListOffsetsRequest, api_version: int, code: int, text: str) -> m.ListOffsetsResponse:
    """This response has no place for one error of the whole request."""
    topics = m.ListOffsetsResponse.Topics
    return m.ListOffsetsResponse(
        topics=[
            topics(
                name=topic.name,
                partitions=[
                    _PartitionResponse(partition_index=part.partition_index, error_code=code)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, list_offsets, on_error=_refuse_all),)
