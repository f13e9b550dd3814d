"""The follower's half of an incremental fetch session (KIP-227): values that the leader has are not sent again.

Pure. A request carries only partitions whose values differ from those that the leader has, and the names of those to
forget. Kafka: `FetchSessionHandler`.
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
    """The values of a Fetch request for one partition."""

    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    high_watermark: int
    max_bytes: int


class FetchRequestData(NamedTuple, Generic[K]):
    """One request: the session's id and epoch, partitions with new values, partitions to forget.

    `number` orders requests: a row of an answer counts only if its partition has not been asked for again since.
    `beginning` counts the sessions with this leader: the request belongs to that one.
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
        self._targets: dict[K, FetchTarget] = {}
        self._requested_in: dict[K, int] = {}

    @property
    def established(self) -> bool:
        """Whether the leader keeps our targets."""
        return self._id != NO_SESSION and self._epoch != INITIAL_EPOCH

    def is_current(self, request: FetchRequestData[K]) -> bool:
        """Whether the session is still the one of the request.

        The response to a request of an earlier session says nothing of the new one, whose first request may be under
        way: an error, taken for the new session's, would drop the targets of that request.
        """
        return request.beginning == self._beginning

    def would_change(self, ready: dict[K, FetchTarget]) -> bool:
        """Whether the leader has other values for one of these."""
        return any(self._targets.get(key) != target for key, target in ready.items())

    def would_be_empty(self, not_ready: list[K]) -> bool:
        """Whether no partition would be left in the session without these."""
        return self._targets.keys() <= set(not_ready)

    def target(self, key: K, request: FetchRequestData[K]) -> FetchTarget | None:
        """The request's target of the partition; None when it had none, or when a later request has one."""
        number = self._requested_in.get(key)
        return self._targets[key] if number is not None and number <= request.number else None

    def next_request(self, ready: dict[K, FetchTarget], not_ready: list[K]) -> FetchRequestData[K]:
        """The next request. `ready` are all partitions without an established session, else those that may differ."""
        self._number += 1
        if not self.established:
            self._targets = dict(ready)
            self._requested_in = dict.fromkeys(ready, self._number)
            return FetchRequestData(self._number, self._beginning, self._id, self._epoch, self._targets.copy(), [])
        changed: dict[K, FetchTarget] = {}
        for key, target in ready.items():
            if self._targets.get(key) != target:
                changed[key] = self._targets[key] = target
                self._requested_in[key] = self._number
        forgotten = [key for key in not_ready if self._targets.pop(key, None) is not None]
        for key in forgotten:
            del self._requested_in[key]
        request = FetchRequestData(self._number, self._beginning, self._id, self._epoch, changed, forgotten)
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return request

    def answered(self, request: FetchRequestData[K], error: ErrorCode, session_id: int) -> bool:
        """Takes the session of the response over; False when its results must not be used and a full request is due.

        For requests that are current only.
        """
        if error is not ErrorCode.NONE:
            self.reset(forget_id=error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return False
        if request.epoch == INITIAL_EPOCH:
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
        self._targets = {}
        self._requested_in = {}
