"""Fetch (1), versions 4-18: records of local and tiered partitions for consumers and followers.

KIP-227 sessions (`fetch_session`), KIP-320 fencing, KIP-405 (109 for followers, remote reads for consumers), KIP-516
topic ids, KIP-392 preferred read replicas, KIP-595 divergence in the response, KIP-951 leader hints, KIP-1166 known
high watermark. Consumers' bytes are held to their quotas (`quotas`).
Versions: 7 sessions, 9 leader epochs, 11 preferred read replicas, 12 divergence, 13 topic ids, 15 the follower's broker
epoch, 16 leader hints, 17 directory ids, 18 the known high watermark.
Kafka: `KafkaApis.handleFetchRequest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from backend.engine.apis.api_declaration import Api, RequestContext
from backend.engine.apis.fetch.fetch_session_cache import (
    NO_SESSION,
    TOPIC_IDS_SINCE,
    CachedPartition,
    FetchContext,
    FetchSessionCache,
)
from backend.engine.apis.quotas.client_quota_manager import ClientQuotaManager
from backend.engine.apis.support.leader_hint import leader_hint
from backend.engine.config import BrokerConfig
from backend.engine.controller.metadata.metadata_cache import MetadataCache
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import Ports, tasks
from backend.engine.replica.fetch_data import CONSUMER, FetchData, FetchParams, Isolation
from backend.engine.replica.purgatory import DelayedFetch, PartitionRequest
from backend.engine.replica.replica_manager import ReplicaManager
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.tiering.ids import TopicPartition

API_KEY: Final = 1
MIN_VERSION: Final = 4
MAX_VERSION: Final = 18
# Followers name themselves in a separate field.
REPLICA_STATE_SINCE: Final = 15
# Consumers that can find another replica by themselves (KIP-392); older ones must stay with the leader.
ANY_REPLICA_SINCE: Final = 11
LEADER_HINT_SINCE: Final = 16
# Bytes that count against a quota beside the records: those of an answer's frame, and of one partition in it (version
# 12: 27, and 55 with its topic; a quota is about records, so their exact number does not matter).
RESPONSE_BYTES: Final = 27
PARTITION_BYTES: Final = 55

_HINTED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
# Found by looking the topic up, not by reading it: Kafka answers these with an empty list of aborted transactions.
_LOOKUP_ERRORS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_PartitionResponse = m.FetchResponse.Responses.Partitions


class FetchServices(Protocol):
    """The parts of the node that these functions use."""

    config: BrokerConfig
    ports: Ports
    metadata: MetadataCache
    replica_manager: ReplicaManager
    metrics: BrokerMetrics
    fetch_sessions: FetchSessionCache
    client_quotas: ClientQuotaManager


def fetch(
    services: FetchServices, context: RequestContext, request: m.FetchRequest
) -> m.FetchResponse | tasks.Future[m.FetchResponse]:
    """Answers at once when there is enough, else as soon as there is or the client's time is up."""
    version = context.api_version
    by_id = version >= TOPIC_IDS_SINCE
    params = _params(services, context, request)
    now_ms = services.ports.clock.monotonic_ms()
    fetch_context = services.fetch_sessions.context(request, version, now_ms=now_ms)
    replicas = services.replica_manager
    find = replicas.find_by_id if by_id else replicas.find
    # `by_id` has chosen both the question and its kind of name.
    requests: list[PartitionRequest] = [
        (find(entry.topic_id if by_id else entry.topic, entry.index), entry.spec)  # type: ignore[arg-type]  # as said
        for entry in fetch_context.entries
    ]

    def waits(waiting: DelayedFetch) -> None:
        if fetch_context.session is not None:
            fetch_context.session.begin_wait(fetch_context, waiting)

    respond = partial(_respond, services, context, params, fetch_context, requests)
    more_may_join = fetch_context.session is not None and bool(fetch_context.session.idle)
    return replicas.reads.fetch(params, requests, respond, waits, more_may_join=more_may_join)


def _params(services: FetchServices, context: RequestContext, request: m.FetchRequest) -> FetchParams:
    version = context.api_version
    with_state = version >= REPLICA_STATE_SINCE
    replica_id = request.replica_state.replica_id if with_state else request.replica_id
    bytes_max = min(request.max_bytes, services.config.fetch_max_bytes)
    image = services.metadata.image
    if image.client_quotas and replica_id < 0:
        limit = services.client_quotas.fetch_bytes_max(image, context.user, context.client_id)
        bytes_max = bytes_max if limit is None else min(bytes_max, limit)
    return FetchParams(
        replica_id=replica_id,
        replica_epoch=request.replica_state.replica_epoch if with_state else -1,
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, bytes_max),
        max_bytes=bytes_max,
        isolation=Isolation.of(replica_id, request.isolation_level),
        wants_leader=replica_id >= 0 or (replica_id == CONSUMER and version < ANY_REPLICA_SINCE),
        client_rack=request.rack_id if replica_id == CONSUMER and version >= ANY_REPLICA_SINCE else "",
        listener_name=context.listener_name,
    )


