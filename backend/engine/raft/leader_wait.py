"""The voters that a voter waits for while there is no leader: logged now and then, as nothing else works meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backend.engine.raft.quorum_state import NOBODY, VoterStanding
from backend.engine.raft.raft_state import RaftState

CHECK_MS: Final = 5_000.0
# The same sentence is logged again after this time.
REPEAT_MS: Final = 60_000.0
# Older responses do not count: a voter sends Vote at least every two election timeouts, 2 s by default.
ANSWER_LASTS_MS: Final = 10_000.0


class LeaderWait:
    """One per voter. All methods on the loop's thread."""

    def __init__(self, node_id: int, voters: Sequence[int]) -> None:
        self._node_id = node_id
        self._others = tuple(voter for voter in voters if voter != node_id)
        # Voter → when it answered a vote last, and whether it was catching up.
        self._vote_responses: dict[int, tuple[float, bool]] = {}
        self._leaderless_checks = 0
        self._contact_ms = self._logged_ms = 0.0
        # The reason why there is no leader; None while there is one.
        self.text: str | None = None

    def answered(self, voter: int, abstains: bool, now_ms: float) -> None:
        """A voter has answered a vote."""
        self._vote_responses[voter] = now_ms, abstains

    def leader_contacted(self, now_ms: float) -> None:
        """A leader has answered."""
        self._contact_ms = now_ms

    def check(self, state: RaftState, now_ms: float) -> str | None:
        """The sentence to be logged now; None when a leader is heard, or was lately, or there is nothing new to say."""
        if state.is_leader or (state.leader_id != NOBODY and now_ms - self._contact_ms < CHECK_MS):
            self._leaderless_checks, self.text = 0, None
            return None
        self._leaderless_checks += 1
        if self._leaderless_checks < 2:
            return None
        text = self._explain(state, now_ms)
        if text == self.text and now_ms - self._logged_ms < REPEAT_MS:
            return None
        self.text, self._logged_ms = text, now_ms
        return text

    def _explain(self, state: RaftState, now_ms: float) -> str:
        if state.standing is VoterStanding.CATCHING_UP:
            return (
                f"Node {self._node_id} waits for a leader of the metadata quorum: its own copy is not all that it had,"
                f" so it neither votes nor leads before it has caught up. Start {_list(self._others)}"
            )
        recent = {
            voter: how for voter, (at_ms, how) in self._vote_responses.items() if now_ms - at_ms < ANSWER_LASTS_MS
        }
        silent = [voter for voter in self._others if voter not in recent]
        abstaining = [voter for voter in self._others if recent.get(voter)]
        text = f"Node {self._node_id} waits for a leader of the metadata quorum."
        if silent:
            text += f" Not heard: {_list(silent)}; start {'it' if len(silent) == 1 else 'them'}."
        if abstaining:
            text += (
                f" Without all of what it had, and so without a vote until a leader has brought it up to date:"
                f" {_list(abstaining)}."
            )
        if state.standing is VoterStanding.FORMING:
            text += (
                " Its own folder is empty: it joins the quorum that the others have, and a new quorum is made only by"
                " all its voters together."
            )
        return text


def _list(voters: Sequence[int]) -> str:
    return f"voter {voters[0]}" if len(voters) == 1 else "voters " + ", ".join(map(str, voters))
