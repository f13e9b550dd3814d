"""Thresholds of the rules as a table: the value, its default, and why that default. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.markup import Cell


@dataclass(frozen=True, slots=True)
class ThresholdLine:
    """A threshold of a rule; `topics`: for those of the pattern alone."""

    slug: str
    name: str
    value: float
    default: float
    unit: str
    topics: str | None
    reason: str

    @property
    def label(self) -> str:
        return f"{self.slug} · {self.name}"


def lines(settings: Mapping[str, Any]) -> list[ThresholdLine]:
    """The API's answer; those that differ from their default first."""
    names = ThresholdLine.__slots__
    rows = [ThresholdLine(**{name: row.get(name) for name in names}) for row in settings.get("thresholds", ())]
    return sorted(rows, key=lambda row: row.value == row.default)


def clause(rows: Sequence[ThresholdLine]) -> str:
    """``15 thresholds · 2 differ from their default, shown first``."""
    differing = sum(row.value != row.default for row in rows)
    text = f"{fmt.count(len(rows))} thresholds"
    return f"{text} · {fmt.count(differing)} differ from their default, shown first" if differing else text


def html(rows: Sequence[ThresholdLine]) -> str:
    """The table."""
    columns = [("Rule", "left"), ("Name", "left"), ("Topics", "left"), ("Value", "right"), ("Default", "right")]
    columns.append(("Why that default", "left"))
    body = [
        (
            Cell(row.slug, css="eb-nowrap"),
            row.name,
            row.topics or "all",
            Cell(html=_value(row)),
            f"{row.default:g} {row.unit}",
            Cell(row.reason, css="eb-why"),
        )
        for row in rows
    ]
    return markup.table(columns, body, caption="Thresholds of the rules")


def _value(row: ThresholdLine) -> str:
    text = markup.text(f"{row.value:g} {row.unit}")
    return text if row.value == row.default else f"<b>{text}</b>"


def frame(rows: Sequence[ThresholdLine]) -> pd.DataFrame:
    """The same as a table for the clipboard and for files."""
    return pd.DataFrame([{name: getattr(row, name) for name in ThresholdLine.__slots__} for row in rows])
