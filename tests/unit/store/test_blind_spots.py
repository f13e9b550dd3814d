"""The one list of what the product does not see: each blind spot, since when, and how bad it is."""

from __future__ import annotations

from typing import Any

import pytest

from backend.store.blind_spots import UNWATCHED_MS_MIN, BlindSpot, DatabaseSilence, blind_spots, observer_sight
from backend.store.queries.health import ProcessHealth

NOW_MS = 1_000_000_000
SEES = observer_sight((), tiers_hidden=False, unjudged_since_ms=None)


def process(name: str, *, age_ms: int = 1_000, state: str = "running", **detail: Any) -> ProcessHealth:
    return ProcessHealth(name, 1, NOW_MS - 600_000, NOW_MS - age_ms, 2_000, state, None, detail, 1, age_ms)


def spots(
    *, offsets_age_ms: int | None = 2_000, database: DatabaseSilence | None = None, **processes: ProcessHealth
) -> list[BlindSpot]:
    healthy = {name: process(name) for name in ("backend", "pipeline", "observer")}
    return blind_spots(
        healthy | processes, offsets_age_ms=offsets_age_ms, interval_ms=2_000, now_ms=NOW_MS, database=database
    )


def test_a_product_that_sees_all_has_no_blind_spot() -> None:
    assert spots(observer=process("observer", **SEES)) == []


@pytest.mark.parametrize(
    ("given", "slug", "since_ms"),
    [
        ({"backend": process("backend", age_ms=6_001)}, "backend-down", NOW_MS - 6_001),
        ({"observer": process("observer", state="failed")}, "observer-down", NOW_MS - 1_000),
        ({"offsets_age_ms": 10_001}, "samples-stale", NOW_MS - 10_001),
        ({"pipeline": process("pipeline", age_ms=6_001)}, "pipeline-down", NOW_MS - 6_001),
        ({"database": DatabaseSilence(NOW_MS - 9_000, "It is locked.")}, "database-away", NOW_MS - 9_000),
    ],
)
def test_each_part_that_is_silent_is_critical_and_says_since_when(
    given: dict[str, Any], slug: str, since_ms: int
) -> None:
    (spot,) = spots(**given)
    assert (spot.slug, spot.severity, spot.since_ms) == (slug, "critical", since_ms)


@pytest.mark.parametrize(("tiers_hidden", "severity"), [(True, "critical"), (False, "notice")])
def test_missing_rights_are_named_and_blind_where_they_hide_the_tiers(tiers_hidden: bool, severity: str) -> None:
    missing = observer_sight(["Describe on Topic `*`"], tiers_hidden=tiers_hidden, unjudged_since_ms=None)
    (spot,) = spots(observer=process("observer", **missing))
    assert (spot.slug, spot.severity) == ("rights-missing", severity)
    assert spot.headline == "Rights are missing: Describe on Topic `*`"


def unjudged(for_ms: int) -> ProcessHealth:
    return process("observer", **observer_sight((), tiers_hidden=False, unjudged_since_ms=NOW_MS - for_ms))


def test_rounds_that_are_not_judged_are_a_blind_spot_that_a_silent_database_explains() -> None:
    assert spots(observer=unjudged(UNWATCHED_MS_MIN)) == []
    late_ms = UNWATCHED_MS_MIN + 1
    (spot,) = spots(observer=unjudged(late_ms))
    assert (spot.slug, spot.severity, spot.since_ms) == ("rounds-unjudged", "critical", NOW_MS - late_ms)
    silent = DatabaseSilence(NOW_MS - late_ms, "It is locked.")
    assert [spot.slug for spot in spots(observer=unjudged(late_ms), database=silent)] == ["database-away"]


def test_an_observer_that_is_silent_says_nothing_of_rights_any_more() -> None:
    missing = observer_sight(["Describe on Topic `*`"], tiers_hidden=True, unjudged_since_ms=NOW_MS - 900_000)
    assert [s.slug for s in spots(observer=process("observer", age_ms=60_000, **missing))] == ["observer-down"]
