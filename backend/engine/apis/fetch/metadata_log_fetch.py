"""Fetch (1) on a controller's listener: `__cluster_metadata` for voters, brokers and tools (KIP-595, KIP-630).

Kafka: `ControllerApis.handleFetch`, `KafkaRaftClient.handleFetchRequest`.
"""

from __future__ import annotations

from typing import Final, Protocol

from backend.engine.apis.api_declaration import CONTROLLER, Api, RequestContext
from backend.engine.controller.quorum_controller import Controller
from backend.engine.ports import Ports
from backend.engine.raft.leader_fetch import decide, has_records, requested_partition, response_of
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 1
# Of one answer, whatever the other side allows: the largest batch that a command writes fits.
RESPONSE_BYTES_MAX: Final = 8 << 20
# Since this version a request says how far its sender knows the log to be committed (KIP-1166).
HIGH_WATERMARK_SINCE: Final = 18


class MetadataLogFetchServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    cluster_id: str
    ports: Ports
    controller: Controller | None


async def fetch_metadata_log(
    services: MetadataLogFetchServices, context: RequestContext, request: m.FetchRequest
) -> m.FetchResponse:
    """A voter gets all that the leader has, anybody else what is committed; both wait for news within their time.

    A voter that does not count is served as anybody else: its disk is new, or older than it was.
    """
    controller = services.controller
    if controller is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Node {services.node_id} has no controller role")
    raft, log, version = controller.raft, controller.log, context.api_version
    requested = requested_partition(request, version, services.cluster_id)
    if isinstance(requested, ErrorCode):
        return m.FetchResponse(error_code=requested)
    replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
    if replica_id == services.node_id and replica_id in raft.voters:
        return m.FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    result = decide(requested, raft.view(), log.end_offset_for_epoch)
    if has_records(result):
        offset, epoch = requested.fetch_offset, raft.epoch
        directory_id = bytes(requested.replica_directory_id)
        fetched = raft.voter_fetch(replica_id, offset, directory_id)
        now_ms = services.ports.clock.time_ms()
        if replica_id in raft.voters:
            await raft.voter_fetched(replica_id, fetched)
        votes = raft.counts(replica_id, fetched)
        if votes:
            raft.voter_seen(replica_id, directory_id, offset, now_ms)
        else:
            raft.observers.note(replica_id, directory_id, offset, log.high_watermark, now_ms)
        known_watermark = requested.high_watermark if version >= HIGH_WATERMARK_SINCE and votes else log.high_watermark

        def news() -> bool:
            if not raft.leads(epoch):
                return True
            return (
                votes and (log.end_offset > offset or log.high_watermark > known_watermark)
            ) or log.high_watermark > offset

        await log.wait_until(news, request.max_wait_ms)
        result = decide(requested, raft.view(), log.end_offset_for_epoch)
        up_to = log.end_offset if votes else log.high_watermark
        if has_records(result) and up_to > offset:
            result.records = log.read(offset, min(request.max_bytes, RESPONSE_BYTES_MAX), up_to)
    return response_of(result, version, _endpoint(controller, context))


def _endpoint(controller: Controller, context: RequestContext) -> m.FetchResponse.NodeEndpoints:
    host, port = controller.leader_address(context.listener_name)
    return m.FetchResponse.NodeEndpoints(node_id=controller.raft.leader_id, host=host, port=port, rack=None)


APIS: Final = (Api(API_KEY, 4, 18, fetch_metadata_log, CONTROLLER),)
