"""The topics that may have a remote part (`UnifiedLog.isRemoteLogEnabled` of Kafka)."""

from __future__ import annotations

from typing import Final

from backend.engine.log.file_names import CLUSTER_METADATA_TOPIC
from backend.engine.log.log_config import LogConfig

REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def is_remote_enabled(topic: str, config: LogConfig) -> bool:
    """Whether the topic's own settings make it tiered; the broker's switch comes on top."""
    return (
        config.remote_storage_enable
        and not config.is_compacted
        and topic not in INTERNAL_TOPICS
        and topic not in (REMOTE_LOG_METADATA_TOPIC, CLUSTER_METADATA_TOPIC)
    )
