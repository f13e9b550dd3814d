"""Vote (52), BeginQuorumEpoch (53) and EndQuorumEpoch (54) between the voters of the metadata quorum (KIP-595).

Kafka: `KafkaRaftClient.handleVoteRequest`, `handleBeginQuorumEpochRequest`, `handleEndQuorumEpochRequest`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from backend.engine.apis.api_declaration import CONTROLLER, Api, RequestContext
from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC
from backend.engine.controller.quorum_controller import Controller
from backend.engine.raft import election as q
from backend.engine.raft.quorum_state import NO_DIRECTORY
from backend.engine.raft.raft_node import RaftNode
from backend.engine.raft.raft_state import LogEnd, Now, RaftState, ReceivedVote, Transition
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError
from backend.protocol.messages import Message

VOTE_KEY: Final = 52
BEGIN_KEY: Final = 53
END_KEY: Final = 54
R = TypeVar("R", bound=Message)


class QuorumVotesServices(Protocol):
    """The parts of the node that these functions use."""

    node_id: int
    cluster_id: str
    controller: Controller | None


def _requested_partition(services: QuorumVotesServices, request: Any) -> tuple[Controller, Any] | ErrorCode:
    """The one partition of the one topic, or why the whole request is refused."""
    controller = services.controller
    if controller is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Node {services.node_id} has no controller role")
    if request.cluster_id is not None and request.cluster_id != services.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return ErrorCode.INVALID_REQUEST
    requested = request.topics[0].partitions[0]
    if request.topics[0].topic_name != CLUSTER_METADATA_TOPIC or requested.partition_index != 0:
        return ErrorCode.INVALID_REQUEST
    return controller, requested


async def _stepped(raft: RaftNode, change: Callable[[RaftState, Now], tuple[RaftState, ErrorCode]]) -> ErrorCode:
    outcome: list[ErrorCode] = []

    def step(state: RaftState, now: Now) -> Transition:
        state, code = change(state, now)
        outcome.append(code)
        return state, ()

    await raft.step(step)
    return outcome[0]


def _response(response: type[R], controller: Controller, context: RequestContext, code: int, **more: object) -> R:
    """The answer with the leader as this node knows it; its address goes along in the versions that have it."""
    raft, kind = controller.raft, response
    topic: Any = kind.Topics  # type: ignore[attr-defined]  # all three have it
    partition = topic.Partitions(
        partition_index=0, error_code=code, leader_id=raft.leader_id, leader_epoch=raft.epoch, **more
    )
    make: Any = kind
    made: Any = make(topics=[topic(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])])
    if context.api_version >= 1 and raft.leader_id >= 0:
        host, port = controller.leader_address(context.listener_name)
        made.node_endpoints = [kind.NodeEndpoints(node_id=raft.leader_id, host=host, port=port)]  # type: ignore[attr-defined]  # as above
    typed: R = made
    return typed


async def vote(services: QuorumVotesServices, context: RequestContext, request: m.VoteRequest) -> m.VoteResponse:
    """Whether this node votes for the candidate; the promise is on its disk before the answer goes out."""
    target = _requested_partition(services, request)
    if isinstance(target, ErrorCode):
        return m.VoteResponse(error_code=target)
    controller, requested = target
    raft, voter_id = controller.raft, request.voter_id
    if context.api_version >= 1 and voter_id not in (-1, services.node_id):
        return _response(m.VoteResponse, controller, context, ErrorCode.INVALID_VOTER_KEY, vote_granted=False)
    if min(requested.last_offset, requested.last_offset_epoch, requested.replica_epoch) < 0:
        return m.VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
    received = ReceivedVote(
        requested.replica_id,
        requested.replica_epoch,
        LogEnd(requested.last_offset_epoch, requested.last_offset),
        context.api_version >= 2 and requested.pre_vote,
        bytes(requested.voter_directory_id) if context.api_version >= 1 else NO_DIRECTORY,
    )
    granted: list[bool] = []

    def change(state: RaftState, now: Now) -> tuple[RaftState, ErrorCode]:
        state, code, yes = q.handle_vote(state, received, raft.log.end, now)
        granted.append(yes)
        return state, code

    code = await _stepped(raft, change)
    return _response(m.VoteResponse, controller, context, code, vote_granted=granted[0])


async def begin(
    services: QuorumVotesServices, context: RequestContext, request: m.BeginQuorumEpochRequest
) -> m.BeginQuorumEpochResponse:
    """A leader introduces itself."""
    target = _requested_partition(services, request)
    if isinstance(target, ErrorCode):
        return m.BeginQuorumEpochResponse(error_code=target)
    controller, requested = target
    if context.api_version >= 1 and request.voter_id not in (-1, services.node_id):
        return _response(m.BeginQuorumEpochResponse, controller, context, ErrorCode.INVALID_VOTER_KEY)
    code = await _stepped(
        controller.raft,
        lambda state, now: q.handle_begin_quorum_epoch(state, requested.leader_id, requested.leader_epoch, now),
    )
    return _response(m.BeginQuorumEpochResponse, controller, context, code)


async def end(
    services: QuorumVotesServices, context: RequestContext, request: m.EndQuorumEpochRequest
) -> m.EndQuorumEpochResponse:
    """A leader has resigned."""
    target = _requested_partition(services, request)
    if isinstance(target, ErrorCode):
        return m.EndQuorumEpochResponse(error_code=target)
    controller, requested = target
    preferred = (
        tuple(candidate.candidate_id for candidate in requested.preferred_candidates)
        if context.api_version >= 1
        else tuple(requested.preferred_successors)
    )
    code = await _stepped(
        controller.raft,
        lambda state, now: q.handle_end_quorum_epoch(
            state, requested.leader_id, requested.leader_epoch, preferred, now
        ),
    )
    return _response(m.EndQuorumEpochResponse, controller, context, code)


APIS: Final = (
    Api(VOTE_KEY, 0, 2, vote, CONTROLLER),
    Api(BEGIN_KEY, 0, 1, begin, CONTROLLER),
    Api(END_KEY, 0, 1, end, CONTROLLER),
)
