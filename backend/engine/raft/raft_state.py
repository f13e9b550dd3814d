"""One node's place in the metadata quorum as values: its state, its events, and the effects of a step.

`election` has the functions that lead from one state to the next. Terms as in Kafka's `QuorumState` (KIP-595).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from immutables import Map

from backend.engine.raft.quorum_state import NO_DIRECTORY, NOBODY, QuorumState, VoterStanding

NEVER: Final = float("inf")


class RaftRole(StrEnum):
    """A node's role in its epoch. VOTED is unattached with a vote given; OBSERVER is also a voter that catches up."""

    UNATTACHED = "unattached"
    VOTED = "voted"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"
    OBSERVER = "observer"


@dataclass(frozen=True, slots=True)
class Timing:
    """controller.quorum.election.timeout.ms, .fetch.timeout.ms, .election.backoff.max.ms.

    `start_wait_ms`: how long a voter that has just started waits to hear every other voter before it leads with a mere
    majority.
    """

    election_timeout_ms: float = 1000
    fetch_timeout_ms: float = 2000
    backoff_max_ms: float = 1000
    start_wait_ms: float = 0


@dataclass(frozen=True, slots=True)
class Now:
    """The time of a step, ms (monotonic), and a random number of [0, 1) for delays that must differ between nodes."""

    ms: float
    jitter: float = 0.5


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """Epoch of the last record and the offset behind it; the greater one is the more complete log."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class VoterProgress:
    """A voter as the leader knows it: it has everything below `end_offset` on its disk."""

    end_offset: int
    contact_ms: float


@dataclass(frozen=True, slots=True)
class RaftState:
    """One node's whole state; `leader_id` and `voted_id` are NOBODY when there is none."""

    node_id: int
    voters: tuple[int, ...]
    timing: Timing
    role: RaftRole
    epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    standing: VoterStanding = VoterStanding.MEMBER
    directory_id: bytes = NO_DIRECTORY
    # By which directory each voter is known: the newest VotersRecord in this node's log, committed or not.
    directories: Map[int, bytes] = field(default_factory=Map)
    # When `tick` has something to do.
    deadline_ms: float = NEVER
    granted: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()
    # Voters that answered that they do not vote: they are catching up.
    abstaining: frozenset[int] = frozenset()
    # Until then a mere majority of pre-votes is not enough; 0 once this node has followed a leader, or led.
    majority_from_ms: float = 0
    # Follower: whether the leader has answered a fetch and nothing since says that it is gone.
    leader_contacted: bool = False
    # Leader: offset of the record that begins its epoch, and what each voter has on disk.
    epoch_start: int = -1
    flushed_end: int = 0
    progress: Map[int, VoterProgress] = field(default_factory=Map)
    # Leader: voters that voted for it, with their directories; None until a voter's first fetch.
    trusted: Map[int, bytes | None] = field(default_factory=Map)
    high_watermark: int = 0

    @property
    def durable(self) -> QuorumState:
        """The part of the state that is on disk before any message follows from it."""
        return QuorumState(self.leader_id, self.epoch, self.voted_id, self.voters, self.directory_id, self.standing)

    @property
    def is_leader(self) -> bool:
        return self.role is RaftRole.LEADER

    @property
    def is_voter(self) -> bool:
        """Whether it may vote and lead."""
        return self.node_id in self.voters and self.standing is not VoterStanding.CATCHING_UP

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def others(self) -> tuple[int, ...]:
        return tuple(voter for voter in self.voters if voter != self.node_id)

    def check(self) -> None:
        """Invariants; AssertionError when one is broken."""
        assert self.epoch >= 0
        assert (self.role is RaftRole.LEADER) == (self.leader_id == self.node_id), self
        assert self.role is not RaftRole.FOLLOWER or self.leader_id not in (NOBODY, self.node_id), self
        assert (
            self.role not in (RaftRole.CANDIDATE, RaftRole.LEADER, RaftRole.RESIGNED) or self.voted_id == self.node_id
        ), self
        assert self.role is RaftRole.OBSERVER or self.is_voter, self
        assert not self.granted & self.refused, self


@dataclass(frozen=True, slots=True)
class SendVote:
    """Send Vote to every other voter, in the state's epoch."""

    pre_vote: bool


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """This node leads: append the leader change, with the voters that chose it, as the epoch's first record."""

    granting_voters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SendBeginQuorumEpoch:
    """Send BeginQuorumEpoch to these voters."""

    to: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SendEndQuorumEpoch:
    """Send EndQuorumEpoch for `epoch` to the other voters; the most complete logs first in `preferred`."""

    epoch: int
    preferred: tuple[int, ...]


RaftEffect = SendVote | AppendLeaderChange | SendBeginQuorumEpoch | SendEndQuorumEpoch
Transition = tuple[RaftState, tuple[RaftEffect, ...]]


@dataclass(frozen=True, slots=True)
class ReceivedVote:
    """A Vote request; `epoch` is the one that the candidate wants to lead, or in a pre-vote the one it is in.

    `voter_directory_id`: by which directory the candidate knows the voter that it asks; NO_DIRECTORY: by none.
    """

    candidate_id: int
    epoch: int
    log_end: LogEnd
    pre_vote: bool
    voter_directory_id: bytes = NO_DIRECTORY


@dataclass(frozen=True, slots=True)
class VoterFetch:
    """A voter's Fetch as its leader weighs it; `committed`: by which directory the committed log knows each voter.

    `superseded`: the log knew the voter by this directory, and has known it by another one since.
    """

    offset: int
    directory_id: bytes = NO_DIRECTORY
    committed: Map[int, bytes] = field(default_factory=Map)
    superseded: bool = False
