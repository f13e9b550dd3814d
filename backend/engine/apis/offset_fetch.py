"""OffsetFetch (9), versions 1-10: the positions a group has committed.

Many groups at once from version 8 (KIP-709); topics by id in version 10 (KIP-848). A partition without a position is
answered -1. Null topics ask for all. There are no pending transactional offsets, so `require_stable` always holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from backend.engine.apis.context import Api, RequestContext
from backend.engine.apis.services import Services
from backend.engine.coordinator.group_records import CommittedOffset
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

_Group = m.OffsetFetchResponse.Groups
_Topic = m.OffsetFetchResponse.Topics
Offsets = Mapping[TopicPartition, CommittedOffset]
Row = TypeVar("Row", _Topic.Partitions, _Group.Topics.Partitions)


def offset_fetch(services: Services, context: RequestContext, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
    """Offsets of one group or of many."""
    if context.api_version >= FIRST_BATCHED:
        return m.OffsetFetchResponse(groups=[_group(services, context, group) for group in request.groups])
    return _single(services, context, request)


def _single(services: Services, context: RequestContext, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
    try:
        offsets, error = services.group_coordinator.offsets(request.group_id), ErrorCode.NONE
    except KafkaError as refused:
        offsets, error = {}, refused.code
        if context.api_version >= FIRST_TOP_LEVEL_ERROR:
            return m.OffsetFetchResponse(error_code=error)
    wanted = _all(offsets) if request.topics is None else [(t.name, t.partition_indexes) for t in request.topics]
    return m.OffsetFetchResponse(
        topics=[
            _Topic(name=name, partitions=[_row(_Topic.Partitions, offsets, name, at, error) for at in indexes])
            for name, indexes in wanted
        ]
    )


def _all(offsets: Offsets) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, []).append(partition.partition)
    return list(found.items())


def _row(kind: type[Row], offsets: Offsets, topic: str, index: int, error: ErrorCode) -> Row:
    found = offsets.get(TopicPartition(topic, index))
    if found is None:
        return kind(
            partition_index=index, committed_offset=NO_OFFSET, committed_leader_epoch=-1, metadata="", error_code=error
        )
    return kind(
        partition_index=index,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


def _group(services: Services, context: RequestContext, asked: m.OffsetFetchRequest.Groups) -> _Group:
    try:
        offsets = services.group_coordinator.offsets(asked.group_id)
    except KafkaError as refused:
        return _Group(group_id=asked.group_id, error_code=refused.code)
    by_id = context.api_version >= FIRST_BY_ID
    if asked.topics is None:
        wanted: Iterable[tuple[bytes, str | None, list[int]]] = _all_with_ids(services, offsets, by_id)
    else:
        wanted = [_named(services, topic, by_id) for topic in asked.topics]
    return _Group(group_id=asked.group_id, topics=[_topic(offsets, *one, by_id=by_id) for one in wanted])


def _all_with_ids(services: Services, offsets: Offsets, by_id: bool) -> list[tuple[bytes, str | None, list[int]]]:
    ids = services.metadata.image.topic_ids
    # A topic that is gone has no id to answer with.
    return [(ids.get(name, ZERO_UUID), name, at) for name, at in _all(offsets) if not by_id or name in ids]


def _named(
    services: Services, topic: m.OffsetFetchRequest.Groups.Topics, by_id: bool
) -> tuple[bytes, str | None, list[int]]:
    if not by_id:
        return ZERO_UUID, topic.name, topic.partition_indexes
    found = services.metadata.image.topics.get(bytes(topic.topic_id))
    return bytes(topic.topic_id), None if found is None else found.name, topic.partition_indexes


def _topic(offsets: Offsets, topic_id: bytes, name: str | None, indexes: list[int], *, by_id: bool) -> _Group.Topics:
    error = ErrorCode.NONE if name is not None else ErrorCode.UNKNOWN_TOPIC_ID
    rows = [_row(_Group.Topics.Partitions, offsets, name or "", index, error) for index in indexes]
    return _Group.Topics(topic_id=topic_id, name="" if by_id else (name or ""), partitions=rows)


APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, offset_fetch),)
