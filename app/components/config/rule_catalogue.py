"""The rules there are, as the API lists them: hold, severity, off, and what each explains. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.markup import Cell

BY_RULE: Final = "as the rule says"
SEVERITIES: Final = ("critical", "warning", "notice")
# As the API.
HOLD_S_MAX: Final = 86_400.0
LINKS: Final = {
    "cluster": "Anywhere",
    "broker": "Of its broker",
    "topic": "Of its topic",
    "partition": "Of its partition",
}


@dataclass(frozen=True, slots=True)
class DefaultHold:
    """How long it must be so before it is a finding; ``case`` empty: of all that no other one is about."""

    case: str
    hold_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class RuleSettingLine:
    """The settings of a rule, for topics of a pattern or all; None: as the rule says."""

    hold_s: float | None = None
    severity: str | None = None
    off: bool = False


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A rule with its default holds, its settings by pattern of topics (None: all), and what it explains as text."""

    slug: str
    title: str
    holds: tuple[DefaultHold, ...]
    settings: Mapping[str | None, RuleSettingLine] = field(default_factory=dict)
    explains: str = ""


def lines(response: Mapping[str, Any]) -> list[RuleLine]:
    """Of the API's response; those that somebody has set first."""
    made = [
        RuleLine(
            rule["slug"],
            rule["title"],
            tuple(
                DefaultHold(hold["case"] or "", hold["default_s"], hold["reason"])
                for hold in response.get("holds", ())
                if hold["slug"] == rule["slug"]
            ),
            {
                row["topics"]: RuleSettingLine(row["for_s"], row["severity"], row["off"])
                for row in response.get("rules", ())
                if row["slug"] == rule["slug"]
            },
            "; ".join(map(_explanation, rule["explains"])),
        )
        for rule in response.get("catalogue", ())
    ]
    return sorted(made, key=lambda line: not line.settings)


def _explanation(row: Mapping[str, Any]) -> str:
    """`Of its broker: below-min-isr, offline`, with what limits it."""
    text = str(LINKS.get(row["link"], row["link"]))
    if row["unseen_only"]:
        text += ", while it cannot be seen"
    if row["cause_rule"]:
        text += f", where {row['cause_rule']}"
    if row["evidence_rules"]:
        text += f", where it is {' or '.join(row['evidence_rules'])}"
    return f"{text}: {', '.join(row['slugs'])}"


def clause(rules: Sequence[RuleLine]) -> str:
    """``43 rules · 2 are set, shown first``."""
    changed = sum(bool(rule.settings) for rule in rules)
    text = f"{fmt.count(len(rules))} rule{'' if len(rules) == 1 else 's'}"
    return f"{text} · {fmt.count(changed)} {'is' if changed == 1 else 'are'} set, shown first" if changed else text


def changes(now: RuleSettingLine, chosen: RuleSettingLine) -> dict[str, float | str | bool | None]:
    """The values that the API is asked to set; empty: nothing differs."""
    values: dict[str, float | str | bool | None] = {}
    if chosen.hold_s != now.hold_s:
        values["for_s"] = chosen.hold_s
    if chosen.severity != now.severity:
        values["severity"] = chosen.severity
    if chosen.off != now.off:
        values["off"] = chosen.off or None
    return values


def html(rules: Sequence[RuleLine]) -> str:
    """The table: a line a rule, and one more for each pattern of topics that has its own settings."""
    columns = [("Rule", "left"), ("Topics", "left"), ("Hold", "left"), ("Severity", "left"), ("State", "left")]
    body = []
    for rule in rules:
        name = f'{markup.text(rule.slug)}<div class="eb-clause">{markup.text(rule.title)}</div>'
        for topics, setting in _rows(rule):
            severity = markup.status_word(setting.severity) if setting.severity in SEVERITIES else BY_RULE
            body.append(
                (
                    Cell(html=name),
                    topics or "all",
                    Cell(html=_hold_html(rule, setting), css="eb-why"),
                    Cell(html=severity, css="eb-nowrap" if setting.severity else "eb-nowrap eb-quiet"),
                    Cell(html="<b>off</b>" if setting.off else "on"),
                    Cell(rule.explains, css="eb-why"),
                )
            )
    return markup.table([*columns, ("Explains", "left")], body, caption="Rules, their settings, what they explain")


def _rows(rule: RuleLine) -> list[tuple[str | None, RuleSettingLine]]:
    """Of all topics first, whether that is set or not."""
    patterns = [(topics, setting) for topics, setting in rule.settings.items() if topics is not None]
    return [(None, rule.settings.get(None, RuleSettingLine())), *patterns]


def _hold_html(rule: RuleLine, setting: RuleSettingLine) -> str:
    if setting.hold_s is not None:
        return f"<b>{markup.text(f'{setting.hold_s:g} s')}</b>"
    if not rule.holds:
        return f'<span class="eb-quiet">{BY_RULE}</span>'
    return "<br>".join(
        f'<span title="{markup.text(hold.reason)}">{markup.text(_hold_text(hold))}</span>' for hold in rule.holds
    )


def _hold_text(hold: DefaultHold) -> str:
    return f"{hold.hold_s:g} s {hold.case}".strip()


def frame(rules: Sequence[RuleLine]) -> pd.DataFrame:
    """The same as rows, with the reasons of the holds."""
    rows = [(rule, topics, setting) for rule in rules for topics, setting in _rows(rule)]
    return pd.DataFrame(
        {
            "rule": [rule.slug for rule, _, _ in rows],
            "title": [rule.title for rule, _, _ in rows],
            "topics": [topics or "all" for _, topics, _ in rows],
            "hold_s": [setting.hold_s for _, _, setting in rows],
            "default_holds": ["; ".join(map(_hold_text, rule.holds)) for rule, _, _ in rows],
            "why_those_holds": [" ".join(hold.reason for hold in rule.holds) for rule, _, _ in rows],
            "severity": [setting.severity or BY_RULE for _, _, setting in rows],
            "off": [setting.off for _, _, setting in rows],
            "explains": [rule.explains for rule, _, _ in rows],
        }
    )
