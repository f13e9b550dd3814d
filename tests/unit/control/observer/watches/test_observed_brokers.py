"""Rows of brokers follow what each answers, not only the rounds of samples."""

from __future__ import annotations

from backend.control.findings.finding_context import ClusterSilence
from backend.control.observer.watches.liveness_watch import BrokerLiveness, Liveness
from backend.control.observer.watches.observed_brokers import ObservedBrokers, brokers_now
from backend.store.queries.overview import BrokerRow

REFUSED = "Broker 2 refuses connections."


def row(broker_id: int, *, reachable: bool = True) -> BrokerRow:
    return BrokerRow(broker_id, "localhost", 9092, None, None, False, reachable, None, None, 1_000, 1_000)


def alive(*broker_ids: int, at_ms: int = 2_000) -> dict[int, BrokerLiveness]:
    return {broker_id: BrokerLiveness(broker_id, at_ms) for broker_id in broker_ids}


def test_a_broker_that_died_after_the_round_is_not_up_and_says_since_when() -> None:
    dead = {2: BrokerLiveness(2, 1_500, REFUSED)}
    first, second = brokers_now([row(1), row(2)], Liveness(2_000, alive(1) | dead))
    assert (first.reachable, first.seen_ms) == (True, 2_000)
    assert (second.reachable, second.error, second.seen_ms, second.sampled_ms) == (False, REFUSED, 1_500, 2_000)


def test_a_broker_that_was_not_asked_yet_is_as_it_was() -> None:
    assert brokers_now([row(1)], Liveness(2_000)) == [row(1)]


def test_while_no_broker_answers_none_is_up_also_those_that_this_process_has_never_asked() -> None:
    away = ClusterSilence(1_900, "No broker answered in 3 s.")
    (seen,) = brokers_now([row(1)], Liveness(2_000, away=away))
    assert (seen.reachable, seen.error, seen.seen_ms) == (False, away.reason, 1_000)


def test_rows_are_stored_when_a_broker_dies_and_when_it_is_back_and_not_between() -> None:
    brokers = ObservedBrokers("c1")
    brokers.restore([row(1), row(2)])
    dead = Liveness(2_000, alive(1) | {2: BrokerLiveness(2, 1_500, REFUSED)})
    first, second = brokers.changed(dead)
    assert (first["cluster_id"], first["reachable"], second["broker_id"], second["reachable"]) == ("c1", True, 2, False)
    assert brokers.changed(dead) == []
    assert [stored["reachable"] for stored in brokers.changed(Liveness(3_000, alive(1, 2)))] == [True, True]
    assert brokers.changed(Liveness(4_000, alive(1, 2, at_ms=4_000))) == []
