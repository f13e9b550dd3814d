"""The source of `follower.fetch.last.tiered.offset.enable` on each broker. Rows → verdicts → HTML.

Kafka reads the levels from right to left: this broker, cluster default, the broker's file, Kafka's default; the first
that is set wins (KIP-226). The setting counts on the broker that gets the new replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from app.components.shared import markup
from app.components.shared.markup import Cell
from backend.store.queries.audit import OperationRow
from backend.store.queries.config import ConfigRow
from backend.store.queries.overview import BrokerRow

FLAG: Final = "follower.fetch.last.tiered.offset.enable"
KIND: Final = "toggle_bootstrap"
# A broker that reports this config and not the flag is older than Kafka 4.3.
TIERING_SWITCH: Final = "remote.log.storage.system.enable"
# The embedded engine's own: it starts followers as KIP-1023 says unless this is "kafka".
COMPAT: Final = "follower.fetch.tiered.compat"
NAMES: Final = (FLAG, TIERING_SWITCH, COMPAT)
BROKER: Final = "DYNAMIC_BROKER_CONFIG"
CLUSTER: Final = "DYNAMIC_DEFAULT_BROKER_CONFIG"
FILE: Final = "STATIC_BROKER_CONFIG"
DEFAULT: Final = "DEFAULT_CONFIG"
SOURCE_LABELS: Final = {
    DEFAULT: "Default",
    FILE: "Broker's file",
    CLUSTER: "Cluster default",
    BROKER: "This broker",
}
TOO_OLD: Final = "needs 4.3"
SILENT: Final = "has not told"


@dataclass(frozen=True, slots=True)
class BrokerFlag:
    """The setting on one broker. ``source`` None: not known, ``problem`` says why."""

    broker_id: int
    by_source: Mapping[str, str | None]
    source: str | None
    problem: str = ""

    @property
    def value(self) -> str | None:
        return None if self.source is None else self.by_source.get(self.source)

    @property
    def word(self) -> str:
        return {"true": "on", "false": "off"}.get(self.value or "", "?")


def broker_flags(brokers: Iterable[BrokerRow], configs: Iterable[ConfigRow]) -> list[BrokerFlag]:
    """One per registered broker, by id. ``configs``: the brokers' rows of :data:`NAMES`."""
    rows = {(row.resource, row.name): row for row in configs}
    flags = []
    for broker in brokers:
        row = rows.get((str(broker.broker_id), FLAG))
        if row is not None:
            by_source = {str(synonym["source"]): synonym["value"] for synonym in row.synonyms or []}
            by_source.setdefault(row.source, row.value)
            flags.append(BrokerFlag(broker.broker_id, by_source, row.source))
        else:
            old = (str(broker.broker_id), TIERING_SWITCH) in rows
            flags.append(BrokerFlag(broker.broker_id, {}, None, TOO_OLD if old else SILENT))
    return flags


def cluster_default(flags: Iterable[BrokerFlag]) -> str | None:
    """The value that is set for all brokers; None: none is."""
    return next((flag.by_source[CLUSTER] for flag in flags if flag.by_source.get(CLUSTER) is not None), None)


def kafka_rules(configs: Iterable[ConfigRow], *, embedded: bool) -> bool:
    """Followers start as Apache Kafka 4.3 decides; else as the embedded engine does by KIP-1023's text."""
    return not embedded or any(row.name == COMPAT and row.value == "kafka" for row in configs)


@dataclass(frozen=True, slots=True)
class Summary:
    """The cluster in one pill."""

    label: str
    mixed: bool
    minority: frozenset[int]
    """The brokers that differ from most."""


