"""Fetch (1) on a controller's listener: `__cluster_metadata` for brokers and standby controllers (KIP-595)."""

from __future__ import annotations

from typing import Final

from backend.engine.apis.context import CONTROLLER, Api, RequestContext
from backend.engine.apis.services import Services
from backend.engine.controller.driver import Controller
from backend.engine.raft.fetch import LogView, asked_partition, decide, is_diverging, response_of
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

API_KEY: Final = 1
# Of one answer, whatever the other side allows: the largest batch that a command writes fits.
ANSWER_BYTES_MAX: Final = 8 << 20


async def fetch_metadata_log(services: Services, context: RequestContext, request: m.FetchRequest) -> m.FetchResponse:
    """Records from the offset up to the high watermark, or as soon as there are some within the time to wait."""
    controller = services.controller
    if controller is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Node {services.node_id} has no controller role")
    log, version = controller.log, context.api_version
    asked = asked_partition(request, version, services.cluster_id)
    if isinstance(asked, ErrorCode):
        return m.FetchResponse(error_code=asked)
    view = LogView(log.leader_id, log.epoch, log.start_offset, log.end_offset, log.high_watermark)
    answer = decide(asked, view, log.end_offset_for_epoch)
    if not answer.error_code and not is_diverging(answer):
        replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
        controller.fetched_up_to(replica_id, asked.fetch_offset)
        log.observers.note(
            replica_id,
            bytes(asked.replica_directory_id),
            asked.fetch_offset,
            log.high_watermark,
            services.ports.clock.time_ms(),
        )
        await log.wait_above(asked.fetch_offset, request.max_wait_ms)
        answer.high_watermark = log.high_watermark
        if log.high_watermark > asked.fetch_offset:
            answer.records = log.read(asked.fetch_offset, min(request.max_bytes, ANSWER_BYTES_MAX))
    return response_of(answer, version, _endpoint(controller, context))


def _endpoint(controller: Controller, context: RequestContext) -> m.FetchResponse.NodeEndpoints:
    leader = controller.image.controllers.get(controller.log.leader_id)
    endpoint = next((one for one in leader.endpoints if one.name == context.listener_name), None) if leader else None
    return m.FetchResponse.NodeEndpoints(
        node_id=controller.log.leader_id,
        host=endpoint.host if endpoint else "",
        port=endpoint.port if endpoint else 0,
        rack=None,
    )


APIS: Final = (Api(API_KEY, 4, 18, fetch_metadata_log, CONTROLLER),)
