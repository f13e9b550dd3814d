"""Rows behind the Overview's cards, all of one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.components.cluster.health_text import Blindness
from backend.store.maintenance_window import MaintenanceWindow
from backend.store.queries.config import TopicRow
from backend.store.queries.overview import BrokerRow, FindingRow, LedgerTotals
from backend.store.queries.partitions import PartitionRow, SegmentRow


@dataclass(frozen=True, slots=True)
class OverviewFacts:
    """Rows behind the Overview. ``replicas_behind``: how many are out of the ISR, by (broker, phase). ``p99_ms``:
    duration of finished copies by (topic, partition); absent: not known.

    The cluster is judged as of ``now_ms``, the newest sample, and the ledger as of ``ledger_ms``: later changes are not
    known here, so no age may count the time since.
    """

    now_ms: int
    ledger_ms: int
    blindness: Sequence[Blindness]
    brokers: Sequence[BrokerRow]
    partitions: Sequence[PartitionRow]
    replicas_behind: Mapping[tuple[int, str | None], int]
    open_segments: Sequence[SegmentRow]
    p99_ms: Mapping[tuple[str, int], int]
    topics: Sequence[TopicRow]
    ledger: LedgerTotals
    findings: Sequence[FindingRow] = field(default_factory=tuple)
    windows: Sequence[MaintenanceWindow] = field(default_factory=tuple)
