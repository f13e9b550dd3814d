"""Exported files: names, tables that keep their facts, a report that stands alone and runs nothing."""

from __future__ import annotations

import io
import re

import pandas as pd
import pytest

from app.components.shared import export
from app.components.shared.export import Section
from app.theme import LIGHT
from tests.unit.app.overview_rows import view

HOSTILE = "<script>alert('x')</script>💥"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-7 Offsets by tier", "ebbline-orders-7-Offsets-by-tier.csv"),
        ("../../etc/passwd", "ebbline-etc-passwd.csv"),
        ("💥", "ebbline-table.csv"),
    ],
)
def test_a_file_is_named_after_what_it_holds_and_safely(name: str, expected: str) -> None:
    assert export.file_name(name, "csv") == expected


def test_a_topic_of_249_characters_gives_a_name_that_every_file_system_takes() -> None:
    assert len(export.file_name("t" * 249 + "-0", "parquet")) < 160


def test_csv_keeps_names_and_holds_no_formula() -> None:
    rows = pd.DataFrame({"topic": ["=cmd()", "größe", HOSTILE], "bytes": [1, -2, 3]})
    text = export.csv(rows).decode("utf-8-sig")
    assert text.splitlines()[:3] == ["topic,bytes", "'=cmd(),1", "größe,-2"]
    assert HOSTILE in text


def test_parquet_keeps_types_and_takes_columns_of_mixed_ones() -> None:
    rows = pd.DataFrame({"bytes": pd.array([1, None], dtype="Int64"), "note": ["?", 7], "age": [1.5, None]})
    back = pd.read_parquet(io.BytesIO(export.parquet(rows.style)))
    assert (back["bytes"].iloc[0], back["bytes"].isna().tolist()) == (1, [False, True])
    assert list(back["note"]) == ["?", "7"]
    assert back["age"].isna().tolist() == [False, True]


def test_rows_may_be_made_when_they_are_asked_for() -> None:
    assert export.csv(lambda: pd.DataFrame({"a": [1]})) == "﻿a\n1\n".encode()


def test_a_report_stands_alone_runs_nothing_and_leaks_no_markup() -> None:
    sections = [Section("Ledger", rows=pd.DataFrame({HOSTILE: [HOSTILE, None]})), Section(HOSTILE, HOSTILE)]
    text = export.report(HOSTILE, [("Topic", HOSTILE)], sections, LIGHT).decode()
    assert "<script" not in text
    assert "💥" in text
    assert "http" not in text.replace("http-equiv", "")
    assert "default-src 'none'" in text


def test_a_long_table_is_cut_and_says_so() -> None:
    rows = pd.DataFrame({"n": range(export.ROWS_MAX + 5)})
    text = export.report("r", [], [Section("Ledger", rows=rows)], LIGHT).decode()
    assert f"The first {export.ROWS_MAX} of {export.ROWS_MAX + 5} rows." in text


def test_a_file_says_of_which_cluster_and_of_when_it_is() -> None:
    name = export.file_title(view(), "orders-7", "Offsets by tier")
    assert re.fullmatch(r"\S+ \d{4}-\d\d-\d\dT\d{6}Z orders-7 Offsets by tier", name)
    assert export.file_title(None, "", "Ledger") == "Ledger"
