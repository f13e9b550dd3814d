"""Rates over windows and token buckets, with the figures that Kafka's Rate, SimpleRate and TokenBucket give."""

from __future__ import annotations

import pytest

from backend.engine.common.rates import TokenBucket, WindowedRate, Windows

START_MS = 1_000_000.0


def test_time_before_the_first_record_counts_as_idle() -> None:
    rate = WindowedRate(Windows(11, 1000))
    rate.record(1000, START_MS)
    # Ten full windows, none of which has passed.
    assert rate.rate(START_MS) == pytest.approx(100)
    assert rate.rate(START_MS + 500) == pytest.approx(1000 / 10.5)


def test_a_simple_rate_counts_one_window_only() -> None:
    rate = WindowedRate(Windows(11, 1000), simple=True)
    rate.record(1000, START_MS)
    assert rate.rate(START_MS) == pytest.approx(1000)
    assert rate.rate(START_MS + 2000) == pytest.approx(500)


def test_records_leave_the_rate_when_their_windows_have_passed() -> None:
    rate = WindowedRate(Windows(3, 1000))
    rate.record(300, START_MS)
    rate.record(200, START_MS + 1500)
    assert rate.rate(START_MS + 2000) == pytest.approx(250)
    # The first record is gone; of the two full windows that count at least one has passed since the second.
    assert rate.rate(START_MS + 3000) == pytest.approx(200 / 2.5)
    assert rate.rate(START_MS + 4500) == 0


def test_a_client_waits_until_the_rate_has_fallen_to_its_bound() -> None:
    rate = WindowedRate(Windows(11, 1000))
    rate.record(2000, START_MS)
    # 200 a second over ten: at 100 a second that takes twenty.
    assert rate.throttle_ms(100, START_MS) == 10_000
    assert rate.throttle_ms(200, START_MS) == 0


def test_a_record_that_is_taken_back_leaves_no_trace() -> None:
    rate = WindowedRate(Windows(11, 1000))
    rate.record(2000, START_MS)
    rate.record(-2000, START_MS)
    assert rate.rate(START_MS) == 0


def test_a_rate_remembers_no_more_than_its_windows() -> None:
    rate = WindowedRate(Windows(3, 1000))
    for second in range(100):
        rate.record(10, START_MS + second * 1000)
    assert rate.rate(START_MS + 99_000) == pytest.approx(30 / 2.0)


def test_a_bucket_is_full_at_first_and_fills_at_its_rate() -> None:
    bucket = TokenBucket(Windows(11, 1000), 5.0, START_MS)
    assert bucket.tokens(START_MS) == 55
    bucket.take(60, START_MS)
    assert bucket.tokens(START_MS) == -5
    assert bucket.throttle_ms(START_MS) == 1000
    assert bucket.throttle_ms(START_MS + 1000) == 0
    assert bucket.tokens(START_MS + 3_600_000) == 55


def test_a_bucket_keeps_what_is_left_when_its_rate_changes() -> None:
    bucket = TokenBucket(Windows(2, 1000), 10.0, START_MS)
    bucket.take(5, START_MS)
    bucket.set_rate(100.0, START_MS)
    assert bucket.tokens(START_MS) == 15
    bucket.set_rate(1.0, START_MS)
    assert bucket.tokens(START_MS) == 2
