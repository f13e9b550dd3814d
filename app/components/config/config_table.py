"""Settings in effect and where they are set: brokers (differences first) and topics (with Kafka's rules). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from app.components.shared import format as fmt
from app.components.shared import markup
from app.components.shared.markup import Cell
from backend.store.queries.config import ConfigRow, TopicRow

ROWS_MAX: Final = 200
SOURCES: Final = {
    "DYNAMIC_TOPIC_CONFIG": "this topic",
    "DYNAMIC_BROKER_CONFIG": "this broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "cluster default",
    "STATIC_BROKER_CONFIG": "broker's file",
    "DEFAULT_CONFIG": "default",
    "DYNAMIC_CLIENT_METRICS_CONFIG": "client metrics",
    "DYNAMIC_GROUP_CONFIG": "group",
}
# Prefixes of the broker configs that decide about the remote tier and about retention.
TIERING_PREFIXES: Final = ("remote.", "follower.fetch.", "log.local.", "log.retention", "log.segment", "log.roll")
TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"
FOLLOWS_TOTAL: Final = -2
WITHOUT_LIMIT: Final = -1


# --- brokers ---


@dataclass(frozen=True, slots=True)
class Variant:
    """One value of a setting, from one source, and the brokers that have it."""

    value: str | None
    source: str
    brokers: tuple[int, ...]
    sensitive: bool


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """A setting over all brokers; more than one variant: they differ."""

    name: str
    variants: tuple[Variant, ...]
    read_only: bool

    @property
    def differs(self) -> bool:
        """In what is in effect; the same value from another source is no difference."""
        return len({variant.value for variant in self.variants}) > 1


def broker_settings(rows: Iterable[ConfigRow], *, name_part: str, tiering_only: bool) -> list[BrokerSetting]:
    """Differences first, then values that were set, then Kafka's defaults; by name. ``wanted``: part of the name."""
    by_name: dict[str, list[ConfigRow]] = defaultdict(list)
    for row in rows:
        # The cluster default is a source of the brokers' values, not a broker.
        if row.resource and name_part.lower() in row.name.lower():
            by_name[row.name].append(row)
    settings = [
        _setting(name, group)
        for name, group in by_name.items()
        if not tiering_only or name.startswith(TIERING_PREFIXES)
    ]
    return sorted(settings, key=lambda setting: (not setting.differs, _all_default(setting), setting.name))


def _setting(name: str, rows: Sequence[ConfigRow]) -> BrokerSetting:
    brokers: dict[tuple[str | None, str, bool], list[int]] = defaultdict(list)
    for row in rows:
        brokers[row.value, row.source, row.is_sensitive].append(int(row.resource))
    variants = [Variant(value, source, tuple(sorted(ids)), secret) for (value, source, secret), ids in brokers.items()]
    return BrokerSetting(
        name, tuple(sorted(variants, key=lambda v: (len(v.brokers), v.brokers))), any(row.is_read_only for row in rows)
    )


def _all_default(setting: BrokerSetting) -> bool:
    return all(variant.source == "DEFAULT_CONFIG" for variant in setting.variants)


def broker_html(settings: Sequence[BrokerSetting], broker_count: int) -> str:
    """One line a variant; the name only on the first."""
    columns = [("Setting", "left"), ("Value", "left"), ("Set by", "left"), ("On", "left"), ("Changes", "left")]
    rows = [
        [
            Cell(html=_name_html(setting) if number == 0 else ""),
            Cell(html=_value_html(variant, setting.differs)),
            Cell(SOURCES.get(variant.source, variant.source), css="eb-nowrap" + _muted_css(variant)),
            Cell(_broker_text(variant.brokers, broker_count), css="eb-quiet"),
            Cell(("with a restart" if setting.read_only else "at once") if number == 0 else "", css="eb-quiet"),
        ]
        for setting in settings[:ROWS_MAX]
        for number, variant in enumerate(setting.variants)
    ]
    return markup.table(columns, rows, caption="Settings in effect on the brokers")


def broker_rows(settings: Sequence[BrokerSetting]) -> pd.DataFrame:
    """The same as a table, all of it."""
    return pd.DataFrame(
        [
            {
                "setting": setting.name,
                "value": _plain_value(variant),
                "set by": SOURCES.get(variant.source, variant.source),
                "brokers": ", ".join(str(broker) for broker in variant.brokers),
                "differs": setting.differs,
            }
            for setting in settings
            for variant in setting.variants
        ]
    )


def _name_html(setting: BrokerSetting) -> str:
    sign = f" {markup.mark('warning')}<span class='eb-hidden'>differs</span>" if setting.differs else ""
    return f"<code>{markup.text(setting.name)}</code>{sign}"


def _value_html(variant: Variant, differs: bool) -> str:
    shown = markup.text(_plain_value(variant))
    return f"<strong><code>{shown}</code></strong>" if differs else f"<code>{shown}</code>"


def _plain_value(variant: Variant) -> str:
    if variant.sensitive:
        return "hidden by the broker"
    if variant.value is None:
        return "not set"
    return variant.value if variant.value else "(empty)"


def _muted_css(variant: Variant) -> str:
    return " eb-quiet" if variant.source == "DEFAULT_CONFIG" else ""


