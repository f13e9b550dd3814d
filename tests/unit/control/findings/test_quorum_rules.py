"""The metadata quorum without a majority, with a hung leader, and by a clock that differs from ours."""

from __future__ import annotations

from typing import Any

import pytest

from backend.control.findings.evaluate import candidates
from backend.control.findings.finding_context import Candidate, FindingKey
from backend.control.gateway.requests.quorum_requests import QuorumReplicaState
from tests.unit.control.findings.sights import NOW_MS, broker, context

QUORUM = ("voter-away", "quorum")


def voter(node_id: int, fetched_ms: int = NOW_MS) -> QuorumReplicaState:
    return QuorumReplicaState(node_id, "voter", 100, fetched_ms, fetched_ms)


def judged(**more: Any) -> dict[FindingKey, Candidate]:
    return dict(candidates(context(**more)))


def test_a_quorum_that_lost_its_majority_is_critical_and_names_what_must_run() -> None:
    silent: dict[str, Any] = {"quorum_silent_since_ms": NOW_MS - 16_000, "quorum_ms": NOW_MS - 16_000}
    candidate = judged(**silent, quorum_replicas=[voter(4), voter(5), voter(6)])[QUORUM]
    assert candidate.severity == "critical"
    assert "a majority, 2 of 3 voters, must run" in candidate.why
    assert "no leader can be elected" in candidate.why
    assert candidate.action.startswith("See which of the controllers 4, 5, 6 do not run, and start them again")
    assert candidate.for_ms == 15_000


@pytest.mark.parametrize(("leader_id", "for_ms"), [(3, 45_000), (1, 15_000)])
def test_a_leader_that_is_a_broker_and_hangs_may_have_a_successor(leader_id: int, for_ms: int) -> None:
    """Brokers of Apache Kafka wait 30 s for the one that hangs."""
    candidate = judged(
        quorum_silent_since_ms=NOW_MS - 1,
        quorum_leader_id=leader_id,
        quorum_replicas=[voter(1), voter(2), voter(3)],
        brokers=[broker(1), broker(2), broker(3, reachable=False, error="It does not answer.")],
    )[QUORUM]
    assert candidate.for_ms == for_ms


def test_a_majority_of_voters_on_brokers_that_hang_is_critical_within_5_s_and_names_them() -> None:
    hung = {"reachable": False, "error": "It does not answer."}
    candidate = judged(
        quorum_ms=NOW_MS - 4_000,
        quorum_leader_id=1,
        quorum_replicas=[voter(1), voter(2), voter(3)],
        brokers=[broker(1, **hung), broker(2), broker(3, **hung)],
    )[QUORUM]
    assert (candidate.severity, candidate.for_ms) == ("critical", 4_000)
    assert "Away: 1, 3." in candidate.why
    assert candidate.action == "Start controllers 1, 3 again, each with its own disk."


def test_dedicated_controllers_that_refuse_connections_are_named_at_once() -> None:
    candidate = judged(
        quorum_silent_since_ms=NOW_MS - 2_000,
        quorum_ms=NOW_MS - 4_000,
        quorum_replicas=[voter(4), voter(5), voter(6)],
        quorum_refused=frozenset({4, 5}),
    )[QUORUM]
    assert candidate.for_ms == 0
    assert "1 of 3 voters runs, and a majority, 2, must. Away: 4, 5." in candidate.why
    assert candidate.action == "Start controllers 4, 5 again, each with its own disk."


@pytest.mark.parametrize("skew_ms", [-60_000, 0, 60_000])
def test_voters_are_compared_with_their_leader_and_not_with_our_clock(skew_ms: int) -> None:
    leaders_ms = NOW_MS + skew_ms
    voters = [voter(1, leaders_ms), voter(2, leaders_ms - 500), voter(3, leaders_ms - 5_000)]
    away = [key for key in judged(quorum_ms=NOW_MS, quorum_replicas=voters) if key[0] == "voter-away"]
    assert away == [("voter-away", "voter 3")]


def test_a_quorum_without_a_majority_waits_while_a_cluster_that_was_away_starts() -> None:
    starting: dict[str, Any] = {
        "quorum_ms": NOW_MS - 90_000,
        "quorum_silent_since_ms": NOW_MS - 80_000,
        "quorum_replicas": [voter(1), voter(2), voter(3)],
        "brokers": [broker(1), *(broker(n, reachable=False, error="It does not answer.") for n in (2, 3))],
    }
    assert judged(**starting, back_ms=5_000)[QUORUM].for_ms == 60_000
    assert judged(**starting, back_ms=60_000)[QUORUM].for_ms == 4_000
