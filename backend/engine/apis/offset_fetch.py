"""OffsetFetch (9), versions 1-10: the positions a group has committed.

Many groups at once from version 8 (KIP-709); topics by id in version 10 (KIP-848). A partition without a position is
answered -1. Null topics ask for all. With `require_stable` a partition for which a transaction is open is answered
UNSTABLE_OFFSET_COMMIT (KIP-447).
Kafka: `KafkaApis.handleOffsetFetchRequest`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol, TypeVar

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.apis.support.response_budget import ResponseBudget
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.coordinator.group.group_coordinator import GroupCoordinator
from backend.engine.coordinator.group.group_records import CommittedOffset
from backend.engine.ports.time_slices import Steps
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.tiering.ids import ZERO_UUID, TopicPartition

API_KEY: Final = 9
MIN_VERSION: Final = 1
MAX_VERSION: Final = 10
FIRST_TOP_LEVEL_ERROR: Final = 2
FIRST_BATCHED: Final = 8
FIRST_BY_ID: Final = 10
NO_OFFSET: Final = -1
# A row without its metadata, which has up to offset.metadata.max.bytes, 4 kB.
ROW_BYTES: Final = 20

_Group = m.OffsetFetchResponse.Groups
_Topic = m.OffsetFetchResponse.Topics
Offsets = Mapping[TopicPartition, CommittedOffset]
_PartitionRow = TypeVar("_PartitionRow", _Topic.Partitions, _Group.Topics.Partitions)


class OffsetFetchServices(Protocol):
    """The parts of the node that these functions use."""

    metadata: MetadataCache
    group_coordinator: GroupCoordinator


def offset_fetch(
    services: OffsetFetchServices, context: RequestContext, request: m.OffsetFetchRequest
) -> Steps[m.OffsetFetchResponse]:
    """Offsets of one group or of many."""
    if context.api_version < FIRST_BATCHED:
        return (yield from _single(services, context, request))
    response = m.OffsetFetchResponse()
    room = ResponseBudget()
    everything: set[str] = set()
    for group in request.groups:
        yield
        if group.topics is None:
            # All offsets of a group are answered once, however often the request names the group.
            if group.group_id in everything:
                continue
            everything.add(group.group_id)
        response.groups.append((yield from _group(services, context, group, request.require_stable, room)))
    return response


def _single(
    services: OffsetFetchServices, context: RequestContext, request: m.OffsetFetchRequest
) -> Steps[m.OffsetFetchResponse]:
    unstable: Collection[TopicPartition] = ()
    try:
        offsets, error = services.group_coordinator.offsets.of(request.group_id), ErrorCode.NONE
        if request.require_stable:
            unstable = services.group_coordinator.offsets.unstable_partitions(request.group_id)
    except KafkaError as refused:
        offsets, error = {}, refused.code
        if context.api_version >= FIRST_TOP_LEVEL_ERROR:
            return m.OffsetFetchResponse(error_code=error)
    topics = [(topic.name, topic.partition_indexes) for topic in request.topics or ()]
    ids = services.metadata.image.topic_ids
    response = m.OffsetFetchResponse()
    room = ResponseBudget()
    for name, each in _all(offsets) if request.topics is None else topics:
        result = _Topic(name=name)
        response.topics.append(result)
        for at in each:
            yield
            result.partitions.append(
                _unstable(_Topic.Partitions, at)
                if TopicPartition(name, at) in unstable
                else _row(_Topic.Partitions, _committed_row(offsets, name, at, ids), at, error)
            )
            room.reserve(_size(result.partitions[-1]))
    return response


def _all(offsets: Offsets) -> list[tuple[str, list[int]]]:
    indexes_by_topic: dict[str, list[int]] = {}
    for partition in sorted(offsets):
        indexes_by_topic.setdefault(partition.topic, []).append(partition.partition)
    return list(indexes_by_topic.items())


def _committed_row(offsets: Offsets, topic: str, index: int, ids: Mapping[str, bytes]) -> CommittedOffset | None:
    committed = offsets.get(TopicPartition(topic, index))
    # An offset that was committed for a deleted topic of the same name says nothing about this one.
    if committed is not None and committed.topic_id not in (ZERO_UUID, ids.get(topic, committed.topic_id)):
        return None
    return committed


def _row(kind: type[_PartitionRow], committed: CommittedOffset | None, index: int, error: ErrorCode) -> _PartitionRow:
    if committed is None:
        return kind(
            partition_index=index, committed_offset=NO_OFFSET, committed_leader_epoch=-1, metadata="", error_code=error
        )
    return kind(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _size(row: _Topic.Partitions | _Group.Topics.Partitions) -> int:
    return ROW_BYTES + len(row.metadata or "")


def _unstable(kind: type[_PartitionRow], index: int) -> _PartitionRow:
    return _row(kind, None, index, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _group(
    services: OffsetFetchServices,
    context: RequestContext,
    group_request: m.OffsetFetchRequest.Groups,
    stable: bool,
    room: ResponseBudget,
) -> Steps[_Group]:
    unstable: Collection[TopicPartition] = ()
    try:
        offsets = services.group_coordinator.offsets.of(
            group_request.group_id, group_request.member_id, group_request.member_epoch
        )
        if stable:
            unstable = services.group_coordinator.offsets.unstable_partitions(group_request.group_id)
    except KafkaError as refused:
        return _Group(group_id=group_request.group_id, error_code=refused.code)
    image, by_id = services.metadata.image, context.api_version >= FIRST_BY_ID
    result = _Group(group_id=group_request.group_id)
    for topic_id, name, indexes in _topics_of_group(services, group_request, offsets, by_id):
        error = ErrorCode.NONE if name is not None else ErrorCode.UNKNOWN_TOPIC_ID
        rows = []
        for at in indexes:
            yield
            rows.append(
                _unstable(_Group.Topics.Partitions, at)
                if TopicPartition(name or "", at) in unstable
                else _row(_Group.Topics.Partitions, _committed_row(offsets, name or "", at, image.topic_ids), at, error)
            )
            room.reserve(_size(rows[-1]))
        shown = "" if by_id or name is None else name
        result.topics.append(_Group.Topics(topic_id=topic_id, name=shown, partitions=rows))
    return result


def _topics_of_group(
    services: OffsetFetchServices, group_request: m.OffsetFetchRequest.Groups, offsets: Offsets, by_id: bool
) -> list[tuple[bytes, str | None, list[int]]]:
    """(topic id, name, partitions); no name for an id that there is not."""
    image = services.metadata.image
    if group_request.topics is None:
        # A topic that is gone has no id to answer with.
        everything = [(name, at) for name, at in _all(offsets) if not by_id or name in image.topic_ids]
        return [(image.topic_ids.get(name, ZERO_UUID), name, at) for name, at in everything]
    if not by_id:
        return [(ZERO_UUID, topic.name, topic.partition_indexes) for topic in group_request.topics]
    topics = [(bytes(topic.topic_id), topic.partition_indexes) for topic in group_request.topics]
    return [
        (topic_id, topic_image.name if (topic_image := image.topics.get(topic_id)) else None, at)
        for topic_id, at in topics
    ]


def on_error(request: m.OffsetFetchRequest, version: int, code: int, message: str) -> m.OffsetFetchResponse:
    """The error where the version has a place for it: of each group, of all, of each partition."""
    if version >= FIRST_BATCHED:
        groups = dict.fromkeys(group.group_id for group in request.groups)
        return m.OffsetFetchResponse(groups=[_Group(group_id=group_id, error_code=code) for group_id in groups])
    if version >= FIRST_TOP_LEVEL_ERROR:
        return m.OffsetFetchResponse(error_code=code)
    row = _Topic.Partitions
    return m.OffsetFetchResponse(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    row(partition_index=at, committed_offset=NO_OFFSET, metadata="", error_code=code)
                    for at in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, offset_fetch, on_error=on_error),)
