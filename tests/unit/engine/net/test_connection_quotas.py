"""The connections that may be served at once."""

from __future__ import annotations

import pytest

from backend.engine.config import BrokerConfig
from backend.engine.net.connection_quotas import UNLIMITED, ConnectionLimits, ConnectionQuotas, limits_of


def taken(protected: str | None, **listeners: int) -> ConnectionQuotas:
    slots = ConnectionQuotas(protected)
    for name, count in listeners.items():
        for _ in range(count):
            slots.acquire(name, "here")
    return slots


@pytest.mark.parametrize(
    ("asks", "protected", "free"),
    [("A", None, False), ("A", "A", True), ("B", "A", False), ("B", "B", False)],
)
def test_the_total_holds_up_all_but_the_protected_listener(asks: str, protected: str | None, free: bool) -> None:
    """B has another limit, which holds for a protected one too."""
    limits = ConnectionLimits(total=3, of_listener=2 if asks == "B" else UNLIMITED)
    assert taken(protected, A=1, B=2).is_free(asks, limits) == free


def test_who_goes_makes_room_for_those_who_look() -> None:
    slots = taken(None, A=2)
    looked: list[bool] = []
    slots.on_free.append(lambda: looked.append(slots.is_free("A", ConnectionLimits(total=2))))
    slots.release("A", "here")
    assert looked == [True]
    slots.release("A", "here")
    assert not slots.of_host
    assert slots.total == 0


def test_dynamic_limits_hold_over_those_of_the_file() -> None:
    file = {"max.connections": "9", "max.connections.per.ip": "8", "listener.name.outer.max.connections": "7"}
    config = BrokerConfig.parse(file)
    assert limits_of(config, {}, "OUTER") == ConnectionLimits(9, 8, 7)
    assert limits_of(config, {}, "INNER") == ConnectionLimits(9, 8)
    dynamic = {"max.connections": "3", "listener.name.outer.max.connections": "2"}
    assert limits_of(config, dynamic, "OUTER") == ConnectionLimits(3, 8, 2)
    assert limits_of(config, {"listener.name.outer.max.connections": "some"}, "OUTER") == ConnectionLimits(9, 8)


def test_an_address_may_have_a_limit_of_its_own() -> None:
    config = BrokerConfig.parse({"max.connections.per.ip": "8", "max.connections.per.ip.overrides": "127.0.0.9:3"})
    limits = limits_of(config, {}, "OUTER")
    assert [limits.of_host(host) for host in ("127.0.0.9", "127.0.0.8")] == [3, 8]
    changed = limits_of(config, {"max.connections.per.ip.overrides": "::1:2, localhost:5"}, "OUTER")
    assert [changed.of_host(host) for host in ("::1", "127.0.0.1", "127.0.0.9")] == [2, 5, 8]
