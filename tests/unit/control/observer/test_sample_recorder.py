"""Entries that wait for the database: those without a round are one entry, which says all that each of them said."""

from __future__ import annotations

from backend.control.observer.sample_recorder import ObserverHeartbeat, RecorderEntry


def test_a_sign_of_life_does_not_take_the_place_of_brokers_that_wait_to_be_stored() -> None:
    dead = RecorderEntry(brokers=[{"broker_id": 2, "reachable": False}])
    sign = RecorderEntry(ObserverHeartbeat(2_000, "waiting", "The cluster does not answer."))
    assert sign.with_earlier(dead) == RecorderEntry(sign.heartbeat, brokers=dead.brokers)
    assert dead.with_earlier(sign) == RecorderEntry(sign.heartbeat, brokers=dead.brokers)
    newer = RecorderEntry(ObserverHeartbeat(3_000, "running", None))
    assert newer.with_earlier(sign) == newer
