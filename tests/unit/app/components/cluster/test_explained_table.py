"""The table of all that a finding explains: its link, its rows, its size."""

from __future__ import annotations

from app.components.cluster import explained_table
from tests.ui.conftest import plain
from tests.unit.app.components.cluster.test_alerts import finding
from tests.unit.app.overview_rows import NOW_MS


def test_a_link_names_rule_and_object() -> None:
    assert explained_table.parse_cause("broker-away:broker 3") == ("broker-away", "broker 3")
    # A listener or a folder has a colon, a rule has none.
    assert explained_table.parse_cause("disk-offline:a:b") == ("disk-offline", "a:b")
    assert explained_table.parse_cause(explained_table.cause_text("offline", "orders-0")) == ("offline", "orders-0")
    for text in ("", "broker-away", ":broker 3", "broker-away:"):
        assert explained_table.parse_cause(text) is None


def test_the_first_are_drawn_as_text() -> None:
    rows = [finding("offline", f"orders-{number}", sentence="<b>No leader") for number in range(130)]
    html = explained_table.html(rows, NOW_MS)
    assert html.count("<tr>") == 1 + explained_table.ROWS_MAX
    assert "<b>No leader" not in html
    assert "◆ Warning offline <b>No leader Why. 38 s" in plain(html)
