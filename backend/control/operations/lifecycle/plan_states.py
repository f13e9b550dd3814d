"""The life of a plan, as one table: code, tests and the dashboard read it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class PlanState(StrEnum):
    """State of a plan. "Accepted" means that Kafka took the request; only VERIFIED means that it is in effect."""

    DRAFT = "draft"
    CHECKED = "checked"
    REQUESTED = "requested"
    ACCEPTED = "accepted"
    RUNNING = "running"
    PAUSED = "paused"
    VERIFIED = "verified"
    REFUSED = "refused"
    STOPPED = "stopped"
    FAILED = "failed"
    REVERTED = "reverted"


_S = PlanState
# Repeating a state is no change and not in the table: a step is taken once.
LEGAL: Final[Mapping[PlanState, frozenset[PlanState]]] = {
    _S.DRAFT: frozenset({_S.CHECKED, _S.REFUSED}),
    _S.CHECKED: frozenset({_S.REQUESTED, _S.REFUSED}),
    _S.REQUESTED: frozenset({_S.ACCEPTED, _S.REFUSED, _S.FAILED, _S.VERIFIED}),
    _S.ACCEPTED: frozenset({_S.RUNNING, _S.VERIFIED, _S.FAILED}),
    _S.RUNNING: frozenset({_S.PAUSED, _S.VERIFIED, _S.STOPPED, _S.FAILED}),
    # Paused means no further batch: what was asked for before may come to its end meanwhile.
    _S.PAUSED: frozenset({_S.RUNNING, _S.VERIFIED, _S.STOPPED, _S.FAILED}),
    _S.VERIFIED: frozenset({_S.REVERTED}),
    _S.STOPPED: frozenset({_S.REVERTED}),
    _S.FAILED: frozenset({_S.REVERTED}),
    _S.REFUSED: frozenset(),
    _S.REVERTED: frozenset(),
}

OPEN: Final = frozenset({_S.REQUESTED, _S.ACCEPTED, _S.RUNNING, _S.PAUSED})
"""States in which this process is at work; found at a start, its predecessor was stopped in the middle."""
REVERTIBLE: Final = frozenset({_S.VERIFIED, _S.STOPPED, _S.FAILED})
FINISHED: Final = frozenset({_S.VERIFIED, _S.REFUSED, _S.STOPPED, _S.FAILED, _S.REVERTED})


def sources(to: PlanState) -> frozenset[PlanState]:
    """The states from which `to` may be entered."""
    return frozenset(state for state, following in LEGAL.items() if to in following)
