"""A broker's remote log manager from its settings: storage, metadata manager, index cache and pools, connected."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from backend.engine.common.event_sink import EventSink
from backend.engine.config import BrokerConfig
from backend.engine.metrics import BrokerMetrics
from backend.engine.ports import Ports, Workers
from backend.engine.remote.indexes.remote_index_cache import RemoteIndexCache
from backend.engine.remote.manager.remote_log_manager import RemoteLogManager
from backend.engine.remote.manager.tier import Tier
from backend.engine.remote.metadata.metadata_topic import MetadataTopic
from backend.engine.remote.metadata.topic_based_metadata_manager import TopicBasedRemoteLogMetadataManager
from backend.engine.remote.plugin_metrics import PluginRegistry
from backend.engine.remote.plugins import (
    METADATA_SETTING,
    STORAGE_SETTING,
    MetadataContext,
    open_metadata_manager,
    open_remote_storage,
)
from backend.engine.remote.remote_meters import RemoteMeters
from backend.engine.remote.storage.checked_storage import CheckedStorage


def open_remote_log_manager(
    *,
    broker_id: int,
    log_dir: str,
    config: Callable[[], BrokerConfig],
    ports: Ports,
    workers: Workers,
    topic: MetadataTopic,
    events: EventSink,
    metrics: BrokerMetrics,
    on_fatal: Callable[[str], None],
    cluster_id: str = "",
) -> RemoteLogManager:
    """The manager of one broker, not started yet.

    `log_dir` is the first log dir (the index cache lives there), `workers` threads for storage calls that may take
    seconds. `on_fatal` is called with the reason why the broker must not go on. ValueError names a wrong setting.
    """
    settings = config()
    identity = {"broker.id": str(broker_id)}
    storage = open_remote_storage(
        settings.remote_log_storage_manager_class_name,
        settings.prefixed(settings.remote_log_storage_manager_impl_prefix) | identity,
        ports.object_store,
    )
    metadata = open_metadata_manager(
        settings.remote_log_metadata_manager_class_name,
        settings.prefixed(settings.remote_log_metadata_manager_impl_prefix)
        | identity
        | {"cluster.id": cluster_id, "log.dir": log_dir},
        MetadataContext(
            ports, topic, events, on_fatal, settings.remote_log_metadata_overlap, metrics.unreadable_records
        ),
    )
    meters = RemoteMeters()
    meters.register(metrics)
    of_plugins = PluginRegistry(metrics)
    of_plugins.lend(STORAGE_SETTING, storage.storage if isinstance(storage, CheckedStorage) else storage)
    of_plugins.lend(METADATA_SETTING, metadata)
    tier = Tier(
        broker_id=broker_id,
        ports=ports,
        workers=workers,
        config=config,
        storage=storage,
        metadata=metadata,
        indexes=RemoteIndexCache(
            storage,
            ports,
            log_dir,
            bytes_max=settings.remote_log_index_file_cache_total_size_bytes,
            ttl_ms=settings.remote_log_index_file_cache_ttl_ms,
            workers=workers,
        ),
        events=events,
        meters=meters,
        unreadable_records=metrics.unreadable_records,
    )
    deleted = metadata.deleted if isinstance(metadata, TopicBasedRemoteLogMetadataManager) else None
    manager = RemoteLogManager(tier, deleted)
    _register_pools(manager, metrics)
    _register_quotas(tier, metrics)
    return manager


def _register_pools(manager: RemoteLogManager, metrics: BrokerMetrics) -> None:
    metrics.add_gauge(
        "kafka_log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize",
        "remote reads that wait for a reader",
        lambda: float(manager.reader_queue_size),
    )
    metrics.add_gauge(
        "kafka_log_remote_remotestoragethreadpool_remotelogreaderavgidlepercent",
        "part of the reader pool that is idle",
        lambda: manager.reader_idle_fraction,
    )
    metrics.add_gauge(
        "kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent",
        "part of the copier pool that is idle",
        lambda: manager.copier_idle_fraction,
    )


def _register_quotas(tier: Tier, metrics: BrokerMetrics) -> None:
    """kafka.server:type=RLMCopy|RLMFetch, and the throttle times of type=RemoteLogManager (KIP-956)."""
    for name, quota in (("copy", tier.copy_quota), ("fetch", tier.fetch_quota)):
        metrics.add_gauge(
            f"kafka_server_rlm{name}_byte_rate",
            f"bytes a second of the remote log manager's {name} quota",
            partial(getattr, quota, "bytes_per_second"),
        )
        throttle = f"kafka_server_remotelogmanager_remote_{name}_throttle_time"
        metrics.add_gauge(
            f"{throttle}_avg", f"average {name} throttle time, ms", partial(getattr, quota.throttled, "average_ms")
        )
        metrics.add_gauge(
            f"{throttle}_max", f"maximum {name} throttle time, ms", partial(getattr, quota.throttled, "max_ms")
        )
