"""Phases of followers as dialogues: what two rounds show, what is concluded, how sure."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from backend.tiering.follower_phase import FollowerPhase
from backend.tiering.pending import PendingReason
from backend.tiering.phase_inference import (
    EXACT,
    INFERRED,
    ExactPhase,
    FollowerMemory,
    FollowerObservation,
    PhaseConclusion,
    infer_phase,
)

BASE = FollowerObservation(
    at_ms=100_000,
    in_isr=False,
    reachable=True,
    log_start=0,
    local_start=0,
    log_end=0,
    leader_log_start=0,
    leader_local_start=24_210,
    leader_log_end=52_000,
    tiered=True,
)


def watch(*sights: FollowerObservation, memory: FollowerMemory | None = None) -> list[PhaseConclusion]:
    conclusions = []
    for observation in sights:
        memory, conclusion = infer_phase(memory, observation)
        conclusions.append(conclusion)
    return conclusions


def at(seconds: float, **changes: Any) -> FollowerObservation:
    return replace(BASE, at_ms=BASE.at_ms + round(seconds * 1000), **changes)


def phases(conclusions: list[PhaseConclusion]) -> list[FollowerPhase | None]:
    return [c.phase for c in conclusions]


def test_a_bootstrap_through_the_remote_tier_is_rebuilt_then_fetched_then_in_sync() -> None:
    phase_conclusions = watch(
        at(0),
        at(2, local_start=48_425, log_end=48_425),
        at(4, local_start=48_425, log_end=52_000, in_isr=True),
    )
    assert phases(phase_conclusions) == [
        FollowerPhase.BUILDING_REMOTE_AUX,
        FollowerPhase.FETCHING,
        FollowerPhase.IN_SYNC,
    ]
    assert [c.source for c in phase_conclusions] == [INFERRED, INFERRED, EXACT]
    assert "began at offset 48425" in phase_conclusions[1].evidence["sentence"]


def test_the_time_of_a_phase_is_when_it_was_first_seen() -> None:
    phase_conclusions = watch(
        at(0), at(2), at(4, local_start=48_425, log_end=48_425), at(6, local_start=48_425, log_end=50_000)
    )
    since = [c.since_ms - BASE.at_ms for c in phase_conclusions]
    assert since == [0, 0, 4_000, 4_000]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"flag": True, "pending_reason": PendingReason.ALL_COPIED}, "never-joins-all-copied"),
        (
            {"flag": True, "leader_log_start": 7, "leader_local_start": 7, "leader_log_end": 8},
            "never-joins-nothing-remote",
        ),
        ({"flag": False, "pending_reason": PendingReason.ALL_COPIED}, "empty-still"),
        ({"flag": None}, "empty-still"),
    ],
)
def test_a_replica_that_stays_empty_is_delayed_and_the_known_traps_are_named(
    changes: dict[str, Any], rule: str
) -> None:
    phase_conclusions = watch(at(0, **changes), at(3, **changes), at(6, **changes))
    assert phases(phase_conclusions) == [
        FollowerPhase.BUILDING_REMOTE_AUX,
        FollowerPhase.BUILDING_REMOTE_AUX,
        FollowerPhase.DELAYED,
    ]
    assert phase_conclusions[-1].evidence["rule"] == rule


def test_a_log_end_that_falls_is_a_truncation() -> None:
    phase_conclusions = watch(at(0, log_end=50_000), at(2, log_end=48_000), at(4, log_end=48_500))
    assert phases(phase_conclusions)[1:] == [FollowerPhase.TRUNCATING, FollowerPhase.FETCHING]
    assert "50000 to 48000" in phase_conclusions[1].evidence["sentence"]


def test_a_follower_that_stands_still_behind_its_leader_is_delayed_after_a_while() -> None:
    sights = [at(s, log_end=50_000, leader_log_end=52_000 + s) for s in (0, 2, 4, 6)]
    assert phases(watch(*sights)) == [FollowerPhase.FETCHING] * 3 + [FollowerPhase.DELAYED]


def test_a_follower_that_has_caught_up_is_not_delayed_while_it_waits_for_the_isr() -> None:
    sights = [at(s, log_end=52_000) for s in (0, 4, 8)]
    assert phases(watch(*sights)) == [FollowerPhase.FETCHING] * 3


def test_an_empty_replica_of_a_topic_without_tier_is_just_fetching() -> None:
    assert phases(watch(at(0, tiered=False, leader_local_start=5))) == [FollowerPhase.FETCHING]


def test_an_empty_replica_of_an_empty_leader_has_nothing_to_rebuild() -> None:
    assert phases(watch(at(0, leader_local_start=0, leader_log_end=0))) == [FollowerPhase.FETCHING]


def test_nothing_is_claimed_of_a_broker_that_does_not_answer() -> None:
    phase_conclusions = watch(at(0, in_isr=True, log_end=52_000), at(2, reachable=False, in_isr=True, log_end=None))
    assert phases(phase_conclusions) == [FollowerPhase.IN_SYNC, None]
    assert phase_conclusions[1].evidence["rule"] == "unreachable"


def test_a_reported_phase_wins_over_every_conclusion_but_the_isr() -> None:
    phase = ExactPhase(FollowerPhase.WAITING_FOR_METADATA, 99_000, {"target_offset": 48_425})
    first, second = watch(at(0, exact=phase), at(2, exact=phase, in_isr=True, log_end=52_000))
    assert (first.phase, first.source, first.since_ms) == (FollowerPhase.WAITING_FOR_METADATA, EXACT, 99_000)
    assert first.evidence["target_offset"] == 48_425
    assert second.phase is FollowerPhase.IN_SYNC


def test_a_reported_phase_of_a_broker_that_is_gone_is_not_believed() -> None:
    phase = ExactPhase(FollowerPhase.FETCHING, 99_000, {})
    assert phases(watch(at(0, exact=phase, reachable=False, log_end=None))) == [None]


def test_every_conclusion_carries_its_rule_and_how_sure_it_is() -> None:
    ends: list[int | None] = [None, 0, 10, 5, 52_000]
    for before, after in pairwise(ends):
        for conclusion in watch(at(0, log_end=before), at(6, log_end=after), at(12, log_end=after)):
            assert {"rule", "sentence", "confidence"} <= conclusion.evidence.keys()
