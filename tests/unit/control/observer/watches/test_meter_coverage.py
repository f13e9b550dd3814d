"""Brokers whose metrics are not read: never, or no more, and the blind spot that says so."""

from __future__ import annotations

from typing import Any

from backend.control.observer.watches.broker_numbers import BrokerNumbers
from backend.control.observer.watches.meter_coverage import SILENT_MS, MeterCoverage, remember_coverage
from backend.store.blind_spots import BlindSpot, blind_spots
from backend.store.queries.health import ProcessHealth

SHOWN = {"fetch_errors": 1.0}


def numbers(*shown: int) -> dict[int, BrokerNumbers]:
    return {i: BrokerNumbers(i, 1, SHOWN, None) if i in shown else BrokerNumbers(i) for i in (1, 2)}


def test_a_broker_shows_its_metrics_never_or_no_more() -> None:
    first = remember_coverage(MeterCoverage(), (1, 2), numbers(1), 0)
    assert first.facts(0) == {"never": [2], "stopped": [], "since_ms": None}
    silent = remember_coverage(first, (1, 2), numbers(), 15_000)
    assert silent.facts(SILENT_MS - 1)["stopped"] == []
    assert silent.facts(SILENT_MS) == {"never": [2], "stopped": [1], "since_ms": 0}
    empty = {1: BrokerNumbers(1, 1, {"fetch_errors": None}, "none")}
    assert remember_coverage(MeterCoverage(), (1,), empty, 0).facts(0)["never"] == [1]


def test_a_broker_that_was_away_has_time_to_show_its_metrics_again() -> None:
    first = remember_coverage(MeterCoverage(), (1, 2), numbers(1, 2), 0)
    away = remember_coverage(first, (2,), numbers(2), SILENT_MS)
    assert away.facts(SILENT_MS)["stopped"] == []
    back = remember_coverage(away, (1, 2), numbers(2), 2 * SILENT_MS)
    assert back.facts(2 * SILENT_MS)["stopped"] == []
    assert back.facts(3 * SILENT_MS)["stopped"] == [1, 2]


def spots(meters: dict[str, Any] | None, **more: Any) -> list[BlindSpot]:
    row: dict[str, Any] = {
        "pid": 1,
        "started_ms": 0,
        "updated_ms": 1_000,
        "interval_ms": 2_000,
        "state": "running",
        "message": None,
        "data_version": 1,
        "age_ms": 0,
    }
    detail: dict[str, Any] = {"readers": {"meters": meters}}
    backend = ProcessHealth(process="backend", detail=detail, **row | more)
    pipeline = ProcessHealth(process="pipeline", detail=None, **row)
    processes = {"backend": backend, "pipeline": pipeline}
    return blind_spots(processes, offsets_age_ms=0, interval_ms=2_000, now_ms=1_000)


def test_it_is_a_notice_where_there_never_were_metrics_and_a_warning_where_they_stopped() -> None:
    assert spots(None) == []
    assert spots({"never": [], "stopped": [], "since_ms": None}) == []
    (never,) = spots({"never": [1, 2], "stopped": [], "since_ms": None})
    assert (never.severity, never.headline) == ("notice", "Metrics of broker 1, 2 were never read")
    assert "--broker-metrics" in never.note
    stopped, _ = spots({"never": [1], "stopped": [2], "since_ms": 7})
    assert (stopped.severity, stopped.since_ms) == ("warning", 7)
    assert stopped.headline == "Metrics of broker 2 are not read"
    down = spots({"never": [1], "stopped": [], "since_ms": None}, state="stopped")
    assert {spot.slug for spot in down} == {"backend-down"}
