"""What a node asks of the other voters and tells them: Vote, BeginQuorumEpoch, EndQuorumEpoch (KIP-595, KIP-996)."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from backend.engine.ports import tasks
from backend.engine.raft.metadata_log import TOPIC
from backend.engine.raft.quorum_state import NO_DIRECTORY
from backend.engine.raft.raft_state import RaftRole, RaftState, SendBeginQuorumEpoch, SendEndQuorumEpoch, SendVote
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.messages import Message

if TYPE_CHECKING:
    from backend.engine.raft.raft_node import RaftNode

VOTE_VERSION: Final = 2
BEGIN_VERSION: Final = 1
END_VERSION: Final = 1
# Nobody needs an answer to a vote that is older than an election.
RETRY_PAUSE_MS: Final = 100.0

_log = logging.getLogger(__name__)


class Peer(Protocol):
    """The way to another voter; `net` implements it."""

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        """The answer; KafkaError NETWORK_EXCEPTION or REQUEST_TIMED_OUT, DecodeError."""
        ...


class VoterRequests:
    """Each request is a task of its own: nobody waits for a voter that is away."""

    def __init__(self, node: RaftNode) -> None:
        self._node = node
        self._ballot = 0
        self._sending: set[tasks.Task[None]] = set()

    def carry_out(self, state: RaftState, effect: SendVote | SendBeginQuorumEpoch | SendEndQuorumEpoch) -> None:
        """Sends what a step wants sent."""
        match effect:
            case SendVote(pre_vote):
                self._ballot += 1
                for voter in state.others():
                    self._send(self._ask_for_vote(voter, state.epoch, pre_vote, self._ballot))
            case SendBeginQuorumEpoch(to):
                for voter in to:
                    self._send(self._tell_leader(voter, state.epoch))
            case SendEndQuorumEpoch(epoch, preferred):
                for voter in state.others():
                    self._send(self._tell_end(voter, epoch, preferred))

    def _send(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = tasks.spawn(coroutine, name=f"raft request of node {self._node.node_id}")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def all_sent(self) -> None:
        """Returns once nothing is under way."""
        await tasks.gather_settled(list(self._sending))

    async def cancel(self) -> None:
        """Ends without a word."""
        for task in list(self._sending):
            await tasks.cancel(task)

    async def _ask(self, voter: int, request: Message, version: int) -> Message | None:
        """The answer; None when there was none. A foreign cluster's ends this node, unless it has its place already."""
        timeout_ms = self._node.config.controller_quorum_request_timeout_ms
        try:
            answer = await self._node.peers[voter].send(request, version, timeout_ms=timeout_ms)
        except (KafkaError, DecodeError) as error:
            _log.debug("Node %d got no answer from voter %d: %s", self._node.node_id, voter, error)
            return None
        code = getattr(answer, "error_code", 0)
        if code:
            self._node.refused(voter, code)
            return None
        self._node.joined = True
        return answer

    async def _ask_for_vote(self, voter: int, epoch: int, pre_vote: bool, ballot: int) -> None:
        wanted = RaftRole.PROSPECTIVE if pre_vote else RaftRole.CANDIDATE
        while self._ballot == ballot and self._node.state.role is wanted and self._node.epoch == epoch:
            end = self._node.log.end
            part = m.VoteRequest.Topics.Partitions
            asked = part(
                partition_index=0,
                replica_epoch=epoch,
                replica_id=self._node.node_id,
                replica_directory_id=self._node.directory_id,
                voter_directory_id=self._known(voter),
                last_offset_epoch=end.epoch,
                last_offset=end.offset,
                pre_vote=pre_vote,
            )
            topics = [m.VoteRequest.Topics(topic_name=TOPIC, partitions=[asked])]
            request = m.VoteRequest(cluster_id=self._node.cluster_id, voter_id=voter, topics=topics)
            answer = cast(m.VoteResponse | None, await self._ask(voter, request, VOTE_VERSION))
            if answer is None:
                await tasks.sleep_ms(RETRY_PAUSE_MS)
                continue
            [topic] = answer.topics
            [told] = topic.partitions
            await self._node.observe_epoch(told.leader_epoch, told.leader_id, by_itself=told.leader_id == voter)
            await self._node.vote_answered(
                voter,
                epoch,
                pre_vote=pre_vote,
                granted=told.vote_granted and not told.error_code,
                abstains=told.error_code == ErrorCode.INVALID_VOTER_KEY,
            )
            return

    def _known(self, voter: int) -> bytes:
        """By which directory this node's log knows a voter."""
        return self._node.state.directories.get(voter, NO_DIRECTORY)

    async def _tell_leader(self, voter: int, epoch: int) -> None:
        part = m.BeginQuorumEpochRequest.Topics.Partitions
        told = part(
            partition_index=0,
            voter_directory_id=self._known(voter),
            leader_id=self._node.node_id,
            leader_epoch=epoch,
        )
        topics = [m.BeginQuorumEpochRequest.Topics(topic_name=TOPIC, partitions=[told])]
        request = m.BeginQuorumEpochRequest(cluster_id=self._node.cluster_id, voter_id=voter, topics=topics)
        answer = cast(m.BeginQuorumEpochResponse | None, await self._ask(voter, request, BEGIN_VERSION))
        if answer is not None:
            [topic] = answer.topics
            [known] = topic.partitions
            await self._node.observe_epoch(known.leader_epoch, known.leader_id)

    async def _tell_end(self, voter: int, epoch: int, preferred: Sequence[int]) -> None:
        part = m.EndQuorumEpochRequest.Topics.Partitions
        told = part(
            partition_index=0,
            leader_id=self._node.node_id,
            leader_epoch=epoch,
            preferred_candidates=[part.PreferredCandidates(candidate_id=one) for one in preferred],
        )
        topics = [m.EndQuorumEpochRequest.Topics(topic_name=TOPIC, partitions=[told])]
        await self._ask(voter, m.EndQuorumEpochRequest(cluster_id=self._node.cluster_id, topics=topics), END_VERSION)
