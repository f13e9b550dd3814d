"""The observer's state: when its numbers are of now, and for how long no round has ended."""

from __future__ import annotations

from backend.control.gateway.requests.rights_requests import CLUSTER, GROUPS, MissingRight
from backend.control.observer.observer_state import ObserverState, round_age, sight


def test_numbers_are_of_now_while_rounds_end_well_and_not_too_long_ago() -> None:
    state = ObserverState(3, 1_000, 50)
    assert state.is_fresh(11_000, 2_000)
    assert not state.is_fresh(11_001, 2_000)
    assert state.is_fresh(300_000, 150_000)
    assert not ObserverState(3, 1_000, 50, away_since_ms=2_000).is_fresh(2_000, 2_000)
    assert not ObserverState().is_fresh(0, 2_000)


def test_the_time_in_which_no_broker_answered_is_no_silence_of_the_observer() -> None:
    assert round_age(120.0, None, 2_000, None).age_ms == 120_000
    assert round_age(120.0, 4_000, 2_000, "It failed.").age_ms == 4_000
    assert round_age(3.0, 40_000, 2_000, None).age_ms == 3_000


def test_a_right_on_groups_hides_no_tier() -> None:
    assert sight((), 0, 9_000) == {"missing_rights": [], "tiers_hidden": False, "unjudged_since_ms": None}
    groups = MissingRight("Describe", GROUPS)
    assert sight((groups,), 4_000, 9_000) == {
        "missing_rights": ["Describe on Group `*`"],
        "tiers_hidden": False,
        "unjudged_since_ms": 5_000,
    }
    assert sight((groups, MissingRight("Describe", CLUSTER)), 0, 9_000)["tiers_hidden"]
