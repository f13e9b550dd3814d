"""The bars of local depth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.components.follower import local_depth
from app.components.follower.local_depth import Depth

HOUR_MS = 3_600_000
LEADER = Depth("orders-7", 2, True, 4 * HOUR_MS, deepest_ms=4 * HOUR_MS)
THIN = Depth("orders-7", 5, False, HOUR_MS // 10, deepest_ms=4 * HOUR_MS)


@pytest.mark.parametrize(
    ("changed", "thin"),
    [
        ({}, True),
        ({"whole": True}, False),
        ({"leads": True}, False),
        ({"depth_ms": None}, False),
        ({"depth_ms": HOUR_MS}, False),
        ({"deepest_ms": HOUR_MS // 6}, False),
    ],
)
def test_less_than_an_hour_is_thin_where_another_replica_holds_more(changed: dict[str, Any], thin: bool) -> None:
    assert replace(THIN, **changed).thin is thin


def test_bars_share_one_scale_and_what_is_not_known_has_none() -> None:
    shown = local_depth.html([LEADER, THIN, Depth("<i>-0", 3, False, None)])
    assert "orders-7 · b2, leader" in shown
    assert "width:60.0%" in shown
    assert "width:1.5%" in shown
    assert "6 m thin" in shown
    assert "&lt;i&gt;-0 · b3" in shown
    assert list(local_depth.rows([LEADER, THIN])["local depth, s"]) == [14_400, 360]
