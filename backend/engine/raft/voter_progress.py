"""Progress of the voters' logs as the leader of the metadata quorum knows it, and the high watermark that follows from
it (KIP-595, KIP-853; etcd: Progress).

Pure, as `election`: each function takes a state and what has happened, and gives the next state.
"""

from __future__ import annotations

from dataclasses import replace

from immutables import Map

from backend.engine.raft.quorum_state import NO_DIRECTORY
from backend.engine.raft.raft_state import Now, RaftState, VoterFetch, VoterProgress


def voter_fetched(state: RaftState, voter: int, fetched: VoterFetch, now: Now) -> RaftState:
    """A voter asks the leader for what is at an offset, so it has everything below on its disk."""
    if not state.is_leader or voter not in state.progress:
        return state
    state = _trust(state, voter, fetched)
    if not counts(state, voter, fetched):
        return state
    return _commit(replace(state, progress=state.progress.set(voter, VoterProgress(fetched.offset, now.ms))))


def _trust(state: RaftState, voter: int, fetched: VoterFetch) -> RaftState:
    """The first fetch of a voter that voted for this leader shows its directory, unless the log names it.

    The log does not only while the quorum is being made, or first run by a program that notes directories.
    """
    if voter not in state.trusted or state.trusted[voter] is not None:
        return state
    return replace(state, trusted=state.trusted.set(voter, fetched.directory_id))


def counts(state: RaftState, voter: int, fetched: VoterFetch) -> bool:
    """Whether what a voter has counts for commits: it voted for this leader, or its directory is noted and committed.

    Any other may have forgotten what it promised to a later leader than this one.
    """
    committed = fetched.committed.get(voter)
    return fetched.directory_id in (state.trusted.get(voter), committed)


def directories_to_note(state: RaftState, voter: int, fetched: VoterFetch) -> Map[int, bytes] | None:
    """The directories to note in the log when a voter has fetched with one that is not noted; else None.

    One that does not count yet is noted once it has all that is committed: the note is committed without it, so that no
    node leads a later epoch by a vote of its former disk. A directory that was replaced does not come back: a disk that
    is put in again gets another id (`log_changed`).
    """
    directory_id = fetched.directory_id
    noted_id = state.directories.get(voter)
    if not state.is_leader or voter not in state.progress or directory_id in (NO_DIRECTORY, noted_id):
        return None
    if fetched.superseded:
        return None
    caught_up = fetched.offset >= state.high_watermark > state.epoch_start
    if not counts(state, voter, fetched) and not caught_up:
        return None
    noted = state.directories.set(voter, directory_id)
    return noted if state.directory_id == NO_DIRECTORY else noted.set(state.node_id, state.directory_id)


def voter_contacted(state: RaftState, voter: int, now: Now) -> RaftState:
    """A voter fetches a snapshot instead of records, which also shows that it runs."""
    progress = state.progress.get(voter) if state.is_leader else None
    if progress is None:
        return state
    return replace(state, progress=state.progress.set(voter, replace(progress, contact_ms=now.ms)))


def flushed(state: RaftState, end_offset: int) -> RaftState:
    """Everything below `end_offset` is on the leader's own disk."""
    return _commit(replace(state, flushed_end=end_offset)) if state.is_leader else state


def _commit(state: RaftState) -> RaftState:
    ends = sorted((state.flushed_end, *(progress.end_offset for progress in state.progress.values())), reverse=True)
    on_majority = ends[state.majority - 1]
    # Only with a record of the current epoch: what earlier leaders left may still be replaced before that (Raft 5.4.2).
    if on_majority > state.epoch_start and on_majority > state.high_watermark:
        return replace(state, high_watermark=on_majority)
    return state


def leader_committed(state: RaftState, high_watermark: int, own_end: int) -> RaftState:
    """The leader's response has the high watermark; a follower takes it as far as its own log goes."""
    committed = min(high_watermark, own_end)
    return replace(state, high_watermark=committed) if committed > state.high_watermark else state
