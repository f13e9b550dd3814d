"""A broker that comes and goes is one finding, which ends when the broker has answered for a minute."""

from __future__ import annotations

from backend.control.findings.broker_absences import BrokerAbsences, RepeatedAbsence
from backend.control.findings.evaluate import candidates
from backend.control.findings.thresholds import DEFAULTS
from tests.unit.control.findings.rule_cases import rules
from tests.unit.control.findings.sights import NOW_MS, broker, context


def absences_after(*probes: tuple[float, bool]) -> BrokerAbsences:
    """The absences of a broker that was reachable at first, then as given, by second."""
    absences, was_reachable = BrokerAbsences(), True
    for now_s, reachable in probes:
        absences = absences.next(was_reachable=was_reachable, reachable=reachable, now_s=now_s, limits=DEFAULTS)
        was_reachable = reachable
    return absences


TWICE = [(100.0, False), (103.0, False), (110.0, True), (130.0, False), (140.0, True)]


def test_the_third_absence_soon_after_the_others_is_one_too_many() -> None:
    assert absences_after(*TWICE).repeated(141.0, DEFAULTS) is None
    third = absences_after(*TWICE, (160.0, False))
    assert third.repeated(161.0, DEFAULTS) == RepeatedAbsence(3, 61_000, None)
    back = absences_after(*TWICE, (160.0, False), (170.0, True))
    assert back.repeated(180.0, DEFAULTS) == RepeatedAbsence(3, 80_000, 10_000)


def test_a_broker_that_has_answered_for_a_minute_is_back() -> None:
    back = absences_after(*TWICE, (160.0, False), (170.0, True), (229.0, True))
    assert back.repeated(229.0, DEFAULTS) is not None
    assert absences_after(*TWICE, (160.0, False), (170.0, True), (230.0, True)) == BrokerAbsences()
    assert absences_after(*TWICE, (200.0, False)).repeated(201.0, DEFAULTS) is None


def test_a_broker_that_comes_and_goes_stays_one_finding_while_it_answers() -> None:
    away = rules(
        brokers=[broker(1, reachable=False, error="Connection refused.")],
        repeated_absences={1: RepeatedAbsence(3, 61_000, None)},
    )["broker-away"]
    assert "away 3 times in 1 m 1 s. Connection refused." in away.why
    back = rules(brokers=[broker(1)], repeated_absences={1: RepeatedAbsence(3, 80_000, 10_000)})["broker-away"]
    assert back.key == away.key
    assert back.sentence == "Broker 1 comes and goes"
    assert back.why == "It has answered for 10 s, and was away 3 times in 1 m 20 s."
    assert back.action == away.action
    assert "another start changes nothing" in back.action


def test_brokers_that_are_all_away_are_left_to_the_finding_of_the_cluster_for_a_moment() -> None:
    away = {"reachable": False, "error": "Connection refused."}
    one_left = candidates(context(brokers=[broker(1, **away), broker(2)]))
    assert one_left["broker-away", "broker 1"].for_ms == 0

    def hold_ms(silent_ms: int) -> int:
        silent = away | {"seen_ms": NOW_MS - silent_ms}
        given = candidates(context(brokers=[broker(1, **silent), broker(2, **silent)]))
        return given["broker-away", "broker 2"].for_ms

    assert hold_ms(3_999) == 4_000
    assert (
        candidates(context(brokers=[broker(1, **away), broker(2)], back_ms=1))["broker-away", "broker 1"].for_ms
        == 3_000
    )
    assert hold_ms(4_000) == 0, "brokers that hang are silent for as long before they count as away"
