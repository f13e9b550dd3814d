"""Reads that the head row shares with the parts of a page: each has one version everywhere, so that all get one result.

Two parts that ask the same with another version take each other's result out of the cache. Each raises
DatabaseUnreachable.
"""

from __future__ import annotations

from typing import Final

from app import state
from app.query_cache import SlidingMs
from app.state import ClusterView
from backend.store.maintenance_window import MaintenanceWindow
from backend.store.queries import maintenance, overview
from backend.store.queries.overview import BrokerRow, FindingRow

# Maintenance begins and ends on the minute for people.
WINDOWS_STEP_MS: Final = 5_000


def brokers(view: ClusterView) -> list[BrokerRow]:
    """All brokers of the cluster, with when each was seen last."""
    return state.read_cached(overview.brokers, view.cluster.cluster_id, version=view.seen_version)


def open_findings(view: ClusterView) -> list[FindingRow]:
    """All findings that are open, with when each was seen last."""
    return state.read_cached(overview.open_findings, view.cluster.cluster_id, version=view.seen_version)


def maintenance_windows(view: ClusterView) -> list[MaintenanceWindow]:
    """Maintenance that is planned or under way."""
    now = SlidingMs.of(view.read_ms, step_ms=WINDOWS_STEP_MS)
    return state.read_cached(maintenance.windows, view.cluster.cluster_id, now, version=view.version)