def _respond(
    services: FetchServices,
    context: RequestContext,
    params: FetchParams,
    fetch_context: FetchContext,
    requests: Sequence[PartitionRequest],
    results: list[FetchData],
) -> m.FetchResponse:
    version = context.api_version
    if services.metadata.image.client_quotas and not params.from_follower:
        throttled = _throttled(services, context, fetch_context, results)
        if throttled is not None:
            return throttled
    session_id, pairs = services.fetch_sessions.response(
        fetch_context,
        results,
        slots=services.config.max_incremental_fetch_session_cache_slots,
        replica_id=params.replica_id,
        uses_topic_ids=version >= TOPIC_IDS_SINCE,
        random=services.ports.random,
        now_ms=services.ports.clock.monotonic_ms(),
    )
    if fetch_context.session is not None and params.from_follower:
        fetch_context.session.park_idle(fetch_context, requests, results, params)
    response = m.FetchResponse(session_id=session_id, responses=_topics(pairs))
    _count(services, params, pairs)
    if version >= LEADER_HINT_SINCE:
        _hint_leaders(services, context, params, pairs, response)
    return response


def _throttled(
    services: FetchServices, context: RequestContext, fetch_context: FetchContext, results: list[FetchData]
) -> m.FetchResponse | None:
    """An empty answer instead of one that would take more than the client's quota; its session stays as it is."""
    quotas, image = services.client_quotas, services.metadata.image
    now_ms = services.ports.clock.monotonic_ms()
    session = fetch_context.session
    size = RESPONSE_BYTES + sum(
        PARTITION_BYTES + len(data.records)
        for entry, data in zip(fetch_context.entries, results, strict=True)
        if session is None or entry.has_changed(data, remember=False)
    )
    user, client_id = context.user, context.client_id
    throttle_ms = quotas.record_bytes(image, "consumer_byte_rate", user, client_id, size, now_ms)
    if not throttle_ms:
        return None
    quotas.refund_bytes(image, "consumer_byte_rate", user, client_id, size, now_ms)
    if session is not None:
        session.end_wait()
    return m.FetchResponse(throttle_time_ms=throttle_ms, session_id=NO_SESSION if session is None else session.id)


def _topics(pairs: Sequence[tuple[CachedPartition, FetchData]]) -> list[m.FetchResponse.Responses]:
    topics: list[m.FetchResponse.Responses] = []
    last: m.FetchResponse.Responses | None = None
    for entry, data in pairs:
        if last is None or last.topic_id != entry.topic_id or last.topic != entry.topic:
            last = m.FetchResponse.Responses(topic_id=entry.topic_id, topic=entry.topic)
            topics.append(last)
        last.partitions.append(_row(entry, data))
    return topics


def _row(entry: CachedPartition, data: FetchData) -> _PartitionResponse:
    aborted = data.aborted
    row = _PartitionResponse(
        partition_index=entry.index,
        error_code=data.error,
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=data.log_start_offset,
        aborted_transactions=None
        if aborted is None and data.error not in _LOOKUP_ERRORS
        else [
            _PartitionResponse.AbortedTransactions(
                producer_id=transaction.producer_id, first_offset=transaction.first_offset
            )
            for transaction in aborted or ()
        ],
        preferred_read_replica=data.preferred_replica,
        records=data.records,
    )
    if data.diverging is not None:
        row.diverging_epoch = _PartitionResponse.DivergingEpoch(
            epoch=data.diverging.epoch, end_offset=data.diverging.end_offset
        )
    return row


def _count(services: FetchServices, params: FetchParams, pairs: Sequence[tuple[CachedPartition, FetchData]]) -> None:
    total = services.metrics.all_topics
    total.totalfetchrequests += 1
    size = sum(len(data.records) for _, data in pairs)
    if params.from_follower:
        total.replicationbytesout += size
        if services.replica_manager.leader_quota.active:
            _count_throttled(services, pairs)
    else:
        total.bytesout += size


def _count_throttled(services: FetchServices, pairs: Sequence[tuple[CachedPartition, FetchData]]) -> None:
    services.replica_manager.count_response_to_follower()
    topics = services.metadata.image.topics
    for entry, data in pairs:
        if data.records:
            topic = topics.get(entry.topic_id)
            name = entry.topic if topic is None else topic.name
            services.replica_manager.count_sent_to_follower(TopicPartition(name, entry.index), len(data.records))


def _hint_leaders(
    services: FetchServices,
    context: RequestContext,
    params: FetchParams,
    pairs: Sequence[tuple[CachedPartition, FetchData]],
    response: m.FetchResponse,
) -> None:
    """Adds the leader of each partition for clients that came to the wrong broker."""
    refused = [(entry, data) for entry, data in pairs if data.error in _HINTED]
    if not refused:
        return
    rows = {(topic.topic_id, row.partition_index): row for topic in response.responses for row in topic.partitions}
    nodes: dict[int, m.FetchResponse.NodeEndpoints] = {}
    for entry, _ in refused:
        topic = services.metadata.image.topics.get(entry.topic_id)
        if topic is None:
            continue
        hint = leader_hint(services, context, topic.name, entry.index)
        rows[(entry.topic_id, entry.index)].current_leader = _PartitionResponse.CurrentLeader(
            leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
        )
        # A follower has every broker's address from metadata.
        if hint.host is not None and not params.from_follower:
            nodes[hint.leader_id] = m.FetchResponse.NodeEndpoints(
                node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack
            )
    response.node_endpoints = list(nodes.values())


def _is_followers(request: m.FetchRequest) -> bool:
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0


# A follower sends a second Fetch when it has something new while the first one waits. The answers to a consumer, of up
# to fetch.max.bytes each, are made one at a time, as in Kafka: so many remote records may wait in memory to be sent.
APIS: Final = (Api(API_KEY, MIN_VERSION, MAX_VERSION, fetch, pipelined=_is_followers),)
