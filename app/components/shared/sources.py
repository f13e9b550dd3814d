"""The sources of a card's numbers, and how old they are: one line behind a mark beside the card's title. Pure.

A card that is not named here shows no numbers of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.components.shared import format as fmt
from app.components.shared import markup
from app.state import ClusterView


@dataclass(frozen=True, slots=True)
class DataSource:
    """``age_ms`` of what was read from there; None: not known."""

    description: str
    age_ms: Callable[[ClusterView], int | None]


def _pipeline_age_ms(view: ClusterView) -> int | None:
    pipeline = view.processes.get("pipeline")
    return None if pipeline is None else pipeline.age_ms


def _backend_age_ms(view: ClusterView) -> int | None:
    backend = view.processes.get("backend")
    return None if backend is None else backend.age_ms


def _eligible_age_ms(view: ClusterView) -> int | None:
    backend = view.processes.get("backend")
    eligible = ((backend.detail if backend is not None else None) or {}).get("eligible") or {}
    seen_ms = eligible.get("seen_ms")
    return None if seen_ms is None else max(0, view.now_ms - seen_ms)


def _read_age_ms(view: ClusterView) -> int | None:
    return max(0, view.now_ms - view.read_ms)


OFFSETS: Final = DataSource("ListOffsets and Metadata of the brokers, sampled", lambda view: view.ages.offsets_ms)
SIZES: Final = DataSource("DescribeLogDirs of the brokers, sampled", lambda view: view.ages.offsets_ms)
CONFIGS: Final = DataSource("DescribeConfigs of the brokers", lambda view: view.ages.configs_ms)
LEDGER: Final = DataSource("events of __remote_log_metadata, read by the pipeline", _pipeline_age_ms)
EVENTS: Final = DataSource("events of the brokers, or inferred where it is said", lambda view: view.ages.offsets_ms)
RECORDS: Final = DataSource("the control plane's plans, findings and audit", _read_age_ms)
HEARTBEAT: Final = DataSource("the backend's own report", _backend_age_ms)
ELIGIBLE: Final = DataSource("DescribeTopicPartitions where the ISR is below min.insync.replicas", _eligible_age_ms)
ASKED: Final = DataSource("the control API, asked while this is drawn", lambda _: 0)

BY_CARD: Final[dict[str, tuple[DataSource, ...]]] = {
    "tiles": (OFFSETS, SIZES, LEDGER),
    "attention": (OFFSETS, LEDGER, RECORDS),
    "keeping-up": (OFFSETS, LEDGER),
    "brokers": (OFFSETS, SIZES, LEDGER),
    "behind": (OFFSETS, SIZES, LEDGER),
    "quorum": (HEARTBEAT,),
    "ranges": (OFFSETS, SIZES, LEDGER),
    "table": (OFFSETS, SIZES, LEDGER),
    "heatmap": (OFFSETS, SIZES),
    "selected": (OFFSETS, SIZES, LEDGER, CONFIGS),
    "hero": (OFFSETS, LEDGER),
    "epochs": (OFFSETS, LEDGER),
    "replicas": (OFFSETS, SIZES, EVENTS),
    "durability": (OFFSETS, CONFIGS, HEARTBEAT, ELIGIBLE),
    "offsets": (OFFSETS,),
    "history": (OFFSETS,),
    "ledger": (LEDGER,),
    "events": (EVENTS, LEDGER),
    "actions": (OFFSETS, LEDGER),
    "absent": (OFFSETS, LEDGER),
    "compare": (LEDGER, OFFSETS),
    "cycle": (LEDGER,),
    "open": (LEDGER,),
    "metadata": (LEDGER, CONFIGS, SIZES),
    "debt": (OFFSETS, SIZES, CONFIGS),
    "cost": (LEDGER, HEARTBEAT),
    "depth": (OFFSETS, LEDGER),
    "readers": (HEARTBEAT,),
    "unfollowed": (LEDGER,),
    "segment": (LEDGER,),
    "phase-legend": (EVENTS,),
    "why": (EVENTS, OFFSETS),
    "copy": (OFFSETS, SIZES, LEDGER),
    "load": (SIZES, RECORDS),
    "lists": (RECORDS,),
    "checks": (RECORDS,),
    "total": (RECORDS,),
    "running": (RECORDS,),
    "plans": (RECORDS,),
    "rules": (RECORDS,),
    "rule-catalogue": (ASKED,),
    "thresholds": (ASKED,),
    "cause": (RECORDS,),
    "maintenance": (RECORDS,),
    "catch-up": (OFFSETS,),
    "matrix": (CONFIGS,),
    "changes": (RECORDS,),
    "matter": (OFFSETS, SIZES, LEDGER),
    "broker-settings": (CONFIGS,),
    "set-aside": (SIZES,),
    "topics": (CONFIGS,),
    "config-history": (RECORDS,),
    "timeline": (RECORDS, EVENTS, OFFSETS),
    "audit": (RECORDS,),
    "broker-events": (EVENTS,),
    "race-False": (ASKED,),
    "race-True": (ASKED,),
    "race-lag": (ASKED,),
    "race-steps": (ASKED,),
    "faults": (ASKED,),
}


def source_line(card: str, view: ClusterView) -> str | None:
    """``Source: ListOffsets of the brokers, 4 s old; …``; None for a card without numbers of the cluster."""
    sources = BY_CARD.get(card)
    if sources is None:
        return None
    return "Source: " + "; ".join(f"{source.description}, {_age_text(source.age_ms(view))}" for source in sources) + "."


def _age_text(age_ms: int | None) -> str:
    if age_ms is None:
        return "? of unknown age"
    return f"{fmt.duration(max(1, round(age_ms / 1000)))} old"


def note_html(card: str, view: ClusterView | None) -> str:
    """The mark; its words come with the pointer, with the keyboard's focus, and to a screen reader."""
    line = None if view is None else source_line(card, view)
    if line is None:
        return ""
    label = markup.text(line)
    return (
        f'<span class="eb-source" tabindex="0" role="note" aria-label="{label}">i'
        f'<span class="eb-source-words" aria-hidden="true">{label}</span></span>'
    )
