"""The frame of every page: head row, roles, links, and what it says when it cannot show anything."""

from __future__ import annotations

import pytest

from tests.ui.conftest import Database, open_page, text_of, viewer


def test_head_row_names_page_age_brokers_cluster_and_person(healthy: Database) -> None:
    page = open_page()
    assert not page.exception
    shown = text_of(page)
    assert "Overview 412 tiered partitions in 7 topics" in shown
    assert "● Live · " in shown
    assert "✓ 6/6 brokers · metadata +" in shown
    assert page.selectbox(key="cluster").options == ["prod-eu"]
    assert page.button_group(key="range").value == "1h"


@pytest.mark.parametrize("name", ["15m", "1h", "6h", "24h"])
def test_range_comes_from_the_link(healthy: Database, name: str) -> None:
    page = open_page(range=name)
    assert not page.exception
    assert page.button_group(key="range").value == name
    assert f"cluster, last {name}" in text_of(page)


def test_viewer_sees_the_page_and_that_it_is_read_only(healthy: Database) -> None:
    page = open_page(user=viewer())
    assert not page.exception
    assert any("vera@example.com" in note.value for note in page.markdown)
    assert any("Read-only: ask for the operator role." in note.value for note in page.markdown)
