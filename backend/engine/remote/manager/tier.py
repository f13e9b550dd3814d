"""The parts that the remote log manager's tasks share, and the view of a hosted partition that they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from backend.engine.common.event_sink import EventSink
from backend.engine.common.rates import Windows
from backend.engine.common.unreadable_records import UnreadableRecords
from backend.engine.config import BrokerConfig
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import Ports, Workers
from backend.engine.remote.indexes.remote_index_cache import RemoteIndexCache
from backend.engine.remote.manager.rlm_quota_manager import RlmQuota
from backend.engine.remote.metadata.remote_log_metadata_manager import RemoteLogMetadataManager
from backend.engine.remote.remote_meters import RemoteMeters
from backend.engine.remote.storage.remote_storage_manager import RemoteStorageManager
from backend.tiering.ids import TopicIdPartition


class PartitionView(Protocol):
    """A partition that this broker hosts, as the replica layer has it."""

    @property
    def topic_id_partition(self) -> TopicIdPartition: ...

    @property
    def log(self) -> UnifiedLog: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_leader(self) -> bool: ...


@dataclass(slots=True, kw_only=True)
class Tier:
    """One broker's remote tier."""

    broker_id: int
    ports: Ports
    # Threads for calls to the storage, which may take seconds: not those that write the log.
    workers: Workers
    # Settings in force; dynamic ones change between calls.
    config: Callable[[], BrokerConfig]
    storage: RemoteStorageManager
    metadata: RemoteLogMetadataManager
    indexes: RemoteIndexCache
    events: EventSink
    meters: RemoteMeters
    unreadable_records: UnreadableRecords = field(default_factory=UnreadableRecords)
    # Segments this broker is copying now: expiration keeps its hands off them.
    copying: set[bytes] = field(default_factory=set)
    # Partitions whose remote data goes as a whole, since tiering was switched off: no task of theirs runs meanwhile.
    deleting: set[TopicIdPartition] = field(default_factory=set)
    copy_quota: RlmQuota = field(init=False)
    fetch_quota: RlmQuota = field(init=False)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether tasks of the partition may run: its metadata is known, and nothing takes it away."""
        return partition not in self.deleting and self.metadata.is_ready(partition)

    def __post_init__(self) -> None:
        settings, clock = self.config(), self.ports.clock
        self.copy_quota = RlmQuota(
            clock,
            Windows(
                settings.remote_log_manager_copy_quota_window_num,
                settings.remote_log_manager_copy_quota_window_size_seconds * 1000,
            ),
            lambda: self.config().remote_log_manager_copy_max_bytes_per_second,
        )
        self.fetch_quota = RlmQuota(
            clock,
            Windows(
                settings.remote_log_manager_fetch_quota_window_num,
                settings.remote_log_manager_fetch_quota_window_size_seconds * 1000,
            ),
            lambda: self.config().remote_log_manager_fetch_max_bytes_per_second,
        )
