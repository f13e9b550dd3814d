"""Infers a follower's phase from samples when no broker reports it, with evidence and confidence.

Kafka exposes no fetcher state. Two samples of offsets, the ISR and the leader's ranges leave few explanations; each
rule below names the one it found. The embedded engine reports its phases in `__ebbline_events`; those win.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from backend.tiering.follower_phase import FollowerPhase
from backend.tiering.pending import PendingReason

EXACT: Final = "exact"
INFERRED: Final = "inferred"
# Kafka's fetcher backs off for 1 s (replica.fetch.backoff.ms); five of them without a record is not a pause.
STALL_MS_MIN: Final = 5_000


@dataclass(frozen=True, slots=True)
class ExactPhase:
    """The newest phase event of a replica."""

    phase: FollowerPhase
    since_ms: int
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FollowerObservation:
    """Observation of a follower and of its leader in one round."""

    at_ms: int
    in_isr: bool
    reachable: bool
    log_start: int | None
    local_start: int | None
    log_end: int | None
    leader_log_start: int | None
    leader_local_start: int | None
    leader_log_end: int | None
    tiered: bool
    flag: bool | None = None  # follower.fetch.last.tiered.offset.enable on the follower's broker
    pending_reason: PendingReason | None = None
    exact: ExactPhase | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class FollowerMemory:
    """State of a follower that is kept from round to round."""

    phase: FollowerPhase | None = None
    since_ms: int = 0
    log_end: int | None = None
    moved_ms: int = 0  # last time its log end was seen to change


@dataclass(frozen=True, slots=True)
class PhaseConclusion:
    """A phase and where it comes from; `phase` None: not known, and the evidence says why."""

    phase: FollowerPhase | None
    since_ms: int
    source: str
    evidence: Mapping[str, Any]


def infer_phase(
    memory: FollowerMemory | None, observation: FollowerObservation, *, stall_ms: int = STALL_MS_MIN
) -> tuple[FollowerMemory, PhaseConclusion]:
    """The follower's phase now, and what to remember for the next round."""
    before = memory or FollowerMemory(moved_ms=observation.at_ms)
    moved = observation.log_end is not None and observation.log_end != before.log_end
    now = replace(
        before,
        log_end=observation.log_end if observation.log_end is not None else before.log_end,
        moved_ms=observation.at_ms if moved else before.moved_ms,
    )
    if observation.exact is not None and observation.reachable and not observation.in_isr:
        exact = observation.exact
        evidence = {"rule": "event", "sentence": "The broker reported it.", "confidence": "exact", **exact.evidence}
        now = replace(now, phase=exact.phase, since_ms=exact.since_ms)
        return now, PhaseConclusion(exact.phase, exact.since_ms, EXACT, evidence)
    phase, source, evidence = _explain(before, observation, observation.at_ms - now.moved_ms, stall_ms)
    if memory is None or phase is not before.phase:
        now = replace(now, phase=phase, since_ms=observation.at_ms)
    return now, PhaseConclusion(phase, now.since_ms, source, evidence)


def phase_unchanged(memory: FollowerMemory, *, in_isr: bool, reachable: bool, log_end: int | None) -> bool:
    """Whether nothing is new of a follower in the ISR, so that `conclude` would give `memory` and `in_sync`."""
    in_sync_before = memory.phase is FollowerPhase.IN_SYNC
    return in_isr and reachable and in_sync_before and log_end in (None, memory.log_end)


def unchanged_conclusion(memory: FollowerMemory) -> PhaseConclusion:
    """The conclusion about a follower in the ISR."""
    return PhaseConclusion(FollowerPhase.IN_SYNC, memory.since_ms, EXACT, _in_isr())


def _in_isr() -> dict[str, Any]:
    return _evidence("in-isr", "It is in the ISR.", "exact")


Explanation = tuple[FollowerPhase | None, str, dict[str, Any]]


