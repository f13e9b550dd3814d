"""A list that says that it is ranked is ranked now; it stands only below a row that is selected."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import streamlit as st

from app.components.shared.selection import RowOrder, row_order
from backend.store import tables as t
from tests.ui.conftest import Database, open_page, text_of

NOW_MS = 1_000_000


def selected(*rows: int) -> SimpleNamespace:
    return SimpleNamespace(selection=SimpleNamespace(rows=list(rows)))


def test_an_order_stands_while_a_row_is_selected_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    session: dict[str, object] = {}
    monkeypatch.setattr(st, "session_state", session)
    assert row_order("rows", ["a", "b"], "all", NOW_MS) == RowOrder(["a", "b"])
    assert row_order("rows", ["b", "a"], "all", NOW_MS + 5_000) == RowOrder(["b", "a"]), "ranked now"
    session["rows"] = selected(0)
    standing = row_order("rows", ["c", "a", "b"], "all", NOW_MS + 10_000)
    assert standing == RowOrder(["b", "a", "c"], NOW_MS + 5_000), "rows do not move below the selection"
    assert row_order("rows", ["c", "a"], "all", NOW_MS + 15_000) == RowOrder(["a", "c"], NOW_MS + 5_000)
    assert row_order("rows", ["c", "a"], "other", NOW_MS + 15_000) == RowOrder(["c", "a"]), "another question"
    session["rows"] = selected()
    assert row_order("rows", ["c", "b"], "other", NOW_MS + 20_000) == RowOrder(["c", "b"])


def test_the_table_of_partitions_is_ranked_again_with_each_refresh(healthy: Database) -> None:
    page = open_page("partitions", q="orders", view="Table")
    before = list(page.dataframe[0].value.iloc[:, 0])
    current = t.partition_current.c
    last = int(before[-1].rpartition("-")[2])
    worst = (current.topic == "orders") & (current.partition == last)
    healthy.change(
        t.partition_current.update()
        .where(worst)
        .values(earliest_pending_upload_offset=current.local_log_start_offset, local_log_bytes=10**15)
    )
    page.run()
    assert page.dataframe[0].value.iloc[0, 0] == before[-1]
    assert "while a row is selected" not in text_of(page)
