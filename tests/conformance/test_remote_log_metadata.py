"""Both built-in metadata managers keep one contract. A plug-in's author writes such a class too."""

from __future__ import annotations

from backend.engine.ports import system_ports
from backend.engine.remote.conformance.metadata import RemoteLogMetadataConformance
from backend.engine.remote.metadata.in_memory_metadata_manager import InMemoryRemoteLogMetadataManager
from backend.engine.remote.metadata.metadata_topic import MetadataTopicSettings
from backend.engine.remote.metadata.remote_log_metadata_manager import RemoteLogMetadataManager
from backend.engine.remote.metadata.topic_based_metadata_manager import RlmmSettings, TopicBasedRemoteLogMetadataManager
from tests.conformance.memory_topic import MemoryMetadataTopic
from tests.unit.engine.remote.tiers import RecordingSink

SETTINGS = RlmmSettings(topic=MetadataTopicSettings(partitions=2))


class TestTopicBased(RemoteLogMetadataConformance):
    async def open_manager(self) -> RemoteLogMetadataManager:
        return TopicBasedRemoteLogMetadataManager(
            MemoryMetadataTopic(), SETTINGS, system_ports(), RecordingSink(), on_fatal=print
        )


class TestInMemory(RemoteLogMetadataConformance):
    async def open_manager(self) -> RemoteLogMetadataManager:
        return InMemoryRemoteLogMetadataManager()
