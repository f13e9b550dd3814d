"""The Raft of the metadata quorum as values: who leads, and who votes for whom (KIP-595, KIP-996); what is
committed: `voter_progress`.

    unattached ─timeout─► prospective ─majority would vote─► candidate ─majority votes─► leader ─no quorum─► resigned
        ▲ higher epoch         │ refused                         │ refused                 │ higher epoch        │
        └──────────────────────┴─────────────────────────────────┴──────── follower ◄──────┴─────────────────────┘

Each function takes a state and what has happened and gives the next state with effects; it waits for nothing. The
driver (`raft_node`) writes `durable` down before it sends or answers anything that follows from it, and carries the
effects out in their order. Time (ms, monotonic) and randomness come in a `Now`. Terms as in Kafka's `QuorumState`; a
vote, once given in an epoch, is kept through all roles of that epoch, so that no epoch is won twice.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Final

from immutables import Map

from backend.engine.raft.quorum_state import NO_DIRECTORY, NOBODY, QuorumState, VoterStanding
from backend.engine.raft.raft_state import (
    NEVER,
    AppendLeaderChange,
    LogEnd,
    Now,
    RaftEffect,
    RaftRole,
    RaftState,
    ReceivedVote,
    SendBeginQuorumEpoch,
    SendEndQuorumEpoch,
    SendVote,
    Timing,
    Transition,
    VoterProgress,
)
from backend.engine.raft.voter_directories import UNKNOWN
from backend.protocol.errors import ErrorCode

# CHECK_QUORUM_TIMEOUT_FACTOR: a leader that a majority has not asked for so many fetch timeouts leads no longer.
CHECK_QUORUM_FACTOR: Final = 1.5
# Parts of the election timeout between the first tries of voters that start together.
START_PLACES: Final = 4


def start(
    node_id: int,
    voters: tuple[int, ...],
    timing: Timing,
    stored: QuorumState,
    log_end: LogEnd,
    now: Now,
    directories: Map[int, bytes] | None = None,
) -> Transition:
    """The state of a node that starts with what its disk holds. An only voter leads at once."""
    epoch, current = (stored.leader_epoch, True) if stored.leader_epoch >= log_end.epoch else (log_end.epoch, False)
    fresh = RaftState(
        node_id,
        voters,
        timing,
        RaftRole.UNATTACHED,
        epoch,
        standing=stored.standing,
        directory_id=stored.directory_id,
        directories=UNKNOWN if directories is None else directories,
        majority_from_ms=now.ms + timing.start_wait_ms,
    )
    if voters != (node_id,):
        fresh = log_changed(fresh, log_end, fresh.directories, now)
    if not fresh.is_voter:
        leader = stored.leader_id if current and stored.leader_id != node_id else NOBODY
        return replace(fresh, role=RaftRole.OBSERVER, leader_id=leader), ()
    voted = stored.voted_id if current else NOBODY
    leader = stored.leader_id if current else NOBODY
    fresh = replace(fresh, voted_id=voted, deadline_ms=_first_deadline(fresh, now))
    if leader == node_id:
        # It does not know what it promised as leader of that epoch: that epoch is over for it.
        fresh = replace(fresh, role=RaftRole.RESIGNED, voted_id=node_id)
    elif leader != NOBODY:
        fresh = replace(fresh, role=RaftRole.FOLLOWER, leader_id=leader)
    elif voted != NOBODY:
        fresh = replace(fresh, role=RaftRole.VOTED)
    if voters == (node_id,):
        return _become_candidate(fresh, log_end, now)
    return fresh, ()


def _first_deadline(state: RaftState, now: Now) -> float:
    """A start waits for no timeout: a pre-vote shows at once whether there is a leader, and disturbs none (KIP-996).

    The voters of a cluster that starts as a whole ask one after the other, so that they do not split the votes.
    """
    place = state.voters.index(state.node_id) + now.jitter / 2
    return now.ms + state.timing.election_timeout_ms * place / START_PLACES


def _election_deadline(timing: Timing, now: Now) -> float:
    return now.ms + timing.election_timeout_ms * (1 + now.jitter)


def tick(state: RaftState, log_end: LogEnd, now: Now) -> Transition:
    """The step of a passed deadline; nothing changes before `deadline_ms`."""
    if now.ms < state.deadline_ms:
        return state, ()
    match state.role:
        case RaftRole.LEADER:
            return _tick_leader(state, now)
        case RaftRole.PROSPECTIVE if state.leader_id != NOBODY:
            # The others still hear the leader: perhaps so does this node again.
            return _become_follower(state, state.epoch, state.leader_id, now), ()
        case RaftRole.OBSERVER:
            return replace(state, deadline_ms=NEVER), ()
        case _:
            return _become_prospective(state, log_end, now)


def _tick_leader(state: RaftState, now: Now) -> Transition:
    if len(state.voters) == 1:
        return replace(state, deadline_ms=NEVER), ()
    silent_ms = state.timing.fetch_timeout_ms / 2
    if now.ms - _majority_contact_ms(state) >= state.timing.fetch_timeout_ms * CHECK_QUORUM_FACTOR:
        return resign(state, now)
    silent = tuple(
        sorted(voter for voter, progress in state.progress.items() if now.ms - progress.contact_ms >= silent_ms)
    )
    return replace(state, deadline_ms=now.ms + silent_ms), (SendBeginQuorumEpoch(silent),) if silent else ()


def _majority_contact_ms(state: RaftState) -> float:
    """The time until which a majority, with this leader, has been heard."""
    contacts_ms = sorted((progress.contact_ms for progress in state.progress.values()), reverse=True)
    return contacts_ms[state.majority - 2]


def hears_others(state: RaftState, now_ms: float) -> bool:
    """Whether those that this voter waits for were heard within a quarter of the fetch timeout."""
    recent_ms = state.timing.fetch_timeout_ms / 4
    match state.role:
        case RaftRole.FOLLOWER:
            return state.leader_contacted and state.deadline_ms - now_ms >= state.timing.fetch_timeout_ms - recent_ms
        case RaftRole.LEADER if state.others():
            return now_ms - _majority_contact_ms(state) <= recent_ms
        case _:
            return False


def resign(state: RaftState, now: Now) -> Transition:
    """A leader gives its epoch up: it has lost its majority, or its node stops. Anybody else stays as it is."""
    if not state.is_leader:
        return state, ()
    order = sorted(state.progress.items(), key=lambda item: (-item[1].end_offset, item[0]))
    ended = replace(state, role=RaftRole.RESIGNED, leader_id=NOBODY, deadline_ms=_election_deadline(state.timing, now))
    return ended, (SendEndQuorumEpoch(state.epoch, tuple(voter for voter, _ in order)),)


def _become_prospective(state: RaftState, log_end: LogEnd, now: Now) -> Transition:
    if state.voters == (state.node_id,):
        return _become_candidate(state, log_end, now)
    asking = replace(
        state,
        role=RaftRole.PROSPECTIVE,
        granted=frozenset({state.node_id}),
        refused=frozenset(),
        abstaining=frozenset(),
        leader_contacted=False,
        deadline_ms=_election_deadline(state.timing, now),
    )
    return asking, (SendVote(pre_vote=True),)


def _become_candidate(state: RaftState, log_end: LogEnd, now: Now) -> Transition:
    asking = replace(
        state,
        role=RaftRole.CANDIDATE,
        epoch=state.epoch + 1,
        leader_id=NOBODY,
        voted_id=state.node_id,
        standing=VoterStanding.MEMBER,
        granted=frozenset({state.node_id}),
        refused=frozenset(),
        abstaining=frozenset(),
        leader_contacted=False,
        deadline_ms=_election_deadline(state.timing, now),
    )
    if len(asking.granted) >= asking.majority:
        return _become_leader(asking, log_end, now)
    return asking, (SendVote(pre_vote=False),)


def _become_leader(state: RaftState, log_end: LogEnd, now: Now) -> Transition:
    others = state.others()
    leading = replace(
        state,
        role=RaftRole.LEADER,
        leader_id=state.node_id,
        epoch_start=log_end.offset,
        flushed_end=0,
        majority_from_ms=0,
        trusted=Map({voter: state.directories.get(voter) for voter in state.granted if voter != state.node_id}),
        progress=Map({voter: VoterProgress(-1, now.ms) for voter in others}),
        deadline_ms=now.ms + state.timing.fetch_timeout_ms / 2 if others else NEVER,
    )
    effects: tuple[RaftEffect, ...] = (AppendLeaderChange(tuple(sorted(state.granted))),)
    return leading, (*effects, SendBeginQuorumEpoch(others)) if others else effects


def _become_follower(state: RaftState, epoch: int, leader_id: int, now: Now) -> RaftState:
    kept_vote = state.voted_id if epoch == state.epoch else NOBODY
    return replace(
        state,
        role=RaftRole.FOLLOWER if state.is_voter else RaftRole.OBSERVER,
        epoch=epoch,
        leader_id=leader_id,
        voted_id=kept_vote,
        leader_contacted=False,
        granted=frozenset(),
        refused=frozenset(),
        deadline_ms=now.ms + state.timing.fetch_timeout_ms if state.is_voter else NEVER,
    )


def _become_unattached(state: RaftState, epoch: int, now: Now) -> RaftState:
    """The state in a higher epoch whose leader is not known."""
    waiting = state.role in (RaftRole.UNATTACHED, RaftRole.VOTED, RaftRole.PROSPECTIVE)
    return replace(
        state,
        role=RaftRole.UNATTACHED if state.is_voter else RaftRole.OBSERVER,
        epoch=epoch,
        leader_id=NOBODY,
        voted_id=NOBODY,
        leader_contacted=False,
        granted=frozenset(),
        refused=frozenset(),
        # An election timeout that runs goes on: a candidate that cannot win must not keep the others from trying.
        deadline_ms=(
            NEVER if not state.is_voter else state.deadline_ms if waiting else _election_deadline(state.timing, now)
        ),
    )


def observe_epoch(state: RaftState, epoch: int, leader_id: int, now: Now) -> RaftState:
    """Another node names an epoch and its leader (NOBODY: not known to them). Older epochs teach nothing."""
    if epoch < state.epoch or (epoch == state.epoch and leader_id in (NOBODY, state.node_id)):
        return state
    if epoch > state.epoch:
        if leader_id in (NOBODY, state.node_id):
            return _become_unattached(state, epoch, now)
        return _become_follower(state, epoch, leader_id, now)
    asks_again = state.role is RaftRole.PROSPECTIVE and state.leader_id == leader_id
    if asks_again or (state.leader_id == NOBODY and state.role is not RaftRole.RESIGNED):
        return _become_follower(state, epoch, leader_id, now)
    return state


def handle_vote(state: RaftState, vote: ReceivedVote, log_end: LogEnd, now: Now) -> tuple[RaftState, ErrorCode, bool]:
    """The state after a Vote request, the error code and whether the vote is granted."""
    if vote.candidate_id not in state.voters or state.node_id not in state.voters:
        return state, ErrorCode.INCONSISTENT_VOTER_SET, False
    if vote.candidate_id == state.node_id:
        return state, ErrorCode.INVALID_REQUEST, False
    if not _is_voter_of(state, vote):
        return state, ErrorCode.INVALID_VOTER_KEY, False
    if vote.epoch < state.epoch:
        return state, ErrorCode.FENCED_LEADER_EPOCH, False
    if vote.epoch > state.epoch:
        state = _become_unattached(state, vote.epoch, now)
    if vote.log_end < log_end:
        return state, ErrorCode.NONE, False
    if vote.pre_vote:
        return state, ErrorCode.NONE, _would_vote(state)
    if state.voted_id == vote.candidate_id:
        return state, ErrorCode.NONE, True
    if state.voted_id != NOBODY or state.leader_id != NOBODY or state.role is RaftRole.RESIGNED:
        return state, ErrorCode.NONE, False
    voted = replace(
        state,
        role=RaftRole.VOTED,
        voted_id=vote.candidate_id,
        # An empty log stands for election only by the pre-votes of all: every voter is empty, and this makes a quorum.
        standing=VoterStanding.MEMBER,
        deadline_ms=_election_deadline(state.timing, now),
    )
    return voted, ErrorCode.NONE, True


def _is_voter_of(state: RaftState, vote: ReceivedVote) -> bool:
    """Whether this node is the voter that the candidate means, with all its memory.

    A node that forms a quorum is no voter of one that has records already.
    """
    if not state.is_voter or (state.standing is VoterStanding.FORMING and vote.log_end.offset > 0):
        return False
    return vote.voter_directory_id in (NO_DIRECTORY, state.directory_id)


def _would_vote(state: RaftState) -> bool:
    """Whether nothing speaks against an election: no leader is heard. Gives nothing away."""
    match state.role:
        case RaftRole.LEADER:
            return False
        case RaftRole.FOLLOWER:
            return not state.leader_contacted
        case _:
            return True


def vote_answered(
    state: RaftState,
    voter: int,
    *,
    epoch: int,
    pre_vote: bool,
    granted: bool,
    log_end: LogEnd,
    now: Now,
    abstains: bool = False,
) -> Transition:
    """A response to the Vote that was sent in `epoch`; newer epochs in it go to `observe_epoch` before.

    `abstains`: the voter refuses because it is catching up itself.
    """
    if granted and not pre_vote and state.is_leader and epoch == state.epoch and voter in state.progress:
        # A vote more than was needed.
        directory_id = state.directories.get(voter)
        return (state if voter in state.trusted else replace(state, trusted=state.trusted.set(voter, directory_id))), ()
    role = RaftRole.PROSPECTIVE if pre_vote else RaftRole.CANDIDATE
    if epoch != state.epoch or state.role is not role or voter not in state.voters:
        return state, ()
    voters = {voter}
    state = replace(
        state,
        granted=state.granted | voters if granted else state.granted - voters,
        refused=state.refused - voters if granted else state.refused | voters,
        abstaining=state.abstaining | voters if abstains else state.abstaining - voters,
    )
    # An empty log may be a new disk: only if those of all voters are empty is there no cluster that it would replace.
    needed = len(state.voters) if pre_vote and log_end.offset == 0 else state.majority
    if len(state.granted) >= needed:
        if pre_vote and not _may_stand(state, now):
            return state, ()
        return (_become_candidate if pre_vote else _become_leader)(state, log_end, now)
    if len(state.voters) - len(state.refused) < needed:
        # Lost: the next try follows after a pause that differs from the other candidates'.
        pause_ms = min(state.timing.backoff_max_ms * now.jitter, max(0.0, state.deadline_ms - now.ms))
        if pre_vote and state.leader_id != NOBODY:
            return _become_follower(state, state.epoch, state.leader_id, now), ()
        return replace(state, deadline_ms=now.ms + pause_ms), ()
    return state, ()


def _may_stand(state: RaftState, now: Now) -> bool:
    """Whether a node with the pre-votes of a majority may ask for votes.

    Right after its start it waits for the others: its folder may be an older copy, and a voter that has more says so by
    refusing. Voters that catch up are not waited for.
    """
    answered = state.granted | state.abstaining
    return now.ms >= state.majority_from_ms or len(answered) == len(state.voters)


def handle_begin_quorum_epoch(state: RaftState, leader_id: int, epoch: int, now: Now) -> tuple[RaftState, ErrorCode]:
    """BeginQuorumEpoch: a leader introduces itself."""
    if epoch < state.epoch:
        return state, ErrorCode.FENCED_LEADER_EPOCH
    if leader_id not in state.voters:
        return state, ErrorCode.INCONSISTENT_VOTER_SET
    if leader_id == state.node_id or (epoch == state.epoch and state.leader_id not in (NOBODY, leader_id)):
        return state, ErrorCode.INVALID_REQUEST
    return observe_epoch(state, epoch, leader_id, now), ErrorCode.NONE


def handle_end_quorum_epoch(
    state: RaftState, leader_id: int, epoch: int, preferred: tuple[int, ...], now: Now
) -> tuple[RaftState, ErrorCode]:
    """EndQuorumEpoch: the leader has resigned; the first of its preferred successors tries at once, others later."""
    if epoch < state.epoch:
        return state, ErrorCode.FENCED_LEADER_EPOCH
    if leader_id not in state.voters:
        return state, ErrorCode.INCONSISTENT_VOTER_SET
    if leader_id == state.node_id or (epoch == state.epoch and state.leader_id not in (NOBODY, leader_id)):
        return state, ErrorCode.INVALID_REQUEST
    state = observe_epoch(state, epoch, leader_id, now)
    if state.role is not RaftRole.FOLLOWER:
        return state, ErrorCode.NONE
    place = preferred.index(state.node_id) if state.node_id in preferred else len(preferred)
    pause_ms = 0.0 if place == 0 else state.timing.backoff_max_ms * (place + now.jitter) / 2
    # The epoch has no leader any more, but this node stays its follower: it must not vote in it again.
    return replace(state, leader_contacted=False, deadline_ms=min(state.deadline_ms, now.ms + pause_ms)), ErrorCode.NONE


def leader_answered(state: RaftState, now: Now) -> RaftState:
    """The leader has answered a fetch of this epoch."""
    if state.role is not RaftRole.FOLLOWER:
        return state
    deadline_ms = now.ms + state.timing.fetch_timeout_ms
    return replace(state, leader_contacted=True, majority_from_ms=0, deadline_ms=deadline_ms)


def own_flush_begins(state: RaftState) -> RaftState:
    """A follower writes what its leader sent and asks for nothing until `leader_answered`.

    A slow disk of this node is not the leader's silence, and such a node could not lead either.
    """
    return replace(state, deadline_ms=NEVER) if state.role is RaftRole.FOLLOWER else state


def leader_unreachable(state: RaftState, now: Now) -> RaftState:
    """The leader's address takes no connection: an election need not wait for the fetch timeout."""
    if state.role is not RaftRole.FOLLOWER:
        return state
    soon_ms = now.ms + state.timing.backoff_max_ms * (0.1 + now.jitter)
    return replace(state, leader_contacted=False, deadline_ms=min(state.deadline_ms, soon_ms))


