"""The waiting time of records, as the heartbeat reports it. Without Spark."""

from __future__ import annotations

import pytest

from spark.heartbeat import LAG_VALID_S, lag_now, waited_ms


@pytest.mark.parametrize(
    ("lag", "caught_up_ms", "newest_event_ms", "expected_ms"),
    [
        (None, 900, 900, None),
        (0, None, None, 0),
        (5, None, None, None),
        (5, 900, None, 100),
        (5, None, 400, 600),
        (5, 900, 400, 100),  # nothing waited at 900, however old what was stored
        (5, 200, 400, 600),  # it is catching up, and has come to 400
        (5, 200, 5_000, 800),  # a broker's clock that is ahead
        (5, None, 5_000, None),
    ],
)
def test_a_record_waits_since_nothing_waited_or_since_what_was_stored_last(
    lag: int | None, caught_up_ms: int | None, newest_event_ms: int | None, expected_ms: int | None
) -> None:
    assert waited_ms(1_000, lag, caught_up_ms, newest_event_ms) == expected_ms


def test_a_lag_of_before_a_freeze_is_none_of_now() -> None:
    """With it the ledger passed for complete, and a deletion that had ended long ago for overdue."""
    assert lag_now(0, LAG_VALID_S) == 0
    assert lag_now(0, LAG_VALID_S + 0.1) is None
    assert lag_now(None, 0.1) is None
