"""Meters that only the replica layer knows, under Kafka's names; `broker` adds the gauges about partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.engine.metrics import BrokerMetrics

if TYPE_CHECKING:
    from backend.engine.replica.replica_manager import ReplicaManager


def register_replica_metrics(manager: ReplicaManager, metrics: BrokerMetrics) -> None:
    """Read at scrape time on another thread."""

    metrics.add_gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "largest number of records a followed partition is behind its leader",
        lambda: [({"clientid": "Replica"}, float(manager.max_lag()))],
    )
    metrics.add_gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "requests that wait for a partition to change",
        lambda: [({"delayedoperation": "All"}, float(manager.purgatory.count))],
    )
    metrics.add_counter(
        "kafka_server_replicamanager_isrexpands", "ISR expansions of led partitions", lambda: manager.isr_expands
    )
    metrics.add_counter(
        "kafka_server_replicamanager_isrshrinks", "ISR shrinks of led partitions", lambda: manager.isr_shrinks
    )
