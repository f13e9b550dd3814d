"""A voter's requests to the other voters: Vote, BeginQuorumEpoch, EndQuorumEpoch (KIP-595, KIP-996)."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC
from backend.engine.ports import tasks
from backend.engine.raft.metadata_log import MetadataLog
from backend.engine.raft.quorum_state import NO_DIRECTORY
from backend.engine.raft.raft_state import RaftRole, RaftState, SendBeginQuorumEpoch, SendEndQuorumEpoch, SendVote
from backend.protocol import messages as m
from backend.protocol.errors import DecodeError, ErrorCode, KafkaError
from backend.protocol.messages import Message

VOTE_VERSION: Final = 2
BEGIN_VERSION: Final = 1
END_VERSION: Final = 1
# A response to a vote that is older than an election is of no use.
RETRY_PAUSE_MS: Final = 100.0

_log = logging.getLogger(__name__)


class Peer(Protocol):
    """The way to another voter; `net` implements it."""

    async def send(self, request: Message, version: int, *, timeout_ms: float) -> Message:
        """The response; KafkaError NETWORK_EXCEPTION or REQUEST_TIMED_OUT, DecodeError."""
        ...


class RequestingVoter(Protocol):
    """This node, as the requests that it sends see it."""

    @property
    def state(self) -> RaftState: ...

    @property
    def directory_id(self) -> bytes: ...

    def accepted(self) -> None:
        """A voter has answered without an error, so this node belongs to its cluster."""
        ...

    def refused(self, voter: int, code: int) -> None:
        """A voter has refused a whole request."""
        ...

    async def observe_epoch(self, epoch: int, leader_id: int, *, by_itself: bool = False) -> None:
        """A voter has named an epoch and its leader; `by_itself` when it is that leader."""
        ...

    async def vote_answered(self, voter: int, epoch: int, *, pre_vote: bool, granted: bool, abstains: bool) -> None:
        """A voter has answered the Vote that was sent in `epoch`."""
        ...


class VoterRequests:
    """Sends each request in a separate task, so that a voter that is away delays no other."""

    def __init__(
        self,
        node: RequestingVoter,
        log: MetadataLog,
        peers: Mapping[int, Peer],
        *,
        node_id: int,
        cluster_id: str,
        timeout_ms: float,
    ) -> None:
        """`peers`: the other voters by node id."""
        self._node = node
        self._metadata_log = log
        self._peers = peers
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._timeout_ms = timeout_ms
        self._ballot = 0
        self._sending: set[tasks.Task[None]] = set()

    def carry_out(self, state: RaftState, effect: SendVote | SendBeginQuorumEpoch | SendEndQuorumEpoch) -> None:
        """Sends the requests of one effect."""
        match effect:
            case SendVote(pre_vote):
                self._ballot += 1
                for voter in state.others():
                    self._send(self._send_vote(voter, state.epoch, pre_vote, self._ballot))
            case SendBeginQuorumEpoch(to):
                for voter in to:
                    self._send(self._send_begin(voter, state.epoch))
            case SendEndQuorumEpoch(epoch, preferred):
                for voter in state.others():
                    self._send(self._send_end(voter, epoch, preferred))

    def _send(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = tasks.spawn(coroutine, name=f"raft request of node {self._node_id}")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def all_sent(self) -> None:
        """Returns once nothing is under way."""
        await tasks.gather_settled(list(self._sending))

    async def cancel(self) -> None:
        """Ends the requests that are under way; the voters get no notice."""
        for task in list(self._sending):
            await tasks.cancel(task)

    async def _request(self, voter: int, request: Message, version: int) -> Message | None:
        """The response; None when there was none, or an error that `refused` deals with."""
        try:
            response = await self._peers[voter].send(request, version, timeout_ms=self._timeout_ms)
        except (KafkaError, DecodeError) as error:
            _log.debug("Node %d got no response from voter %d: %s", self._node_id, voter, error)
            return None
        code = getattr(response, "error_code", 0)
        if code:
            self._node.refused(voter, code)
            return None
        self._node.accepted()
        return response

    async def _send_vote(self, voter: int, epoch: int, pre_vote: bool, ballot: int) -> None:
        role = RaftRole.PROSPECTIVE if pre_vote else RaftRole.CANDIDATE
        while self._ballot == ballot and self._node.state.role is role and self._node.state.epoch == epoch:
            end = self._metadata_log.end
            part = m.VoteRequest.Topics.Partitions
            partition = part(
                partition_index=0,
                replica_epoch=epoch,
                replica_id=self._node_id,
                replica_directory_id=self._node.directory_id,
                voter_directory_id=self._directory_of(voter),
                last_offset_epoch=end.epoch,
                last_offset=end.offset,
                pre_vote=pre_vote,
            )
            topics = [m.VoteRequest.Topics(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])]
            request = m.VoteRequest(cluster_id=self._cluster_id, voter_id=voter, topics=topics)
            response = cast(m.VoteResponse | None, await self._request(voter, request, VOTE_VERSION))
            if response is None:
                await tasks.sleep_ms(RETRY_PAUSE_MS)
                continue
            [topic] = response.topics
            [result] = topic.partitions
            await self._node.observe_epoch(result.leader_epoch, result.leader_id, by_itself=result.leader_id == voter)
            await self._node.vote_answered(
                voter,
                epoch,
                pre_vote=pre_vote,
                granted=result.vote_granted and not result.error_code,
                abstains=result.error_code == ErrorCode.INVALID_VOTER_KEY,
            )
            return

    def _directory_of(self, voter: int) -> bytes:
        """The directory that this node's log names for a voter, or NO_DIRECTORY."""
        return self._node.state.directories.get(voter, NO_DIRECTORY)

    async def _send_begin(self, voter: int, epoch: int) -> None:
        part = m.BeginQuorumEpochRequest.Topics.Partitions
        partition = part(
            partition_index=0,
            voter_directory_id=self._directory_of(voter),
            leader_id=self._node_id,
            leader_epoch=epoch,
        )
        topics = [m.BeginQuorumEpochRequest.Topics(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])]
        request = m.BeginQuorumEpochRequest(cluster_id=self._cluster_id, voter_id=voter, topics=topics)
        response = cast(m.BeginQuorumEpochResponse | None, await self._request(voter, request, BEGIN_VERSION))
        if response is not None:
            [topic] = response.topics
            [result] = topic.partitions
            await self._node.observe_epoch(result.leader_epoch, result.leader_id)

    async def _send_end(self, voter: int, epoch: int, preferred: Sequence[int]) -> None:
        part = m.EndQuorumEpochRequest.Topics.Partitions
        partition = part(
            partition_index=0,
            leader_id=self._node_id,
            leader_epoch=epoch,
            preferred_candidates=[part.PreferredCandidates(candidate_id=voter_id) for voter_id in preferred],
        )
        topics = [m.EndQuorumEpochRequest.Topics(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])]
        await self._request(voter, m.EndQuorumEpochRequest(cluster_id=self._cluster_id, topics=topics), END_VERSION)