def _explain(before: FollowerMemory, observation: FollowerObservation, still_ms: int, stall_ms: int) -> Explanation:
    if not observation.reachable:
        return None, INFERRED, _evidence("unreachable", observation.error or "Its broker does not answer.", "high")
    if observation.in_isr:
        return FollowerPhase.IN_SYNC, EXACT, _in_isr()
    if observation.log_end is None:
        return (
            None,
            INFERRED,
            _evidence("no-answer", observation.error or "Its broker does not know the replica.", "high"),
        )
    if before.log_end is not None and observation.log_end < before.log_end:
        sentence = f"Its log end went back from {before.log_end} to {observation.log_end}."
        return FollowerPhase.TRUNCATING, INFERRED, _evidence("log-end-fell", sentence, "high")
    if _must_rebuild(observation):
        return _rebuilding(observation, still_ms, stall_ms)
    behind = None if observation.leader_log_end is None else max(0, observation.leader_log_end - observation.log_end)
    if before.log_end is not None and observation.log_end > before.log_end:
        sentence = f"Its log end moved from {before.log_end} to {observation.log_end}."
        if before.log_end == 0 and _began_at_tier(observation):
            sentence = (
                f"It began at offset {observation.local_start} instead of {observation.log_start}: the rest is remote."
            )
        return FollowerPhase.FETCHING, INFERRED, _evidence("log-end-rose", sentence, "high", behind=behind)
    if behind and still_ms >= stall_ms:
        sentence = f"Its log end has stood at {observation.log_end} for {still_ms // 1000} s while the leader is ahead."
        return FollowerPhase.DELAYED, INFERRED, _evidence("log-end-still", sentence, "medium", behind=behind)
    return FollowerPhase.FETCHING, INFERRED, _evidence("not-in-isr", "It is not in the ISR yet.", "low", behind=behind)


def _must_rebuild(observation: FollowerObservation) -> bool:
    """An empty replica whose leader no longer holds the beginning on disk: error 109, then aux state (KIP-405)."""
    return (
        observation.tiered
        and observation.log_end == 0
        and observation.leader_log_end is not None
        and observation.leader_log_end > 0
        and observation.leader_local_start is not None
        and observation.leader_local_start > 0
    )


def _began_at_tier(observation: FollowerObservation) -> bool:
    return (
        observation.log_start is not None
        and observation.local_start is not None
        and observation.local_start > observation.log_start
    )


def _rebuilding(observation: FollowerObservation, still_ms: int, stall_ms: int) -> Explanation:
    if still_ms < stall_ms:
        sentence = "It is empty and its leader holds the older records only in the remote tier."
        return FollowerPhase.BUILDING_REMOTE_AUX, INFERRED, _evidence("empty-behind-tier", sentence, "medium")
    rule, sentence = _why_stuck(observation, still_ms)
    return FollowerPhase.DELAYED, INFERRED, _evidence(rule, sentence, "high" if rule != "empty-still" else "medium")


def _why_stuck(observation: FollowerObservation, still_ms: int) -> tuple[str, str]:
    """A trap of Kafka 4.3.1, or that it is just still."""
    trap = bootstrap_trap(
        observation.flag, observation.pending_reason, observation.leader_log_start, observation.leader_local_start
    )
    if trap is not None:
        return trap
    return "empty-still", f"It has been empty for {still_ms // 1000} s; its attempts to rebuild from the tier fail."


def bootstrap_trap(
    flag: bool | None, pending_reason: str | None, leader_log_start: int | None, leader_local_start: int | None
) -> tuple[str, str] | None:
    """The one of Kafka 4.3.1's two traps that keeps an empty replica out while the flag is on, as (rule, sentence)."""
    if flag and pending_reason == PendingReason.ALL_COPIED:
        return "never-joins-all-copied", (
            "Everything is in the remote tier, so the leader names no offset to start at. "
            "It joins after one more record, or with follower.fetch.last.tiered.offset.enable off on its broker."
        )
    if flag and leader_log_start == leader_local_start:
        return "never-joins-nothing-remote", (
            "Nothing that is still valid is in the remote tier. "
            "It joins with follower.fetch.last.tiered.offset.enable off on its broker."
        )
    return None


def _evidence(rule: str, sentence: str, confidence: str, **facts: object) -> dict[str, Any]:
    return {"rule": rule, "sentence": sentence, "confidence": confidence, **facts}
