"""State of the bootstrap race while it runs and afterwards. Frozen values: a run is replaced, never changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class RunState(StrEnum):
    """State of a run."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RaceStage(StrEnum):
    """Stages of a run, in this order."""

    CREATE = "create the topic"
    HEAD = "produce the beginning"
    COPY_HEAD = "copy the beginning to the remote tier"
    TRIM = "delete the beginning locally"
    TIERED = "produce what is tiered and local"
    COPY_TIERED = "copy it to the remote tier"
    REST = "produce what is not tiered"
    FLAG_OFF = "add a replica with the flag off"
    REMOVE = "remove the replica"
    FLAG_ON = "add a replica with the flag on"
    CLEAN_UP = "clean up"


@dataclass(frozen=True, slots=True)
class StageBegun:
    """When a run came to a step."""

    at_ms: int
    step: RaceStage


@dataclass(frozen=True, slots=True)
class Position:
    """A replica's offsets at a moment, as the replica itself says (ListOffsets, replica id -2)."""

    at_ms: int
    log_start: int
    local_start: int
    log_end: int


@dataclass(frozen=True, slots=True)
class PhaseSeen:
    """A phase of the new replica, as its broker reported it in `__ebbline_events`."""

    at_ms: int
    phase: str
    target_offset: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Race:
    """One replica from its assignment until it is in the ISR.

    `copied_bytes` is what the leader sent: the new replica's log, to which nothing else was added. `start_offset` is
    where that log begins.
    """

    flag: bool
    began_ms: int
    joined_ms: int
    seconds: float
    start_offset: int
    log_end: int
    copied_bytes: int
    positions: tuple[Position, ...]
    phases: tuple[PhaseSeen, ...]


@dataclass(frozen=True, slots=True)
class Racing:
    """The replica that is on its way: where it stood so far; at most as many positions as an ended race keeps."""

    flag: bool
    began_ms: int
    positions: tuple[Position, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """The leader's log before the races; `pending_upload` is the first offset that is not in the remote tier."""

    log_start: int
    local_start: int
    pending_upload: int
    log_end: int
    local_bytes: int


@dataclass(frozen=True, slots=True)
class BootstrapRun:
    """A run as it is now.

    `produced_bytes` of `total_bytes` tells how far the topic is built. `steps` are those begun so far, the present one
    last: who asks now and then misses none that was short. `racing` is the replica that has not joined yet.
    """

    state: RunState
    step: RaceStage
    started_ms: int
    ended_ms: int | None
    size_bytes: int
    tiered_percent: int
    topic: str
    leader: int
    broker: int
    produced_bytes: int
    total_bytes: int
    leader_log: LeaderLog | None = None
    races: tuple[Race, ...] = ()
    message: str | None = None
    steps: tuple[StageBegun, ...] = ()
    racing: Racing | None = None

    def at(self, step: RaceStage, at_ms: int) -> BootstrapRun:
        """The run in `step`, which it came to at `at_ms` unless it was in it before."""
        steps = self.steps if self.steps and self.step is step else (*self.steps, StageBegun(at_ms, step))
        return replace(self, step=step, steps=steps)
