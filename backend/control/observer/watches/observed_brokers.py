"""Rows of `broker`: those of the newest round, with what each broker answered since. They are stored when that changes.

A round comes every two seconds on a small cluster, every 150 s on a large one, and none ends while no broker answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from backend.control.observer.cluster_rows import broker_row
from backend.control.observer.sampling.cluster_facts import ClusterFacts
from backend.control.observer.watches.liveness_watch import Liveness
from backend.store.queries.overview import BrokerRow


class ObservedBrokers:
    """Belongs to one event loop."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._seen_ms: dict[int, int] = {}
        self._stored: Sequence[BrokerRow] = ()

    def restore(self, rows: Sequence[BrokerRow]) -> None:
        """The rows that the process before stored; a round of this one is newer."""
        self._stored = self._stored or rows

    def of_round(self, facts: ClusterFacts) -> list[dict[str, Any]]:
        """The rows of a round, which are stored with it."""
        rows = []
        for broker_id, broker in facts.brokers.items():
            if broker.reachable:
                self._seen_ms[broker_id] = facts.at_ms
            seen_ms = self._seen_ms.get(broker_id, facts.at_ms)
            rows.append(broker_row(self._cluster_id, broker, facts.at_ms, seen_ms))
        self._stored = broker_rows(rows)
        return rows

    def changed(self, liveness: Liveness) -> list[dict[str, Any]]:
        """The rows to store because a broker answers now that did not when they were stored, or the other way round;
        none: nothing has changed.
        """
        rows = brokers_now(self._stored, liveness)
        if [row.reachable for row in rows] == [row.reachable for row in self._stored]:
            return []
        self._stored = rows
        return [{"cluster_id": self._cluster_id, **asdict(row)} for row in rows]


def broker_rows(rows: Sequence[Mapping[str, Any]]) -> list[BrokerRow]:
    """Rows of the table as values."""
    return [BrokerRow(**{name: value for name, value in row.items() if name != "cluster_id"}) for row in rows]


def brokers_now(rows: Sequence[BrokerRow], liveness: Liveness) -> list[BrokerRow]:
    """The brokers of the newest round with what they answered since; one that was not asked yet stays as it was, unless
    no broker of the cluster answers.
    """
    return [_broker_now(row, liveness) for row in rows]


def _broker_now(row: BrokerRow, liveness: Liveness) -> BrokerRow:
    broker, away = liveness.brokers.get(row.broker_id), liveness.away
    if broker is None:
        return row if away is None else replace(row, reachable=False, error=away.reason, sampled_ms=liveness.at_ms)
    seen_ms = max(row.seen_ms, broker.seen_ms or 0)
    return replace(row, reachable=broker.error is None, error=broker.error, seen_ms=seen_ms, sampled_ms=liveness.at_ms)
