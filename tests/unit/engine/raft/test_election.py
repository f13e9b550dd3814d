"""The quorum's state machine as dialogues: when this happens in that role, this follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from immutables import Map

from backend.engine.raft import election as q
from backend.engine.raft import voter_progress
from backend.engine.raft.quorum_state import NO_DIRECTORY, NOBODY, QuorumState, VoterStanding
from backend.engine.raft.raft_state import (
    NEVER,
    AppendLeaderChange,
    LogEnd,
    Now,
    RaftRole,
    RaftState,
    ReceivedVote,
    SendBeginQuorumEpoch,
    SendEndQuorumEpoch,
    SendVote,
    Timing,
    Transition,
    VoterFetch,
)
from backend.protocol.errors import ErrorCode

TIMING = Timing(1000, 2000, 1000)
END = LogEnd(3, 50)
VOTERS = (1, 2, 3)
D1, D2, D3, NEW = (name * 16 for name in (b"1", b"2", b"3", b"n"))


def started(stored: QuorumState | None = None, voters: tuple[int, ...] = VOTERS) -> RaftState:
    return q.start(1, voters, TIMING, stored or QuorumState(leader_epoch=3), END, Now(0))[0]


def prospective() -> RaftState:
    return q.tick(started(), END, Now(5000))[0]


def answered(state: RaftState, voter: int, granted: bool, pre_vote: bool) -> Transition:
    return q.vote_answered(
        state, voter, epoch=state.epoch, pre_vote=pre_vote, granted=granted, log_end=END, now=Now(5001)
    )


def leading() -> RaftState:
    candidate, _ = answered(prospective(), 2, True, True)
    return answered(candidate, 3, True, False)[0]


def test_an_only_voter_leads_from_its_start_on() -> None:
    state, effects = q.start(1, (1,), TIMING, QuorumState(1, 3, NOBODY, (1,)), END, Now(0))
    assert (state.role, state.epoch, state.deadline_ms) == (RaftRole.LEADER, 4, NEVER)
    assert effects == (AppendLeaderChange((1,)),)
    assert voter_progress.flushed(state, 50).high_watermark == 0
    assert voter_progress.flushed(state, 51).high_watermark == 51


def test_silence_leads_by_a_pre_vote_and_a_vote_to_leadership() -> None:
    state, effects = q.tick(started(), END, Now(50))
    assert (state.role, effects) == (RaftRole.UNATTACHED, ())
    state, effects = q.tick(state, END, Now(125))
    assert (state.role, state.epoch, effects) == (RaftRole.PROSPECTIVE, 3, (SendVote(pre_vote=True),))
    state, effects = answered(state, 2, True, True)
    assert (state.role, state.epoch, state.voted_id) == (RaftRole.CANDIDATE, 4, 1)
    assert effects == (SendVote(pre_vote=False),)
    assert answered(state, 3, True, True) == (state, ()), "a late answer to the pre-vote counts for nothing"
    state, effects = answered(state, 3, True, False)
    assert (state.role, state.leader_id, state.epoch_start) == (RaftRole.LEADER, 1, 50)
    assert effects == (AppendLeaderChange((1, 3)), SendBeginQuorumEpoch((2, 3)))


@pytest.mark.parametrize("stored", [QuorumState(leader_epoch=3), QuorumState(leader_id=2, leader_epoch=3)])
def test_voters_that_start_together_ask_one_after_the_other_and_wait_for_no_timeout(stored: QuorumState) -> None:
    def first_try_ms(node_id: int, jitter: float) -> float:
        return q.start(node_id, (1, 2, 3), TIMING, stored, END, Now(0, jitter))[0].deadline_ms

    latest, earliest = [first_try_ms(node, 0.999) for node in (1, 3)], [first_try_ms(node, 0.0) for node in (1, 3)]
    assert (earliest[0], earliest[1]) == (0, 500)
    assert latest[0] < 250
    assert latest[1] < TIMING.election_timeout_ms


def test_a_slow_disk_of_its_own_is_no_silence_of_the_leader() -> None:
    follower = q.leader_answered(q.observe_epoch(started(), 4, 2, Now(0)), Now(100))
    writing = q.own_flush_begins(follower)
    assert q.tick(writing, END, Now(60_000)) == (writing, ())
    assert q.leader_answered(writing, Now(60_000)).deadline_ms == 60_000 + TIMING.fetch_timeout_ms
    ended, _ = q.handle_end_quorum_epoch(writing, 2, 4, (1, 3), Now(50_000))
    assert ended.deadline_ms == 50_000, "a leader that resigns is succeeded all the same"
    assert q.own_flush_begins(leading()) == leading()


def test_a_voter_that_doubts_its_leader_follows_on_when_that_answers() -> None:
    doubting = q.tick(q.observe_epoch(started(), 4, 2, Now(0)), END, Now(5000))[0]
    assert (doubting.role, doubting.leader_id) == (RaftRole.PROSPECTIVE, 2)
    assert q.observe_epoch(doubting, 4, 2, Now(5001)).role is RaftRole.FOLLOWER


def test_a_lost_pre_vote_changes_no_epoch() -> None:
    state, _ = answered(prospective(), 2, False, True)
    state, effects = answered(state, 3, False, True)
    assert (state.epoch, effects) == (3, ())
    assert 5001 <= state.deadline_ms <= 6001


@pytest.mark.parametrize(
    ("stored", "role", "voted"),
    [
        (QuorumState(leader_epoch=3), RaftRole.UNATTACHED, NOBODY),
        (QuorumState(leader_epoch=3, voted_id=2), RaftRole.VOTED, 2),
        (QuorumState(leader_id=2, leader_epoch=3, voted_id=2), RaftRole.FOLLOWER, 2),
        (QuorumState(leader_id=1, leader_epoch=3), RaftRole.RESIGNED, 1),
        (QuorumState(leader_id=2, leader_epoch=2, voted_id=2), RaftRole.UNATTACHED, NOBODY),
    ],
)
def test_a_start_goes_on_from_what_is_on_disk(stored: QuorumState, role: RaftRole, voted: int) -> None:
    state = started(stored)
    state.check()
    assert (state.role, state.voted_id, state.epoch) == (role, voted, 3)


def vote(
    state: RaftState, candidate: int = 2, epoch: int = 4, end: LogEnd = END, pre: bool = False
) -> tuple[bool, int]:
    after, code, granted = q.handle_vote(state, ReceivedVote(candidate, epoch, end, pre), END, Now(10))
    after.check()
    return granted, code


def test_a_vote_is_given_once_an_epoch_and_only_to_a_log_that_lacks_nothing() -> None:
    assert vote(started()) == (True, 0)
    assert vote(started(), end=LogEnd(2, 900)) == (False, 0)
    assert vote(started(), end=LogEnd(3, 49)) == (False, 0)
    assert vote(started(), epoch=2) == (False, ErrorCode.FENCED_LEADER_EPOCH)
    assert vote(started(), candidate=9) == (False, ErrorCode.INCONSISTENT_VOTER_SET)
    voted, _, _ = q.handle_vote(started(), ReceivedVote(2, 4, END, False), END, Now(10))
    assert (voted.role, voted.voted_id, voted.durable.voted_id) == (RaftRole.VOTED, 2, 2)
    assert vote(voted) == (True, 0)
    assert vote(voted, candidate=3) == (False, 0)
    followed = q.observe_epoch(voted, 4, 2, Now(11))
    assert vote(followed, candidate=3) == (False, 0), "an epoch with a leader has no other"
    assert vote(followed, candidate=3, epoch=5) == (True, 0)


def test_a_pre_vote_disturbs_no_follower_that_hears_its_leader() -> None:
    follower = q.observe_epoch(started(), 4, 2, Now(0))
    assert vote(follower, candidate=3, pre=True) == (True, 0)
    hearing = q.leader_answered(follower, Now(5))
    assert vote(hearing, candidate=3, pre=True) == (False, 0)
    assert vote(q.leader_unreachable(hearing, Now(6)), candidate=3, pre=True) == (True, 0)
    assert vote(leading(), pre=True) == (False, 0)
    assert q.handle_vote(hearing, ReceivedVote(3, 4, END, True), END, Now(10))[0] == hearing


def test_only_a_record_of_the_own_epoch_commits_what_older_leaders_left() -> None:
    leader = voter_progress.flushed(leading(), 51)
    assert voter_progress.voter_fetched(leader, 3, VoterFetch(50), Now(6000)).high_watermark == 0
    committed = voter_progress.voter_fetched(leader, 3, VoterFetch(51), Now(6000))
    assert committed.high_watermark == 51
    assert voter_progress.voter_fetched(committed, 3, VoterFetch(40), Now(6001)).high_watermark == 51
    assert voter_progress.voter_fetched(committed, 9, VoterFetch(99), Now(6001)) == committed


def test_a_leader_that_no_majority_asks_resigns_and_names_the_most_complete_first() -> None:
    voter_fetch = VoterFetch(40, D2, Map({2: D2}))
    leader = voter_progress.voter_fetched(
        voter_progress.voter_fetched(leading(), 2, voter_fetch, Now(6000)), 3, VoterFetch(51), Now(6500)
    )
    state, effects = q.tick(leader, END, Now(7600))
    assert (state.role, effects) == (RaftRole.LEADER, (SendBeginQuorumEpoch((2, 3)),))
    state, effects = q.tick(state, END, Now(9500))
    assert (state.role, state.leader_id) == (RaftRole.RESIGNED, NOBODY)
    assert effects == (SendEndQuorumEpoch(4, (3, 2)),)
    assert vote(state, candidate=3, epoch=4) == (False, 0)
    late = q.tick(q.postpone_timeouts(leader, 3000), END, Now(9500))[0]
    assert late.role is RaftRole.LEADER, "its own pause is no silence of the others"


def test_the_preferred_successor_tries_at_once_and_the_others_later() -> None:
    follower = q.leader_answered(q.observe_epoch(started(), 4, 2, Now(0)), Now(100))
    first, code = q.handle_end_quorum_epoch(follower, 2, 4, (1, 3), Now(100))
    assert (code, first.deadline_ms) == (ErrorCode.NONE, 100)
    second, _ = q.handle_end_quorum_epoch(follower, 2, 4, (3, 1), Now(100))
    assert second.deadline_ms > 100
    assert q.handle_end_quorum_epoch(follower, 2, 3, (), Now(100))[1] == ErrorCode.FENCED_LEADER_EPOCH
    assert q.handle_end_quorum_epoch(follower, 3, 4, (), Now(100))[1] == ErrorCode.INVALID_REQUEST


def test_a_higher_epoch_ends_every_role() -> None:
    for state in (started(), prospective(), leading(), q.resign(leading(), Now(0))[0]):
        after = q.observe_epoch(state, 9, 3, Now(1))
        after.check()
        assert (after.role, after.epoch, after.voted_id) == (RaftRole.FOLLOWER, 9, NOBODY)
        assert q.observe_epoch(state, 1, 3, Now(1)) == state


def test_a_node_without_a_vote_only_follows() -> None:
    observer = q.start(9, VOTERS, TIMING, QuorumState(), LogEnd(0, 0), Now(0))[0]
    observer.check()
    assert q.tick(observer, END, Now(1e9))[0].role is RaftRole.OBSERVER
    assert q.observe_epoch(observer, 4, 2, Now(1)).leader_id == 2
    assert vote(observer) == (False, ErrorCode.INCONSISTENT_VOTER_SET)
    assert replace(observer, epoch=1).durable == QuorumState(NOBODY, 1, NOBODY, VOTERS)


def test_begin_quorum_epoch_is_believed_of_voters_and_newer_epochs_only() -> None:
    begin = q.handle_begin_quorum_epoch
    assert begin(started(), 2, 4, Now(0))[0].role is RaftRole.FOLLOWER
    assert begin(started(), 2, 2, Now(0))[1] == ErrorCode.FENCED_LEADER_EPOCH
    assert begin(started(), 7, 4, Now(0))[1] == ErrorCode.INCONSISTENT_VOTER_SET
    assert begin(leading(), 2, 4, Now(0))[1] == ErrorCode.INVALID_REQUEST


def catching_up(end: LogEnd = END) -> RaftState:
    lost = QuorumState(leader_epoch=3, directory_id=NEW, standing=VoterStanding.CATCHING_UP)
    return q.start(1, VOTERS, TIMING, lost, end, Now(0))[0]


def test_a_voter_that_has_forgotten_neither_votes_nor_stands_until_it_is_noted() -> None:
    state = catching_up()
    state.check()
    assert (state.role, state.deadline_ms) == (RaftRole.OBSERVER, NEVER)
    assert vote(state) == (False, ErrorCode.INVALID_VOTER_KEY)
    assert vote(state, pre=True) == (False, ErrorCode.INVALID_VOTER_KEY)
    assert q.tick(state, END, Now(1e9)) == (state, ())
    followed = q.observe_epoch(state, 4, 2, Now(1))
    assert followed.role is RaftRole.OBSERVER
    member = q.admitted(followed, Now(2))
    member.check()
    assert (member.role, member.standing, member.durable.directory_id) == (RaftRole.FOLLOWER, VoterStanding.MEMBER, NEW)
    assert vote(member, candidate=3, epoch=5) == (True, 0)


def test_a_vote_is_given_only_to_who_means_this_directory() -> None:
    state = replace(started(), directory_id=D2)
    for directory_id, code in ((NO_DIRECTORY, 0), (D2, 0), (NEW, ErrorCode.INVALID_VOTER_KEY)):
        requested = ReceivedVote(2, 4, END, False, directory_id)
        assert q.handle_vote(state, requested, END, Now(10))[1:] == (code, not code)


def test_an_empty_log_leads_only_by_the_pre_votes_of_all() -> None:
    forming = QuorumState(directory_id=NEW, standing=VoterStanding.FORMING)
    empty = LogEnd(0, 0)
    asking, _ = q.tick(q.start(1, VOTERS, TIMING, forming, empty, Now(0))[0], empty, Now(5000))

    def answer(state: RaftState, voter: int) -> Transition:
        return q.vote_answered(state, voter, epoch=0, pre_vote=True, granted=True, log_end=empty, now=Now(5001))

    raft_state, effects = answer(asking, 2)
    assert (raft_state.role, effects) == (RaftRole.PROSPECTIVE, ())
    both, _ = answer(raft_state, 3)
    assert (both.role, both.standing) == (RaftRole.CANDIDATE, VoterStanding.MEMBER)
    other = q.start(2, VOTERS, TIMING, forming, empty, Now(0))[0]
    voted, code, granted = q.handle_vote(other, ReceivedVote(1, 1, empty, False), empty, Now(1))
    assert (granted, code, voted.durable.standing) == (True, 0, VoterStanding.MEMBER)
    assert q.handle_vote(other, ReceivedVote(1, 1, END, False), empty, Now(1))[1] == ErrorCode.INVALID_VOTER_KEY
    assert q.log_changed(other, LogEnd(1, 1), other.directories, Now(1)).standing is VoterStanding.CATCHING_UP


def test_right_after_its_start_a_voter_waits_for_one_that_may_have_more() -> None:
    patient = replace(TIMING, start_wait_ms=9_000)
    state, _ = q.tick(q.start(1, VOTERS, patient, QuorumState(leader_epoch=3), END, Now(0))[0], END, Now(500))
    granted, _ = answered(state, 3, True, True)
    assert granted.role is RaftRole.PROSPECTIVE, "2 has not answered"
    assert answered(granted, 2, False, True)[0].role is RaftRole.PROSPECTIVE, "2 has more"
    assert answered(granted, 2, True, True)[0].role is RaftRole.CANDIDATE
    abstention = {"epoch": 3, "pre_vote": True, "granted": False, "log_end": END, "abstains": True}
    assert q.vote_answered(granted, 2, now=Now(501), **abstention)[0].role is RaftRole.CANDIDATE  # type: ignore[arg-type]  # by name
    late, _ = q.tick(granted, END, Now(9_500))
    assert q.vote_answered(
        late, 3, epoch=3, pre_vote=True, granted=True, log_end=END, now=Now(9_501)
    )[0].role is RaftRole.CANDIDATE  # fmt: skip


def test_a_voter_counts_when_it_voted_for_the_leader_or_its_directory_is_committed() -> None:
    leader = voter_progress.flushed(replace(leading(), directory_id=D1), 51)  # 3 voted for it
    assert voter_progress.voter_fetched(leader, 2, VoterFetch(51, D2), Now(6000)).high_watermark == 0
    assert voter_progress.voter_fetched(leader, 2, VoterFetch(51, D2, Map({2: NEW})), Now(6000)).high_watermark == 0
    assert voter_progress.voter_fetched(leader, 2, VoterFetch(51, D2, Map({2: D2})), Now(6000)).high_watermark == 51
    first = voter_progress.voter_fetched(leader, 3, VoterFetch(50, D3), Now(6000))
    assert voter_progress.voter_fetched(first, 3, VoterFetch(51, NEW), Now(6001)).high_watermark == 0, (
        "another disk since"
    )
    assert voter_progress.voter_fetched(first, 3, VoterFetch(51, D3), Now(6001)).high_watermark == 51


def test_a_directory_is_noted_once_its_voter_has_what_is_committed_and_never_comes_back() -> None:
    leader = voter_progress.voter_fetched(
        voter_progress.flushed(replace(leading(), directory_id=D1), 51), 3, VoterFetch(51, D3), Now(6000)
    )  # fmt: skip
    assert leader.high_watermark == 51
    assert voter_progress.directories_to_note(leader, 3, VoterFetch(51, D3)) == Map({1: D1, 3: D3})
    assert voter_progress.directories_to_note(leader, 2, VoterFetch(50, D2)) is None, "it lacks what is committed"
    assert voter_progress.directories_to_note(leader, 2, VoterFetch(51, D2)) == Map({1: D1, 2: D2})
    assert voter_progress.directories_to_note(leader, 2, VoterFetch(51, D2, superseded=True)) is None
    assert voter_progress.directories_to_note(leader, 9, VoterFetch(51, D2)) is None
    raft_state = replace(leader, directories=Map({1: D1, 2: D2, 3: D3}))
    assert voter_progress.directories_to_note(raft_state, 2, VoterFetch(51, D2)) is None


def test_a_voter_that_the_log_knows_by_another_directory_is_not_that_voter() -> None:
    state = replace(started(), directory_id=D1)
    assert q.log_changed(state, END, Map({1: D1}), Now(1)).standing is VoterStanding.MEMBER
    stranger = q.log_changed(state, END, Map({1: NEW}), Now(1))
    stranger.check()
    assert (stranger.standing, stranger.role) == (VoterStanding.CATCHING_UP, RaftRole.OBSERVER)
    assert stranger.directory_id not in (D1, NEW)
