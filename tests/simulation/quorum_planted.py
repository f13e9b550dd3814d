"""One bug for each promise of the quorum, planted into one function of the engine for one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from backend.engine.apis.fetch import metadata_log_fetch
from backend.engine.broker import raft_manager
from backend.engine.controller.image import snapshot_images
from backend.engine.controller.image.image_records import image_records
from backend.engine.raft import election
from backend.engine.raft.leader_fetch import EndOffsetForEpoch, LogView, decide
from backend.engine.raft.quorum_state import NOBODY, QuorumState, VoterStanding
from backend.engine.raft.raft_state import LogEnd, RaftState
from backend.engine.raft.voter_memory import VoterMemory, judge

Plant = Callable[[pytest.MonkeyPatch], None]


def votes_are_given_twice(patch: pytest.MonkeyPatch) -> None:
    """A node that has voted, or is a candidate itself, votes again in the same epoch."""
    handle_vote = election.handle_vote

    def careless(state: RaftState, vote: Any, log_end: LogEnd, now: Any) -> Any:
        return handle_vote(replace(state, voted_id=NOBODY, leader_id=NOBODY), vote, log_end, now)

    patch.setattr(election, "handle_vote", careless)


def any_log_is_sent_to(patch: pytest.MonkeyPatch) -> None:
    """A leader assumes that a node that fetches has its own log up to there."""

    def careless(request: Any, view: LogView, end_offset_for_epoch: EndOffsetForEpoch) -> Any:
        return decide(request, view, lambda epoch: (request.last_fetched_epoch, request.fetch_offset))

    patch.setattr(metadata_log_fetch, "decide", careless)


def any_log_is_voted_for(patch: pytest.MonkeyPatch) -> None:
    """A vote is given to the first candidate, whatever its log lacks."""
    handle_vote = election.handle_vote

    def careless(state: RaftState, vote: Any, log_end: LogEnd, now: Any) -> Any:
        return handle_vote(state, vote, LogEnd(-1, -1), now)

    patch.setattr(election, "handle_vote", careless)


def snapshots_leave_something_out(patch: pytest.MonkeyPatch) -> None:
    """A snapshot lacks the last of its records."""

    def careless(image: Any) -> Iterator[Any]:
        yield from list(image_records(image))[:-1]

    patch.setattr(snapshot_images, "image_records", careless)


def a_lost_disk_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """A voter whose folder is empty, older or damaged goes on as if it remembered."""

    def careless(stored: Any, damage: Any, end: LogEnd, traces: Any, **ids: bytes) -> VoterMemory:
        kept = stored or QuorumState(leader_epoch=end.epoch)
        return VoterMemory(replace(kept, directory_id=ids["directory_id"], standing=VoterStanding.MEMBER))

    patch.setattr(raft_manager, "judge", careless)


def an_older_copy_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """A voter's note outside its metadata folder is not read."""

    def careless(stored: Any, damage: Any, end: LogEnd, traces: Any, **ids: bytes) -> VoterMemory:
        return judge(stored, damage, end, replace(traces, acknowledged=None), **ids)

    patch.setattr(raft_manager, "judge", careless)


def a_voter_that_catches_up_votes(patch: pytest.MonkeyPatch) -> None:
    """Every voter votes, whatever it remembers."""
    patch.setattr(election, "_is_voter_of", lambda state, vote: True)


# The bug, the promise that it breaks, and from which seed on it is looked for: a little before the first that shows it.
PLANTED: Final[tuple[tuple[Plant, str, int], ...]] = (
    (votes_are_given_twice, "ElectionSafety", 273),
    (any_log_is_sent_to, "LogMatching", 8),
    (any_log_is_voted_for, "LeaderCompleteness", 9),
    (snapshots_leave_something_out, "StateMachineSafety", 1),
    (a_lost_disk_is_not_noticed, "LeaderCompleteness", 162),
    (an_older_copy_is_not_noticed, "LeaderCompleteness", 15),
    (a_voter_that_catches_up_votes, "LeaderCompleteness", 15),
)