def summarize(flags: Sequence[BrokerFlag]) -> Summary:
    on = frozenset(flag.broker_id for flag in flags if flag.word == "on")
    off = frozenset(flag.broker_id for flag in flags if flag.word == "off")
    if on and off:
        return Summary(f"Mixed: on for {len(on)}, off for {len(off)}", True, on if len(on) <= len(off) else off)
    if not on and not off:
        return Summary("Not known", False, frozenset())
    everywhere = len(on | off) == len(flags)
    return Summary(f"{'On' if on else 'Off'} {'everywhere' if everywhere else 'where known'}", False, frozenset())


def set_by(flag: BrokerFlag, operations: Sequence[OperationRow], clock: Callable[[int], str]) -> str:
    """The person who set the value in effect; ``operations`` newest first."""
    if flag.source not in (BROKER, CLUSTER):
        return ""
    broker_id = flag.broker_id if flag.source == BROKER else None
    last = next((o for o in operations if o.state == "verified" and o.inputs.get("broker_id") == broker_id), None)
    if last is None or last.inputs.get("enable") is not (flag.value == "true"):
        return "not from here"
    return f"{executed_by(last)} · {clock(last.finished_ms or last.updated_ms)}"


def executed_by(operation: OperationRow) -> str:
    """The person who confirmed a plan; its author before that."""
    return str((operation.result or {}).get("executed_by") or operation.author)


def matrix_html(flags: Sequence[BrokerFlag], setters: Mapping[int, str]) -> str:
    """The table; ``setters``: by broker id, who set the value in effect. Without any their column is left out."""
    by_source = _shown_sources(flags)
    minority = summarize(flags).minority
    named = any(setters.values())
    columns = [
        ("Broker", "left"),
        *((SOURCE_LABELS[source], "center") for source in by_source),
        ("In effect", "center"),
        *([("Set by", "left")] if named else []),
    ]
    rows = [
        [
            Cell(f"Broker {flag.broker_id}", css="eb-nowrap" + (" eb-quiet" if flag.problem else "")),
            *(Cell(html=_source_html(flag, source)) for source in by_source),
            Cell(html=_effect_html(flag, flag.broker_id in minority)),
            *([Cell(setters.get(flag.broker_id, ""), css="eb-nowrap")] if named else []),
        ]
        for flag in flags
    ]
    return markup.table(columns, rows, caption=f"{FLAG} on every broker, by level")


def rows(flags: Sequence[BrokerFlag], setters: Mapping[int, str]) -> pd.DataFrame:
    """The same as a table."""
    named = any(setters.values())
    return pd.DataFrame(
        [
            {
                "broker": flag.broker_id,
                **{SOURCE_LABELS[source]: flag.by_source.get(source) or "not set" for source in _shown_sources(flags)},
                "in effect": flag.problem or flag.word,
                "from": "" if flag.source is None else SOURCE_LABELS.get(flag.source, flag.source),
                **({"set by": setters.get(flag.broker_id, "")} if named else {}),
            }
            for flag in flags
        ]
    )


def _shown_sources(flags: Sequence[BrokerFlag]) -> list[str]:
    """The broker's file is shown only where one sets it."""
    in_file = any(flag.by_source.get(FILE) is not None for flag in flags)
    return [source for source in SOURCE_LABELS if source != FILE or in_file]


def _source_html(flag: BrokerFlag, source: str) -> str:
    value = flag.by_source.get(source)
    if flag.problem:
        return '<span class="eb-value eb-value-unset">?</span>'
    if value is None:
        return '<span class="eb-value eb-value-unset">not set</span>'
    if source == flag.source:
        return f'<span class="eb-value eb-value-wins">{markup.text(value)}<span class="eb-hidden"> wins</span></span>'
    return f'<span class="eb-value">{markup.text(value)}</span>'


def _effect_html(flag: BrokerFlag, differs: bool) -> str:
    if flag.problem:
        return f'<span class="eb-quiet eb-nowrap">{markup.text(flag.problem)}</span>'
    if differs:
        return f'<strong class="eb-warning eb-nowrap">{flag.word} {markup.mark("warning")}</strong>'
    return f"<strong>{flag.word}</strong>"
