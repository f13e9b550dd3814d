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
    remote = manager.purgatory.remote

    def waiting() -> list[tuple[dict[str, str], float]]:
        return [
            ({"delayedoperation": "All"}, float(manager.purgatory.count)),
            ({"delayedoperation": "RemoteFetch"}, float(remote.fetches)),
            ({"delayedoperation": "RemoteListOffsets"}, float(remote.look_ups)),
        ]

    # Kafka counts an operation once for every partition that it watches in the first; here both are requests.
    for name in ("purgatorysize", "numdelayedoperations"):
        metrics.add_gauge(f"kafka_server_delayedoperationpurgatory_{name}", "requests that wait", waiting)
    metrics.add_counter(
        "kafka_server_delayedremotefetchmetrics_expires",
        "fetches that the remote tier did not serve in remote.fetch.max.wait.ms",
        lambda: remote.expired_fetches,
    )

    def expired_look_ups() -> list[tuple[dict[str, str], float]]:
        found: list[tuple[dict[str, str], float]] = [
            ({"topic": "", "partition": ""}, float(remote.expired_look_ups)),
        ]
        for one, count in remote.expired_by_partition.copy().items():
            found.append(({"topic": one.topic, "partition": str(one.partition)}, float(count)))
        return found

    metrics.add_counter(
        "kafka_server_delayedremotelistoffsetsmetrics_expires",
        "partitions that were not searched by time before the request's time was up",
        expired_look_ups,
    )
    metrics.add_counter(
        "kafka_server_replicamanager_isrexpands", "ISR expansions of led partitions", lambda: manager.isr_expands
    )
    metrics.add_counter(
        "kafka_server_replicamanager_isrshrinks", "ISR shrinks of led partitions", lambda: manager.isr_shrinks
    )