def _broker_text(brokers: Sequence[int], count: int) -> str:
    if len(brokers) == count:
        return "every broker" if count > 1 else f"broker {brokers[0]}"
    return ("broker " if len(brokers) == 1 else "brokers ") + ", ".join(str(broker) for broker in brokers)


# --- topics ---


@dataclass(frozen=True, slots=True)
class Remark:
    """A violation of Kafka's rules, or a consequence of the retention settings, for one topic."""

    status: str
    sentence: str


def remarks(topic: TopicRow) -> list[Remark]:
    """The worst first. Source: LogConfig.validate (KIP-405, KIP-950); Kafka refuses what is critical here."""
    if not topic.tiered:
        return []
    config = topic.config or {}
    listed = []
    if "compact" in (config.get("cleanup.policy") or ""):
        listed.append(Remark("critical", "compacted topics cannot be tiered"))
    paused = config.get("remote.log.copy.disable") == "true"
    follows = []
    for unit, local_name, total_name in (
        ("time", "local.retention.ms", "retention.ms"),
        ("size", "local.retention.bytes", "retention.bytes"),
    ):
        local, total = _integer(config.get(local_name)), _integer(config.get(total_name))
        if local is None or total is None:
            continue
        follows.append(local in (FOLLOWS_TOTAL, total))
        if local != FOLLOWS_TOTAL and total > WITHOUT_LIMIT and (local > total or local == WITHOUT_LIMIT):
            listed.append(Remark("critical", f"local retention by {unit} is above the total"))
        elif paused and not follows[-1]:
            listed.append(
                Remark("critical", f"copying is paused, so local retention by {unit} must be the total or −2")
            )
    if paused:
        listed.append(Remark("warning", "copying is paused: new segments stay local"))
    elif len(follows) == 2 and all(follows):
        listed.append(Remark("warning", "local retention follows the total: tiering frees no disk"))
    return sorted(listed, key=lambda remark: remark.status != "critical")


def topic_html(topics: Sequence[TopicRow], sources: Mapping[tuple[str, str], str]) -> str:
    """``sources``: by topic and setting. A topic's own values are plain, inherited ones are muted."""
    columns = [
        ("Topic", "left"),
        ("Tiering", "left"),
        ("Local retention", "left"),
        ("Total retention", "left"),
        ("Segment", "right"),
        ("Cleanup", "left"),
        ("Remarks", "left"),
    ]
    rows = []
    for topic in topics[:ROWS_MAX]:

        def cell(label: str, *names: str, name: str = topic.topic) -> Cell:
            own = any(sources.get((name, setting)) == TOPIC for setting in names)
            return Cell(label, css="eb-nowrap" + ("" if own else " eb-quiet"))

        config = topic.config or {}
        local = _retention(config, "local.") if topic.tiered else "–"
        rows.append(
            [
                Cell(topic.topic),
                cell(_tiering_text(topic), "remote.storage.enable", "remote.log.copy.disable"),
                cell(local, "local.retention.ms", "local.retention.bytes"),
                cell(_retention(config, ""), "retention.ms", "retention.bytes"),
                cell(fmt.size(_integer(config.get("segment.bytes"))), "segment.bytes"),
                cell(config.get("cleanup.policy") or fmt.UNKNOWN, "cleanup.policy"),
                Cell(html=_remarks_html(topic)),
            ]
        )
    return markup.table(columns, rows, caption="Tiering settings of topics")


def topic_rows(topics: Sequence[TopicRow], sources: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    """Every setting that is kept of every topic, with its source."""
    return pd.DataFrame(
        [
            {
                "topic": topic.topic,
                "setting": name,
                "value": value,
                "set by": SOURCES.get(sources.get((topic.topic, name), ""), "?"),
            }
            for topic in topics
            for name, value in sorted((topic.config or {}).items())
        ]
    )


def _tiering_text(topic: TopicRow) -> str:
    if not topic.tiered:
        return "off"
    return "on, paused" if (topic.config or {}).get("remote.log.copy.disable") == "true" else "on"


def _retention(config: Mapping[str, str | None], prefix: str) -> str:
    time_ms, size = _integer(config.get(f"{prefix}retention.ms")), _integer(config.get(f"{prefix}retention.bytes"))
    if time_ms is None and size is None:
        return fmt.UNKNOWN
    limits = [value for value in (time_ms, size) if value != WITHOUT_LIMIT]
    if not limits:
        return "no limit"
    if set(limits) == {FOLLOWS_TOTAL}:
        return "as total"
    parts = (_limit("time", time_ms, lambda value: fmt.duration(value / 1000)), _limit("size", size, fmt.size))
    return " · ".join(part for part in parts if part)


def _limit(unit: str, value: int | None, format_value: Callable[[int], str]) -> str:
    if value == FOLLOWS_TOTAL:
        return f"{unit} as total"
    if value == WITHOUT_LIMIT:
        return ""
    return fmt.UNKNOWN if value is None else format_value(value)


def _remarks_html(topic: TopicRow) -> str:
    listed = remarks(topic)
    if not listed:
        return (
            '<span class="eb-quiet">–</span>'
            if not topic.tiered
            else f'<span class="eb-quiet">{markup.mark("ok")}</span>'
        )
    return "<br>".join(
        f'<span class="eb-{remark.status}">{markup.mark(remark.status)} {markup.text(remark.sentence)}</span>'
        for remark in listed
    )


def _integer(value: str | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None
