"""A figure of the Overview: its severity is a mark of the figure, never of the change below it."""

from __future__ import annotations

import pytest

from app.components.cluster import tile_card
from app.components.cluster.totals import Tile
from tests.ui.conftest import plain

MARK = '<span class="eb-mark eb-critical" aria-hidden="true">▲</span> '


def test_a_falling_number_that_is_critical_does_not_read_as_a_rise() -> None:
    html = tile_card.html(Tile("Pending upload", "64.2 GB", "−600 kB in 1 h", "critical", ()), "", "")
    assert f'<div class="eb-figure">{MARK}64.2 GB</div>' in html
    assert '<div class="eb-sub">−600 kB in 1 h</div>' in html
    assert html.count("▲") == 1


@pytest.mark.parametrize("change", ["+1.0 kB in 3 m", "−600 kB in 1 h", "unchanged in 1 h"])
def test_a_change_is_quiet_and_says_its_direction_by_its_sign(change: str) -> None:
    text = plain(tile_card.html(Tile("Pending upload", "2 B", change, None, ()), "", ""))
    assert text == f"Pending upload 2 B {change}"


def test_names_are_text_and_the_line_has_one() -> None:
    html = tile_card.html(Tile("<b>", "<i>", "<u>", None, ()), "data:x", "Pending, last hour", old=True)
    assert "<b>" not in html
    assert "<i>" not in html
    assert "<u>" not in html
    assert '<img src="data:x" alt="Pending, last hour">' in html
    assert '<div class="eb-tile eb-old">' in html
