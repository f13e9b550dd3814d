"""The verdicts of the benchmark on its figures: the promises about new replicas, kept or missed."""

from __future__ import annotations

from dataclasses import replace

from tests.benchmarks.bootstrap import Bootstrap, Bootstraps, verdicts

# As measured on Apache Kafka 4.3.1: 731 MB local on the leader, 85 % tiered.
KAFKA = Bootstraps(Bootstrap(4.4, 731.0), Bootstrap(0.7, 107.0), untiered_mb=107.0, segment_mb=36.55)


def test_as_fast_as_kafka_and_no_more_bytes_than_promised_keeps_every_promise() -> None:
    assert [verdict.holds for verdict in verdicts(KAFKA, KAFKA)] == [True, True, True, True]
    assert [verdict.holds for verdict in verdicts(KAFKA, None)] == [True, True]


def test_each_promise_can_be_missed_alone() -> None:
    copies_more = replace(KAFKA, flag_on=Bootstrap(0.7, 144.0))
    assert [verdict.holds for verdict in verdicts(copies_more, KAFKA)] == [False, True, True, True]
    hardly_faster = replace(KAFKA, flag_on=Bootstrap(1.2, 107.0))
    assert [verdict.holds for verdict in verdicts(hardly_faster, hardly_faster)] == [True, False, True, True]
    slow_copy = replace(KAFKA, flag_off=Bootstrap(4.5, 731.0))
    assert [verdict.holds for verdict in verdicts(slow_copy, KAFKA)] == [True, True, False, True]
    slow_start = replace(KAFKA, flag_on=Bootstrap(0.8, 107.0))
    assert [verdict.holds for verdict in verdicts(slow_start, KAFKA)] == [True, True, True, False]
    assert str(verdicts(slow_start, KAFKA)[3]) == "flag on over Apache Kafka, time: 1.14, at most 1.00: MISSED"
