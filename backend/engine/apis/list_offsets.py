"""ListOffsets (2), versions 1-11: offsets by name (-1 … -6) and by timestamp (KIP-79, 405, 734, 1005, 1023).

A timestamp on a tiered partition is looked for in the remote tier without holding anything else up (KIP-1075): the
response waits for all partitions, at most for the request's TimeoutMs or `remote.list.offsets.request.timeout.ms`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from backend.engine.apis.context import Api, RequestContext
from backend.engine.apis.services import Services
from backend.engine.ports import tasks
from backend.engine.remote.rsm import RemoteStorageError
from backend.engine.replica import offset_lookup
from backend.engine.replica.offset_lookup import FoundOffset, Query
from backend.engine.replica.partition import Partition
from backend.engine.replica.remote_logs import RemoteLogs
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 2
MIN_VERSION: Final = 1
MAX_VERSION: Final = 11
# Before this version clients know LEADER_NOT_AVAILABLE only.
OFFSET_NOT_AVAILABLE_SINCE: Final = 5
ISOLATION_LEVEL_MAX: Final = 1

_Row = m.ListOffsetsResponse.Topics.Partitions
_Asked = m.ListOffsetsRequest.Topics.Partitions


def list_offsets(
    services: Services, context: RequestContext, request: m.ListOffsetsRequest
) -> m.ListOffsetsResponse | tasks.Task[m.ListOffsetsResponse]:
    """Answers at once unless a partition has to be searched in the remote tier."""
    if not 0 <= request.isolation_level <= ISOLATION_LEVEL_MAX:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {request.isolation_level}; use 0 or 1"
        )
    response = m.ListOffsetsResponse()
    searches: list[tasks.Task[None]] = []
    for topic in request.topics:
        answers = m.ListOffsetsResponse.Topics(name=topic.name)
        response.topics.append(answers)
        counts = Counter(part.partition_index for part in topic.partitions)
        for index in counts:
            part = next(one for one in topic.partitions if one.partition_index == index)
            row = _Row(partition_index=index)
            answers.partitions.append(row)
            if counts[index] > 1:
                row.error_code = ErrorCode.INVALID_REQUEST
            else:
                search = _answer(services, context, request, topic.name, part, row)
                if search is not None:
                    searches.append(search)
    if not searches:
        return response
    return tasks.start(_when_found(services, request, response, searches), name="ListOffsets in the remote tier")


def _answer(
    services: Services,
    context: RequestContext,
    request: m.ListOffsetsRequest,
    topic: str,
    part: _Asked,
    row: _Row,
) -> tasks.Task[None] | None:
    """Fills the row, or starts the search that will."""
    version = context.api_version
    replicas = services.replica_manager
    if not offset_lookup.is_known(part.timestamp, version):
        row.error_code = ErrorCode.UNSUPPORTED_VERSION
        return None
    query = Query(
        part.timestamp,
        request.replica_id,
        request.isolation_level,
        part.current_leader_epoch,
        kafka_compat=replicas.config.follower_fetch_tiered_compat == "kafka",
    )
    try:
        partition = replicas.partition(topic, part.partition_index)
        remote = replicas.remote_logs
        if remote is not None and offset_lookup.needs_remote(partition, query):
            offset_lookup.check(partition, query)
            row.error_code = ErrorCode.REQUEST_TIMED_OUT
            return tasks.start(_search(remote, partition, query, version, row), name=f"offset by time of {partition}")
        _fill(row, offset_lookup.look_up(partition, query))
    except KafkaError as error:
        _refuse(row, error, version)
    return None


async def _search(remote: RemoteLogs, partition: Partition, query: Query, version: int, row: _Row) -> None:
    epoch = partition.leader_epoch
    try:
        record = await remote.offset_for_timestamp(partition.log, query.timestamp)
        if partition.leader_epoch != epoch:
            offset_lookup.check(partition, query)
        _fill(row, offset_lookup.visible(partition, query, offset_lookup.found_by_timestamp(record)))
    except KafkaError as error:
        _refuse(row, error, version)
    except RemoteStorageError:
        # The remote log manager has logged which object could not be read and why.
        row.error_code = ErrorCode.UNKNOWN_SERVER_ERROR


async def _when_found(
    services: Services,
    request: m.ListOffsetsRequest,
    response: m.ListOffsetsResponse,
    searches: list[tasks.Task[None]],
) -> m.ListOffsetsResponse:
    timeout_ms = request.timeout_ms
    if timeout_ms <= 0:
        timeout_ms = services.replica_manager.config.remote_list_offsets_request_timeout_ms
    try:
        await tasks.wait_for(tasks.gather_settled(searches), timeout_ms)
    except tasks.Timeout:
        # What has not been found keeps REQUEST_TIMED_OUT.
        for search in searches:
            search.cancel()
    return response


def _fill(row: _Row, found: FoundOffset) -> None:
    row.error_code = ErrorCode.NONE
    row.offset, row.timestamp, row.leader_epoch = found.offset, found.timestamp, found.leader_epoch


def _refuse(row: _Row, error: KafkaError, version: int) -> None:
    late = error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_SINCE
    row.error_code = ErrorCode.LEADER_NOT_AVAILABLE if late else error.code


def _refuse_all(request: m.ListOffsetsRequest, api_version: int, code: int, text: str) -> m.ListOffsetsResponse:
    """This response has no place for one error of the whole request."""
    topics = m.ListOffsetsResponse.Topics
    return m.ListOffsetsResponse(
        topics=[
            topics(
                name=topic.name,
                partitions=[_Row(partition_index=part.partition_index, error_code=code) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, list_offsets, on_error=_refuse_all),)
