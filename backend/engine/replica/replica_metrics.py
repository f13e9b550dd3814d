"""Gauges of the replica layer under Kafka's names (kafka.server:type=ReplicaManager and others)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from backend.engine.metrics import BrokerMetrics
from backend.engine.replica.partition import Partition

if TYPE_CHECKING:
    from backend.engine.replica.replica_manager import ReplicaManager


def register_replica_metrics(manager: ReplicaManager, metrics: BrokerMetrics) -> None:
    """Read at scrape time on another thread, so everything works on copies."""

    def led() -> list[Partition]:
        return [partition for partition in list(manager.partitions) if partition.is_leader]

    def count(partitions: Iterable[Partition], condition: Callable[[Partition], bool]) -> float:
        return float(sum(1 for partition in partitions if condition(partition)))

    prefix = "kafka_server_replicamanager_"
    for name, doc, read in (
        ("partitioncount", "replicas on this broker", lambda: float(len(list(manager.partitions)))),
        ("leadercount", "partitions led by this broker", lambda: float(len(led()))),
        (
            "underreplicatedpartitions",
            "led partitions with a replica outside the ISR",
            lambda: count(led(), lambda one: len(one.isr.committed) < len(one.replicas)),
        ),
        (
            "underminisrpartitioncount",
            "led partitions with fewer in-sync replicas than min.insync.replicas",
            lambda: count(led(), lambda one: len(one.isr.committed) < one.min_isr),
        ),
        (
            "atminisrpartitioncount",
            "led partitions with just min.insync.replicas in-sync replicas",
            lambda: count(led(), lambda one: len(one.isr.committed) == one.min_isr),
        ),
        (
            "offlinereplicacount",
            "replicas whose log cannot be used",
            lambda: (
                float(len(manager.broken_partitions))
                + count(list(manager.partitions), lambda one: one.log.offline_reason is not None)
            ),
        ),
    ):
        metrics.add_gauge(prefix + name, doc, read)
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
    metrics.add_counter(prefix + "isrexpands", "ISR expansions of led partitions", lambda: manager.isr_expands)
    metrics.add_counter(prefix + "isrshrinks", "ISR shrinks of led partitions", lambda: manager.isr_shrinks)
