"""Findings under the finding that explains them, as tables list them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from backend.cli.shared.value_text import SEVERITIES

FindingItem = dict[str, Any]


def with_causes(listed: Sequence[FindingItem], everything: Iterable[FindingItem]) -> list[FindingItem]:
    """The listed ones, and of all others those that explain some: a page of a storm may begin after its cause."""
    named = {cause for row in listed if (cause := _cause_name(row)) is not None}
    there = {row["id"] for row in listed}
    return [*listed, *(row for row in everything if _name(row) in named and row["id"] not in there)]


def grouped(rows: Iterable[FindingItem]) -> list[tuple[FindingItem, bool]]:
    """Each finding, and whether it stands under the one before that explains it.

    The worst comes first, of the same severity the oldest.
    """
    ordered = sorted(rows, key=lambda row: (SEVERITIES.index(row["severity"]), row["opened_ms"]))
    causes: dict[tuple[str, str], list[int]] = {}
    for place, row in enumerate(ordered):
        if _cause_name(row) is None:
            causes.setdefault(_name(row), []).append(place)
    under: dict[int | None, list[FindingItem]] = {}
    for row in ordered:
        cause = _cause_name(row)
        of_name = () if cause is None else causes.get(cause, ())
        under.setdefault(next((place for place in of_name if _overlap(ordered[place], row)), None), []).append(row)
    heads = {id(row) for row in under.get(None, ())}
    lines: list[tuple[FindingItem, bool]] = []
    for place, row in enumerate(ordered):
        if id(row) in heads:
            lines.append((row, False))
            lines += [(explained, True) for explained in under.get(place, ())]
    return lines


def _name(row: FindingItem) -> tuple[str, str]:
    return row["slug"], row["object"]


def _cause_name(row: FindingItem) -> tuple[str, str] | None:
    return None if row["cause_slug"] is None else (row["cause_slug"], row["cause_object"])


def _overlap(cause: FindingItem, row: FindingItem) -> bool:
    """Whether both were open at one time: a cause that closed and opened again is a finding for each time."""
    cause_ended_before = cause["closed_ms"] is not None and cause["closed_ms"] < row["opened_ms"]
    row_ended_before = row["closed_ms"] is not None and row["closed_ms"] < cause["opened_ms"]
    return not cause_ended_before and not row_ended_before
