"""Meters that only the replica layer has, under Kafka's names; `broker` adds the gauges about partitions."""

from __future__ import annotations

from backend.engine.metrics import BrokerMetrics
from backend.engine.replica.alter_partition_manager import AlterPartitionManager
from backend.engine.replica.fetchers.replica_fetcher_manager import ReplicaFetcherManager
from backend.engine.replica.purgatory import Purgatory


def register_replica_metrics(
    metrics: BrokerMetrics, fetchers: ReplicaFetcherManager, purgatory: Purgatory, isr_changes: AlterPartitionManager
) -> None:
    """Read at scrape time on another thread."""

    metrics.add_gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "largest number of records a followed partition is behind its leader",
        lambda: [({"clientid": "Replica"}, float(fetchers.max_lag()))],
    )
    remote = purgatory.remote

    def waiting() -> list[tuple[dict[str, str], float]]:
        return [
            ({"delayedoperation": "All"}, float(purgatory.count)),
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
        samples: list[tuple[dict[str, str], float]] = [
            ({"topic": "", "partition": ""}, float(remote.expired_look_ups)),
        ]
        for partition, count in remote.expired_by_partition.copy().items():
            samples.append(({"topic": partition.topic, "partition": str(partition.partition)}, float(count)))
        return samples

    metrics.add_counter(
        "kafka_server_delayedremotelistoffsetsmetrics_expires",
        "partitions that were not searched by time before the request's time was up",
        expired_look_ups,
    )
    metrics.add_counter(
        "kafka_server_replicamanager_isrexpands", "ISR expansions of led partitions", lambda: isr_changes.expands
    )
    metrics.add_counter(
        "kafka_server_replicamanager_isrshrinks", "ISR shrinks of led partitions", lambda: isr_changes.shrinks
    )