def postpone_timeouts(state: RaftState, by_ms: float) -> RaftState:
    """This node itself did nothing for so long, so what it did not hear meanwhile says nothing about the others."""
    progress = state.progress
    for voter, voter_progress in progress.items():
        progress = progress.set(voter, replace(voter_progress, contact_ms=voter_progress.contact_ms + by_ms))
    return replace(state, deadline_ms=state.deadline_ms + by_ms, progress=progress)


def log_changed(state: RaftState, log_end: LogEnd, directories: Map[int, bytes], now: Now) -> RaftState:
    """The log has been appended to, or truncated: it may say otherwise by which directory each voter is known.

    A voter that the log knows by another directory than its own is not that voter: its folder was put back. One that
    has got records although it gave no vote when the quorum was made has joined that quorum later.
    """
    if directories is not state.directories:
        state = replace(state, directories=directories)
    noted = directories.get(state.node_id, state.directory_id)
    directory_id = state.directory_id
    if state.standing is VoterStanding.MEMBER and noted != directory_id and not state.is_leader:
        # One that was replaced is never noted again.
        directory_id = sha256(directory_id + noted).digest()[: len(NO_DIRECTORY)]
    elif state.standing is not VoterStanding.FORMING or log_end.offset == 0:
        return state
    stranger = replace(state, standing=VoterStanding.CATCHING_UP, voted_id=NOBODY, directory_id=directory_id)
    if state.role is RaftRole.FOLLOWER:
        return _become_follower(stranger, state.epoch, state.leader_id, now)
    return replace(stranger, role=RaftRole.OBSERVER, leader_id=NOBODY, deadline_ms=NEVER)


def admitted(state: RaftState, now: Now) -> RaftState:
    """A node that was catching up finds its directory noted and committed: from now on it is a voter."""
    if state.standing is not VoterStanding.CATCHING_UP:
        return state
    member = replace(state, standing=VoterStanding.MEMBER, voted_id=NOBODY, majority_from_ms=0)
    if state.leader_id == NOBODY:
        return replace(member, role=RaftRole.UNATTACHED, deadline_ms=_election_deadline(state.timing, now))
    return _become_follower(member, state.epoch, state.leader_id, now)
