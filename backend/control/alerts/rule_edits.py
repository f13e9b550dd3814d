"""Changes of one rule's settings in the text of the alerts file: order, comments and all else stay. Pure.

Of several tables of a rule the first that fits counts, so that one without `topics` stays last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Table

# The keys of a table that say which findings it is about; without any other it changes nothing.
_ABOUT = frozenset({"topics"})


class RuleEditError(Exception):
    """The text has a form that this does not change. One sentence."""


@dataclass(frozen=True, slots=True)
class RuleEdit:
    """Names in `[rules.SLUG]` with their new values; None: as the rule itself says. `topics` None: for all topics."""

    slug: str
    topics: str | None = None
    values: Mapping[str, float | str | bool | None] = field(default_factory=dict)


def edited(text: str, edit: RuleEdit) -> str:
    """The text with that change. Raises RuleEditError."""
    try:
        document = tomlkit.parse(text)
        rules = document.setdefault("rules", tomlkit.table(is_super_table=True))
        tables = _tables(rules.get(edit.slug))
        table = next((table for table in tables if table.get("topics") == edit.topics), None)
        if table is None:
            table = tomlkit.table()
            if edit.topics is not None:
                table["topics"] = edit.topics
            tables.append(table)
        for name, value in edit.values.items():
            if value is None:
                table.pop(name, None)
            else:
                table[name] = _as_written(value)
        tables = sorted((t for t in tables if t.keys() - _ABOUT), key=lambda t: "topics" not in t)
        _put(rules, edit.slug, tables)
        if not rules:
            document.remove("rules")
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError, AttributeError, ValueError) as error:
        raise RuleEditError(
            f"The table of {edit.slug} has a form that only a person can change: edit the file by hand."
        ) from error


def _tables(present: Any) -> list[Table]:
    if present is None:
        return []
    if isinstance(present, AoT):
        return list(present)
    if not isinstance(present, Table):
        raise TypeError(type(present).__name__)
    return [present]


def _put(rules: Any, slug: str, tables: list[Table]) -> None:
    if len(tables) == 1 and isinstance(rules.get(slug), Table):
        return  # changed in its place
    rules.pop(slug, None)
    if len(tables) == 1:
        rules[slug] = tables[0]
    elif tables:
        array = tomlkit.aot()
        for table in tables:
            array.append(table)
        rules[slug] = array


def _as_written(value: float | str | bool) -> float | int | str | bool:
    """Numbers as a person writes them: 60, not 60.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
