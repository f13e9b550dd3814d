"""The benchmark's rows: each target met, missed or not measured, and all of it within 45 minutes."""

from __future__ import annotations

from tests.benchmarks import alone, rounds
from tests.benchmarks.__main__ import row
from tests.benchmarks.rounds import Figures
from tests.benchmarks.verdicts import MET, MISSED, NONE, NOT_MEASURED, Target, verdict_alone
from tests.benchmarks.works import WORKS

FIVE_SLOW, FIVE_FAST = [9.0, 10.0, 10.0, 11.0, 90.0], [1.0, 20.0, 20.0, 21.0, 22.0]


def test_medians_are_compared_and_the_better_way_is_the_works_own() -> None:
    assert Target(2.0).verdict(FIVE_FAST, FIVE_SLOW) == MET
    assert Target(2.1).verdict(FIVE_FAST, FIVE_SLOW) == MISSED
    assert Target(0.5, higher_is_better=False).verdict(FIVE_SLOW, FIVE_FAST) == MET
    assert Target(0.4, higher_is_better=False).verdict(FIVE_SLOW, FIVE_FAST) == MISSED


def test_a_figure_of_its_own_must_be_reached_as_well() -> None:
    assert Target(0.7, 15_000).verdict([16_000], [20_000]) == MET
    assert Target(0.7, 15_000).verdict([14_000], [10_000]) == MISSED
    assert Target(0.7, 15_000).verdict([16_000], [30_000]) == MISSED
    assert str(Target(0.7, 15_000)) == ">= 0.7x and >= 15,000"


def test_without_apache_kafka_a_ratio_is_not_measured_but_a_miss_stays_one() -> None:
    assert Target(1.0).verdict([1.0], []) == NOT_MEASURED
    assert Target(0.7, 15_000).verdict([16_000], []) == NOT_MEASURED
    assert Target(0.7, 15_000).verdict([14_000], []) == MISSED
    assert Target(1.0).verdict([], [1.0]) == NOT_MEASURED
    assert Target().verdict([1.0], [1.0]) == NONE


def test_a_row_of_the_json_has_its_verdict_and_a_failure_is_no_verdict() -> None:
    work = next(work for work in WORKS if work.group == "start")
    figures = Figures(ours={work.name: [1.2]}, theirs={work.name: [8.5]})
    result = row(work, figures)
    assert (result["verdict"], result["target"], result["rounds"]) == (MET, "<= 0.15x", 1)
    assert round(result["ratio"], 2) == 0.14
    figures.failures[work.name] = "Apache Kafka: it broke"
    assert row(work, figures)["verdict"] == NOT_MEASURED


def test_the_limit_in_a_name_is_what_a_figure_alone_is_held_against() -> None:
    assert verdict_alone("restart, s (target: 10)", 9.9) == MET
    assert verdict_alone("restart, s (target: 10)", 10.1) == MISSED
    assert verdict_alone("create, s", 10.1) == NONE
    assert verdict_alone("events/s (target: at least 45000)", 45_001) == MET
    assert verdict_alone("events/s (target: at least 45000)", 44_999) == MISSED


def test_every_group_has_a_time_to_end_in_and_all_of_them_together_take_45_minutes() -> None:
    assert {work.group for work in WORKS} == rounds.BUDGETS_S.keys()
    assert len({work.name for work in WORKS}) == len(WORKS)
    seconds_for_starts = 60
    always = [seconds for group, seconds in alone.BUDGETS_S.items() if group not in alone.ON_REQUEST]
    assert sum(rounds.BUDGETS_S.values()) + sum(always) + seconds_for_starts <= 45 * 60
