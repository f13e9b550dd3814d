"""The findings that are muted: what they are, until when and by whom, and in which order."""

from __future__ import annotations

from app.components.cluster import muted_list
from tests.ui.conftest import plain
from tests.unit.app.components.cluster.test_alerts import finding
from tests.unit.app.overview_rows import NOW_MS


def test_open_ones_come_first_then_those_whose_silence_ends_first() -> None:
    rows = [
        finding("offline", "orders-0", id=1, muted_until_ms=NOW_MS + 3_000),
        finding("offline", "orders-1", id=2, muted_until_ms=NOW_MS + 2_000),
        finding("offline", "orders-2", id=3, muted_until_ms=NOW_MS + 1_000, closed_ms=NOW_MS - 1),
        finding("offline", "orders-3", id=4, muted_until_ms=NOW_MS),
        finding("offline", "orders-4", id=5),
    ]
    lines = muted_list.lines(rows, {"offline orders-1": "ada"}, NOW_MS)
    assert [(line.finding_id, line.by, line.is_open) for line in lines] == [
        (2, "ada", True),
        (1, "", True),
        (3, "", False),
    ]


def test_a_line_says_until_when_and_by_whom_as_text() -> None:
    [line] = muted_list.lines(
        [finding("offline", id=1, sentence="<b>No leader", muted_until_ms=NOW_MS + 1, closed_ms=NOW_MS)],
        {"offline orders-0": "<i>ada"},
        NOW_MS,
    )
    html = muted_list.line_html(line, lambda at_ms: f"at {at_ms}")
    assert plain(html) == f"◆ <b>No leader muted until at {NOW_MS + 1} by <i>ada · not open now"
    assert "<b>" not in html
    assert "<i>" not in html
