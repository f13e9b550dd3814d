"""The bars of local depth."""

from __future__ import annotations

from app.components import local_depth
from app.components.local_depth import Depth

HOUR_MS = 3_600_000
LEADER = Depth("orders-7", 2, True, 4 * HOUR_MS)
THIN = Depth("orders-7", 5, False, HOUR_MS // 10)


def test_less_than_an_hour_is_thin_unless_the_log_is_no_longer() -> None:
    young = Depth("orders-8", 1, False, HOUR_MS // 10, whole=True)
    assert [one.thin for one in (LEADER, THIN, young, Depth("x-0", 1, False, None))] == [False, True, False, False]


def test_bars_share_one_scale_and_what_is_not_known_has_none() -> None:
    shown = local_depth.html([LEADER, THIN, Depth("<i>-0", 3, False, None)])
    assert "orders-7 · b2, leader" in shown
    assert "width:60.0%" in shown
    assert "width:1.5%" in shown
    assert "6 m thin" in shown
    assert "&lt;i&gt;-0 · b3" in shown
    assert list(local_depth.rows([LEADER, THIN])["local depth, s"]) == [14_400, 360]
