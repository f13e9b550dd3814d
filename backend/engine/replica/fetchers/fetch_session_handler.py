"""The follower's half of an incremental fetch session (KIP-227): what the leader remembers need not be sent again.

Pure. A request carries only partitions whose values differ from what the leader has, and the names of those to forget.
Facts: Kafka's `FetchSessionHandler`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from backend.protocol.errors import ErrorCode

K = TypeVar("K", bound=Hashable)

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
_EPOCH_MAX: Final = 2**31 - 1


class FetchTarget(NamedTuple):
    """What a Fetch request says about one partition."""

    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    high_watermark: int
    max_bytes: int


class FetchRequestData(NamedTuple, Generic[K]):
    """One request: the session's id and epoch, partitions with new values, partitions to forget.

    `number` orders requests: a row of an answer counts only if its partition has not been asked for again since.
    `beginning` tells of which session's beginning it is.
    """

    number: int
    beginning: int
    session_id: int
    epoch: int
    changed: dict[K, FetchTarget]
    forgotten: list[K]


class FetchSessionHandler(Generic[K]):
    """One session with one leader. Requests may overlap; their answers come in order."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._number = 0
        self._beginning = 0
        self._asked: dict[K, FetchTarget] = {}
        self._asked_in: dict[K, int] = {}

    @property
    def established(self) -> bool:
        """Whether the leader remembers what we asked for."""
        return self._id != NO_SESSION and self._epoch != INITIAL_EPOCH

    def is_current(self, turn: FetchRequestData[K]) -> bool:
        """Whether the session has not begun anew since the turn.

        If it has, the turn's answer says nothing of the new session, whose first request may be underway: to take an
        error for the new session's would forget what that request has asked for.
        """
        return turn.beginning == self._beginning

    def would_change(self, wanted: dict[K, FetchTarget]) -> bool:
        """Whether the leader has other values for one of these."""
        return any(self._asked.get(key) != asked for key, asked in wanted.items())

    def would_be_empty(self, unwanted: list[K]) -> bool:
        """Whether nothing would be left to ask for without these."""
        return self._asked.keys() <= set(unwanted)

    def asked(self, key: K, turn: FetchRequestData[K]) -> FetchTarget | None:
        """What the turn asked of the partition; None when it did not, or when a later one has asked again."""
        number = self._asked_in.get(key)
        return self._asked[key] if number is not None and number <= turn.number else None

    def turn(self, wanted: dict[K, FetchTarget], unwanted: list[K]) -> FetchRequestData[K]:
        """The next request. Without an established session `wanted` must be everything; else only what may differ."""
        self._number += 1
        if not self.established:
            self._asked = dict(wanted)
            self._asked_in = dict.fromkeys(wanted, self._number)
            return FetchRequestData(self._number, self._beginning, self._id, self._epoch, self._asked.copy(), [])
        changed: dict[K, FetchTarget] = {}
        for key, asked in wanted.items():
            if self._asked.get(key) != asked:
                changed[key] = self._asked[key] = asked
                self._asked_in[key] = self._number
        forgotten = [key for key in unwanted if self._asked.pop(key, None) is not None]
        for key in forgotten:
            del self._asked_in[key]
        turn = FetchRequestData(self._number, self._beginning, self._id, self._epoch, changed, forgotten)
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return turn

    def answered(self, turn: FetchRequestData[K], error: ErrorCode, session_id: int) -> bool:
        """Takes the answer's session over; False when its rows must not be used and everything is to be asked again.

        For turns that are current only.
        """
        if error is not ErrorCode.NONE:
            self.reset(forget_id=error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return False
        if turn.epoch == INITIAL_EPOCH:
            # 0: the leader has no room for a session; the next request is a full one again.
            self._id = session_id
            self._epoch = 1 if session_id != NO_SESSION else INITIAL_EPOCH
        return True

    def reset(self, *, forget_id: bool = False) -> None:
        """The leader may have lost count of us: the next request is a full one, which also ends the old session."""
        if forget_id:
            self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._beginning += 1
        self._asked = {}
        self._asked_in = {}
