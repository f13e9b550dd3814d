"""Broker × check; only problems are coloured. Pure: rows → cells → markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from app.components.cluster.health_text import silence_severity
from app.components.cluster.overview_facts import OverviewFacts
from app.components.follower.replica_phases import STUCK_PHASES
from app.components.partition.pending_limits import (
    disk_share,
    disk_status,
    free_bytes,
    pending_bytes,
    pending_limit_bytes,
    pending_status,
)
from app.components.remote.copy_age import is_hung
from app.components.shared import format as fmt
from app.components.shared import markup
from backend.store.queries.overview import BrokerRow, FindingRow
from backend.tiering.pending import PendingReason
from backend.tiering.segment_state import DELETE_OVERDUE_MS, SegmentState

CHECKS: Final = ("Answers", "Copy", "Pending", "Delete", "Metadata", "In sync", "Disk", "Data age")
FINE: Final = "✓"
# The finding that names in its evidence the brokers whose copies fail.
COPY_FAILING: Final = "copy-failing"


@dataclass(frozen=True, slots=True)
class BrokerCheck:
    """One cell; ``status`` None: fine, ``unknown``: with its cause in ``hint``."""

    label: str = FINE
    status: str | None = None
    hint: str = ""


def checks(
    facts: OverviewFacts, replica_counts: Mapping[int, int], stale_ms: int, now_ms: int
) -> dict[int, tuple[BrokerCheck, ...]]:
    """Eight checks for each broker, by its id. ``replica_counts``: replicas by broker."""
    limits = {topic.topic: pending_limit_bytes(topic) for topic in facts.topics}
    by_broker = {}
    for broker in facts.brokers:
        if not broker.reachable:
            silent = BrokerCheck("?", "unknown", f"Broker {broker.broker_id} does not answer")
            severity = silence_severity([broker], facts.findings)
            away = BrokerCheck("no", severity, broker.error or "It does not answer")
            by_broker[broker.broker_id] = (away, *([silent] * 6), _age(broker, now_ms, stale_ms, severity))
            continue
        by_broker[broker.broker_id] = (
            BrokerCheck("fenced", "warning", "The controller has fenced it") if broker.fenced else BrokerCheck(),
            _copy(facts, broker.broker_id),
            _pending(facts, broker.broker_id, limits),
            _delete(facts, broker.broker_id),
            _metadata(facts, broker.broker_id),
            _in_sync(facts, broker.broker_id, replica_counts.get(broker.broker_id, 0)),
            _disk(broker),
            _age(broker, now_ms, stale_ms, "critical"),
        )
    return by_broker


def _copy(facts: OverviewFacts, broker_id: int) -> BrokerCheck:
    open_copies = [s for s in facts.open_segments if s.copy_broker_id == broker_id]
    hung = sum(is_hung(s, facts.p99_ms.get((s.topic, s.partition)), facts.ledger_ms) for s in open_copies)
    failing = next((f for f in facts.findings if f.slug == COPY_FAILING and broker_id in _brokers(f)), None)
    if failing is not None:
        return BrokerCheck("fails", "critical" if failing.severity == "critical" else "warning", failing.sentence)
    return BrokerCheck(f"{hung} hung", "critical") if hung else BrokerCheck()


def _brokers(finding: FindingRow) -> Sequence[int]:
    """The brokers that its evidence names."""
    evidence = finding.evidence if isinstance(finding.evidence, dict) else {}
    return [broker_id for broker_id in evidence.get("brokers") or () if isinstance(broker_id, int)]


def _pending(facts: OverviewFacts, broker_id: int, limits: Mapping[str, int | None]) -> BrokerCheck:
    sizes = [(pending_bytes(row), limits.get(row.topic)) for row in facts.partitions if row.leader == broker_id]
    over = [(size, pending_status(size, limit)) for size, limit in sizes if pending_status(size, limit)]
    if over:
        status = "critical" if any(status_of == "critical" for _, status_of in over) else "warning"
        return BrokerCheck(
            fmt.size(sum(size or 0 for size, _ in over)), status, f"{len(over)} partitions near their limit"
        )
    unknown = sum(size is None for size, _ in sizes)
    if sizes and unknown == len(sizes):
        return BrokerCheck("?", "unknown", f"Broker {broker_id} has not told what is pending")
    return BrokerCheck()


def _delete(facts: OverviewFacts, broker_id: int) -> BrokerCheck:
    overdue = [
        s
        for s in facts.open_segments
        if s.state is SegmentState.DELETE_SEGMENT_STARTED
        and s.broker_id == broker_id
        and not s.copy_failed
        and facts.ledger_ms - (s.delete_started_ms or facts.ledger_ms) > DELETE_OVERDUE_MS
    ]
    return BrokerCheck(f"{len(overdue)} late", "warning") if overdue else BrokerCheck()


def _metadata(facts: OverviewFacts, broker_id: int) -> BrokerCheck:
    led = [row for row in facts.partitions if row.leader == broker_id and row.tiered]
    loading = sum(row.pending_reason == PendingReason.LEADER_DOES_NOT_KNOW for row in led)
    if loading:
        return BrokerCheck(f"{loading} of {len(led)}", "warning", "It does not know yet what is in the remote tier")
    return BrokerCheck()


def _in_sync(facts: OverviewFacts, broker_id: int, replicas: int) -> BrokerCheck:
    behind = sum(number for (broker, _), number in facts.replicas_behind.items() if broker == broker_id)
    if not behind:
        return BrokerCheck()
    stuck = any((broker_id, phase) in facts.replicas_behind for phase in STUCK_PHASES)
    return BrokerCheck(f"{behind} of {replicas}", "critical" if stuck else "warning", "Replicas that are not in sync")


def _disk(broker: BrokerRow) -> BrokerCheck:
    broken = [directory for directory in broker.log_dirs or [] if directory.get("error")]
    if broken:
        return BrokerCheck(f"{len(broken)} offline", "critical", str(broken[0].get("error")))
    share = disk_share(broker)
    if share is None:
        return BrokerCheck("?", "unknown", f"Broker {broker.broker_id} does not tell its disk's size")
    status, free = disk_status(share), f"{fmt.size(free_bytes(broker))} free"
    if status is None:
        return BrokerCheck(hint=free)
    return BrokerCheck(free, status, "On the fullest disk")


def _age(broker: BrokerRow, now_ms: int, stale_ms: int, severity: str) -> BrokerCheck:
    age_ms = max(0, now_ms - broker.seen_ms)
    if age_ms <= stale_ms:
        return BrokerCheck(hint=f"{fmt.duration(age_ms / 1000)} old")
    return BrokerCheck(fmt.duration(age_ms / 1000), severity, "Time since it last answered")


def grid_html(by_broker: Mapping[int, Sequence[BrokerCheck]]) -> str:
    """The grid, and under it every unknown with its cause."""
    style = f"grid-template-columns: 64px repeat({len(CHECKS)}, minmax(52px, 1fr))"
    cells = '<div role="columnheader"></div>' + "".join(
        f'<div class="eb-col" role="columnheader">{name}</div>' for name in CHECKS
    )
    body = f'<div style="display:contents" role="row">{cells}</div>'
    for broker_id, row in by_broker.items():
        inner = "".join(
            f'<div role="cell" class="eb-cell eb-cell-{check.status or "fine"}" title="{markup.text(check.hint)}">'
            f"{markup.text(check.label)}</div>"
            for check in row
        )
        body += f'<div style="display:contents" role="row"><div role="rowheader">Broker {broker_id}</div>{inner}</div>'
    causes = sorted({check.hint for row in by_broker.values() for check in row if check.status == "unknown"})
    note = f'<div class="eb-lines">? unknown: {markup.text("; ".join(causes))}</div>' if causes else ""
    return (
        '<div class="eb-scroll" tabindex="0" role="group" aria-label="Broker checks, scrolled sideways">'
        f'<div class="eb-grid-table" role="table" aria-label="Broker checks" style="{style}">'
        f"{body}</div></div>{note}"
    )


def rows(by_broker: Mapping[int, Sequence[BrokerCheck]]) -> pd.DataFrame:
    """The same as a table."""
    return pd.DataFrame(
        [
            {"broker": broker_id, **{name: check.label for name, check in zip(CHECKS, row, strict=True)}}
            for broker_id, row in by_broker.items()
        ]
    )
