"""Gauges about a broker's replicas and its controller, under Kafka's MBean names; read at a scrape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from backend.engine.apis.quotas.client_quota_manager import METRICS, ClientQuotaManager
from backend.engine.apis.services import BrokerServices
from backend.engine.log.cleaner.cleaner_metrics import register_cleaner_metrics
from backend.engine.metrics import BrokerMetrics
from backend.engine.metrics.broker_metrics import MetricValue
from backend.engine.ports import Clock
from backend.engine.remote.manager.expiration_task import percent_of
from backend.engine.replica.partition import Partition
from backend.engine.replica.replication_quota import ReplicationQuota


def add_broker_gauges(services: BrokerServices) -> None:
    """kafka.server:type=ReplicaManager and kafka.controller:type=KafkaController."""
    replicas, metrics = services.replica_manager, services.metrics

    def count(counts: Callable[[Partition], bool]) -> Callable[[], float]:
        # A copy first: the loop's thread may add a partition meanwhile.
        return lambda: float(sum(1 for partition in list(replicas.partitions) if counts(partition)))

    for name, doc, counts in (
        ("partitioncount", "Replicas hosted", lambda _: True),
        ("leadercount", "Partitions led", lambda partition: partition.is_leader),
        ("underreplicatedpartitions", "Led partitions with replicas outside the ISR", _is_under_replicated),
        ("underminisrpartitioncount", "Led partitions whose ISR is below min.insync.replicas", _is_under_min_isr),
        ("atminisrpartitioncount", "Led partitions whose ISR is just min.insync.replicas", _is_at_min_isr),
    ):
        metrics.add_gauge(f"kafka_server_replicamanager_{name}", doc, count(counts))
    metrics.add_gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas whose log cannot be used",
        lambda: float(len(replicas.broken_partitions)),
    )
    metrics.add_gauge(
        "kafka_log_log_retentionsizeinpercent",
        "Local log against retention.bytes; 0 without a limit and where the remote log manager tells (KIP-1257)",
        lambda: [_retention_share(partition) for partition in list(replicas.partitions)],
    )
    _add_quota_gauges(services, metrics)
    register_cleaner_metrics(services.log_manager, services.ports.clock, metrics)
    if services.controller is not None:
        _add_controller_gauges(services, metrics)


def _add_quota_gauges(services: BrokerServices, metrics: BrokerMetrics) -> None:
    """kafka.server:type=Produce|Fetch|Request|ControllerMutation of every client under a quota, and of throttles."""
    replicas = services.replica_manager
    for side, quota in (("leader", replicas.leader_quota), ("follower", replicas.follower_quota)):
        metrics.add_gauge(
            f"kafka_server_{side}replication_byte_rate",
            f"Bytes a second of throttled replicas on the {side}'s side",
            partial(_throttled_rate, quota, services.ports.clock),
        )
    quotas, clock = services.client_quotas, services.ports.clock
    for key, kind, name, doc in METRICS:
        metrics.add_gauge(f"kafka_server_{kind}_{name}", doc, partial(_rates, quotas, key, clock))
        metrics.add_gauge(
            f"kafka_server_{kind}_throttle_time", "Latest throttle time, ms", partial(quotas.throttle_times, key)
        )


def _throttled_rate(quota: ReplicationQuota, clock: Clock) -> float:
    return quota.rate(clock.monotonic_ms())


def _rates(quotas: ClientQuotaManager, key: str, clock: Clock) -> MetricValue:
    return quotas.rates(key, clock.monotonic_ms())


def _retention_share(partition: Partition) -> tuple[dict[str, str], float]:
    log, tip = partition.log, partition.topic_id_partition
    elsewhere = log.remote_enabled and not log.config.remote_log_copy_disable
    share = 0 if elsewhere else percent_of(log.size_bytes, log.config.retention_bytes)
    return {"topic": tip.topic, "partition": str(tip.partition)}, float(share)


def _is_under_replicated(partition: Partition) -> bool:
    return partition.is_leader and len(partition.isr.committed) < len(partition.replicas)


def _is_under_min_isr(partition: Partition) -> bool:
    return partition.is_leader and len(partition.isr.committed) < partition.min_isr


def _is_at_min_isr(partition: Partition) -> bool:
    return partition.is_leader and len(partition.isr.committed) == partition.min_isr


def _add_controller_gauges(services: BrokerServices, metrics: BrokerMetrics) -> None:
    controller = services.controller
    assert controller is not None

    def leaderless() -> float:
        return float(
            sum(
                1
                for topic in controller.image.topics.values()
                for partition in topic.partitions.values()
                if partition.leader < 0
            )
        )

    prefix = "kafka_controller_kafkacontroller"
    metrics.add_gauge(
        f"{prefix}_activecontrollercount",
        "Whether this node is the active controller",
        lambda: float(controller.is_active),
    )
    metrics.add_gauge(f"{prefix}_offlinepartitionscount", "Partitions without a leader", leaderless)
    metrics.add_gauge(
        f"{prefix}_activebrokercount",
        "Brokers that are not fenced",
        lambda: float(sum(1 for broker in controller.image.brokers.values() if not broker.fenced)),
    )
    metrics.add_gauge(
        f"{prefix}_fencedbrokercount",
        "Registered brokers that are fenced",
        lambda: float(sum(1 for broker in controller.image.brokers.values() if broker.fenced)),
    )
    metrics.add_gauge(f"{prefix}_globaltopiccount", "Topics", lambda: float(len(controller.image.topics)))
    metrics.add_gauge(
        f"{prefix}_globalpartitioncount",
        "Partitions",
        lambda: float(sum(len(topic.partitions) for topic in controller.image.topics.values())),
    )
