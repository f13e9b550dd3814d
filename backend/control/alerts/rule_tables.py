"""The tables `[rules.SLUG]` of the alerts file as settings of rules. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from backend.control.alerts.table_mistake import Place, TableMistake, dotted
from backend.control.findings.catalogue import SLUGS
from backend.control.findings.finding_context import SEVERITIES
from backend.control.findings.thresholds import HOLD_S_MAX, THRESHOLDS, RuleSetting, RuleSettings

# Of one rule: as many patterns of topics as a large cluster has teams. Each candidate is compared with all of them.
TABLES_MAX: Final = 100
PATTERN_CHARS_MAX: Final = 249
_KEYS: Final = ("topics", "for_s", "severity", "off")


def read_rules(tables: Any) -> RuleSettings:
    """All tables in their order; one rule has one table, or several (`[[rules.SLUG]]`). Raises TableMistake."""
    if not isinstance(tables, dict):
        raise TableMistake(("rules",), "rules is a table of tables, such as [rules.copy-slow]")
    settings: list[RuleSetting] = []
    for slug, content in tables.items():
        place: Place = ("rules", slug)
        if slug not in SLUGS:
            alike = difflib.get_close_matches(slug, SLUGS, 1)
            raise TableMistake(place, f"there is no rule {slug[:60]!r}" + (f". Is it {alike[0]}?" if alike else ""))
        several = content if isinstance(content, list) else [content]
        if len(several) > TABLES_MAX:
            raise TableMistake(place, f"{dotted(place)} has more than {TABLES_MAX} tables")
        for number, table in enumerate(several):
            at = (*place, number) if isinstance(content, list) else place
            settings.append(_setting(slug, table, at))
    return RuleSettings(tuple(settings))


def _setting(slug: str, table: Any, place: Place) -> RuleSetting:
    if not isinstance(table, dict):
        raise TableMistake(place, f"{dotted(place)} is a table")
    entries = {entry.name: entry for entry in THRESHOLDS if entry.slug == slug}
    for name in table:
        if name not in _KEYS and name not in entries:
            names = ", ".join((*_KEYS, *entries))
            raise TableMistake((*place, name), f"{dotted((*place, name))[:200]} is not known here; there are {names}")
    topics = _text(table, "topics", place)
    thresholds = {}
    for name, entry in entries.items():
        if name not in table:
            continue
        if topics is not None and not entry.by_topic:
            raise TableMistake((*place, name), f"{dotted((*place, name))} is about no topic: set it without topics")
        thresholds[entry.field] = _number(table, name, place, entry.minimum, entry.maximum)
    hold_s = _number(table, "for_s", place, 0.0, HOLD_S_MAX) if "for_s" in table else None
    severity = _text(table, "severity", place)
    if severity is not None and severity not in SEVERITIES:
        raise TableMistake((*place, "severity"), f"{dotted((*place, 'severity'))} is {', '.join(SEVERITIES)}")
    off = table.get("off", False)
    if not isinstance(off, bool):
        raise TableMistake((*place, "off"), f"{dotted((*place, 'off'))} is true or false")
    return RuleSetting(
        slug, topics, None if hold_s is None else round(hold_s * 1000), severity, off=off, thresholds=thresholds
    )


def _number(table: Mapping[str, Any], name: str, place: Place, minimum: float, maximum: float) -> float:
    value = table[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
        raise TableMistake((*place, name), f"{dotted((*place, name))} is a number from {minimum:g} to {maximum:g}")
    return float(value)


def _text(table: Mapping[str, Any], name: str, place: Place) -> str | None:
    value = table.get(name)
    if value is not None and (not isinstance(value, str) or not 1 <= len(value) <= PATTERN_CHARS_MAX):
        raise TableMistake((*place, name), f"{dotted((*place, name))} is a text of 1 to {PATTERN_CHARS_MAX} characters")
    return value
