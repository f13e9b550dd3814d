"""A broker's remote tier over a folder and a metadata topic in memory, with one partition's log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backend.engine.config import BrokerConfig
from backend.engine.log.log_config import LogConfig
from backend.engine.log.unified_log import UnifiedLog
from backend.engine.ports import Ports
from backend.engine.ports.object_store import ObjectStore
from backend.engine.remote.indexes.remote_index_cache import RemoteIndexCache
from backend.engine.remote.manager.remote_log_manager import RemoteLogManager
from backend.engine.remote.manager.tier import Tier
from backend.engine.remote.metadata.topic_based_metadata_manager import RlmmSettings, TopicBasedRemoteLogMetadataManager
from backend.engine.remote.remote_meters import RemoteMeters
from backend.engine.remote.storage.object_store_manager import EventType, ObjectStoreRemoteStorageManager, open_storage
from backend.protocol.remote_log.metadata_serde import RemoteLogMetadata, decode, metadata_partition
from backend.tiering.ids import TopicIdPartition
from tests.conformance.memory_topic import MemoryMetadataTopic, MemoryTopicLog
from tests.unit.engine.log.logs import DENSE, TIP, append, open_test_log, replicate
from tests.unit.engine.virtual_time import ports_here

FAST = {
    "remote.log.manager.task.interval.ms": "20",
    "remote.log.manager.task.retry.backoff.ms": "10",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "rlmm.config.remote.log.metadata.consume.wait.ms": "5000",
}


@dataclass
class RecordingSink:
    """Keeps events for the test to look at."""

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def emit(self, type: str, *, topic: str, topic_id: bytes, partition: int, **detail: Any) -> None:
        self.events.append((type, detail))

    def outcomes(self, type: str) -> list[str]:
        return [detail["outcome"] for kind, detail in self.events if kind == type]


@dataclass
class View:
    """A hosted partition."""

    log: UnifiedLog
    leader_epoch: int = 0
    is_leader: bool = True

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.log.topic_id_partition


@dataclass
class Broker:
    """Everything of one broker's tier."""

    tier: Tier
    manager: RemoteLogManager
    metadata: TopicBasedRemoteLogMetadataManager
    storage: ObjectStoreRemoteStorageManager
    topic: MemoryMetadataTopic
    sink: RecordingSink
    fatal: list[str]

    def history(self, *types: EventType) -> list[tuple[EventType, int, bool]]:
        return [(e.type, e.start_offset, e.succeeded) for e in self.storage.history if not types or e.type in types]

    def published(self, partition: TopicIdPartition = TIP) -> list[RemoteLogMetadata]:
        target = metadata_partition(partition.topic_id, partition.partition, len(self.topic.log.partitions))
        return [decode(value) for value in self.topic.log.partitions[target]]


@asynccontextmanager
async def tier_broker(
    folder: Path,
    *,
    broker_id: int = 1,
    topic: MemoryTopicLog | None = None,
    settings: Mapping[str, str] | None = None,
    partitions: tuple[TopicIdPartition, ...] = (TIP,),
    ports: Ports | None = None,
    store: ObjectStore | None = None,
) -> AsyncIterator[Broker]:
    """A broker that hosts the partitions' metadata; tasks are started by the test."""
    config = BrokerConfig.parse({**FAST, **(settings or {})})
    ports = ports or ports_here()
    client, sink, fatal = MemoryMetadataTopic(topic), RecordingSink(), list[str]()
    if store is None:
        storage = open_storage({"dir": str(folder / "remote")}, broker_id=broker_id)
    else:
        storage = ObjectStoreRemoteStorageManager(store, broker_id=broker_id)
    metadata = TopicBasedRemoteLogMetadataManager(
        client, RlmmSettings.parse(config.prefixed("rlmm.config.")), ports, sink, on_fatal=fatal.append
    )
    (folder / str(broker_id)).mkdir(exist_ok=True, parents=True)
    tier = Tier(
        broker_id=broker_id,
        ports=ports,
        workers=ports.workers,
        config=lambda: config,
        storage=storage,
        metadata=metadata,
        indexes=RemoteIndexCache(storage, ports, str(folder / str(broker_id)), bytes_max=1 << 20),
        events=sink,
        meters=RemoteMeters(),
    )
    manager = RemoteLogManager(tier, metadata.deleted)
    await manager.start()
    metadata.on_partition_leadership_changes(partitions, ())
    try:
        for partition in partitions:
            assert fatal or await metadata.wait_ready(partition, 5000)
        yield Broker(tier, manager, metadata, storage, client, sink, fatal)
    finally:
        await manager.close()
        ports.workers.close()


TIERED = replace(DENSE, remote_storage_enable=True, local_retention_bytes=1)
EPOCHS = (0, 0, 0, 1, 1, 2, 2, 3)


def golden_tiered_log(folder: Path, config: LogConfig = TIERED, *, remote: bool = True) -> UnifiedLog:
    """The golden log of eight records in segments 0-2, 3-5 and 6-7, as a tiered one, replicated."""
    log = open_test_log(folder, config, remote=remote)
    for index, epoch in enumerate(EPOCHS):
        if index in (3, 6):
            log.roll()
        more = {"producer_id": 77, "producer_epoch": 0, "base_sequence": index - 4} if index in (4, 5) else {}
        append(log, index, epoch=epoch, **more)
    replicate(log)
    return log
