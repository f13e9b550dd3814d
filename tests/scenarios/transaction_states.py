"""The states of a transactional id that the table of transactions asks about, and how each is reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from backend.protocol.errors import ErrorCode
from tests.scenarios.transaction_cluster import QUICK, SLOW, TOPIC
from tests.scenarios.transaction_producers import (
    NEW,
    NOBODY,
    Broker,
    Protocol,
    Subject,
    add_old_request,
    add_request,
    end_request,
    init_request,
    quickly,
)

# Of transactions that time out, and how many are left to do so together.
SHORT_TIMEOUT_MS: Final = 3_000
TIMED_OUT: Final = 16

Reach = Callable[[Broker, Protocol, bool], Subject]


def _idle(broker: Broker, protocol: Protocol, worn: bool) -> Subject:
    return broker.subject(QUICK, worn=worn)


def _recovered(broker: Broker, protocol: Protocol, worn: bool) -> Subject:
    return broker.subject(QUICK, worn=worn, recovers=True)


def _open(*, offsets: bool = False) -> Reach:
    def reach(broker: Broker, protocol: Protocol, worn: bool) -> Subject:
        made = broker.subject(QUICK, worn=worn)
        broker.begin(made, protocol, offsets=offsets)
        return made

    return reach


def _ended(commit: bool, *, held: bool = False, offsets: bool = False) -> Reach:
    def reach(broker: Broker, protocol: Protocol, worn: bool) -> Subject:
        made = broker.subject(QUICK, worn=worn)
        broker.begin(made, protocol, held=held, offsets=offsets)
        broker.end(made, protocol, commit=commit)
        return made

    return reach


def _fenced(*, held: bool = False) -> Reach:
    def reach(broker: Broker, protocol: Protocol, worn: bool) -> Subject:
        made = broker.subject(QUICK, worn=worn)
        broker.begin(made, protocol, held=held)
        assert broker.init(made, NOBODY).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        return made

    return reach


def _timed_out(*, held: bool = False) -> Reach:
    # Of each cluster its own.
    waiting: dict[tuple[Broker, Protocol, bool], list[Subject]] = {}

    def reach(broker: Broker, protocol: Protocol, worn: bool) -> Subject:
        mine = waiting.setdefault((broker, protocol, worn), [])
        if not mine:
            for _ in range(1 if held else TIMED_OUT):
                made = broker.subject(QUICK, worn=worn, timeout_ms=SHORT_TIMEOUT_MS)
                broker.begin(made, protocol, held=held)
                mine.append(made)
        made = mine.pop()
        quickly(f"{made} has timed out", lambda: broker.described(made).state != "Ongoing")
        return made

    return reach


def aborted_empty(broker: Broker, protocol: Protocol, worn: bool) -> Subject:
    """Only a client of transaction.version 2 can end what it never began."""
    made = broker.subject(QUICK, worn=worn)
    broker.end(made, NEW, commit=False)
    return made


STATES: Final[dict[str, Reach]] = {
    "Empty": _idle,
    "Empty, recovered": _recovered,
    "Ongoing": _open(),
    "Ongoing, with offsets": _open(offsets=True),
    "CompleteCommit": _ended(True),
    "CompleteCommit, with offsets": _ended(True, offsets=True),
    "CompleteAbort": _ended(False),
    "CompleteAbort, nothing added": aborted_empty,
    "CompleteAbort, fenced": _fenced(),
    "CompleteAbort, timed out": _timed_out(),
}
# While broker 2 is stopped.
HELD_STATES: Final[dict[str, Reach]] = {
    "PrepareCommit": _ended(True, held=True),
    "PrepareCommit, with offsets": _ended(True, held=True, offsets=True),
    "PrepareAbort": _ended(False, held=True),
    "PrepareAbort, fenced": _fenced(held=True),
    "PrepareAbort, timed out": _timed_out(held=True),
}


def by_itself(*, held: bool) -> dict[str, Reach]:
    """The coordinator's own actions, also tested on clusters of a lower transaction.version too."""
    if held:
        return {"PrepareAbort, fenced": _fenced(held=True), "PrepareAbort, timed out": _timed_out(held=True)}
    return {"Ongoing": _open(), "CompleteAbort, fenced": _fenced(), "CompleteAbort, timed out": _timed_out()}


class Storing(NamedTuple):
    """A change that broker 2 would have to replicate: how the state before is reached, and what is sent then."""

    before: Callable[[Broker, Protocol, bool], Subject]
    send: Callable[[Broker, Protocol, Subject], None]


def _before_idle(broker: Broker, protocol: Protocol, worn: bool) -> Subject:
    return broker.subject(SLOW, worn=worn)


def _before_open(broker: Broker, protocol: Protocol, worn: bool) -> Subject:
    made = broker.subject(SLOW, worn=worn)
    broker.begin(made, protocol)
    return made


def _before_ended(broker: Broker, protocol: Protocol, worn: bool) -> Subject:
    made = _before_open(broker, protocol, worn)
    broker.end(made, protocol, commit=True)
    broker.settled(made)
    return made


def _send_add(broker: Broker, protocol: Protocol, subject: Subject) -> None:
    if not protocol.adds_itself:
        broker.cluster.send_behind(add_request(subject, subject.me, (TOPIC, 0)), 5)
    else:
        broker.cluster.send_behind(add_old_request(subject, subject.me, (TOPIC, 0)), 3)


def _send_end(commit: bool) -> Callable[[Broker, Protocol, Subject], None]:
    def send(broker: Broker, protocol: Protocol, subject: Subject) -> None:
        broker.cluster.send_behind(end_request(subject, subject.me, commit), protocol.end)

    return send


def _send_init(broker: Broker, protocol: Protocol, subject: Subject) -> None:
    broker.cluster.send_behind(init_request(subject), 5)


FENCE: Final = "Ongoing, a fence is stored"
STORING: Final[dict[str, Storing]] = {
    "Empty, Ongoing is stored": Storing(_before_idle, _send_add),
    "Empty, Empty is stored": Storing(_before_idle, _send_init),
    "Ongoing, PrepareCommit is stored": Storing(_before_open, _send_end(True)),
    "Ongoing, PrepareAbort is stored": Storing(_before_open, _send_end(False)),
    FENCE: Storing(_before_open, _send_init),
    "CompleteCommit, Empty is stored": Storing(_before_ended, _send_init),
    "CompleteCommit, Ongoing is stored": Storing(_before_ended, _send_add),
}
# As `by_itself`.
STORING_BY_ITSELF: Final = {FENCE: STORING[FENCE]}
