"""Settings of a partition log as a frozen value, and of the log manager.

Names, types, limits and defaults live in `engine/config/topic_config.py`; here a topic's effective values become the
fields that the log reads (`LogConfig` of Kafka). The replica layer replaces the value that a log holds when the topic's
configuration changes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backend.engine.common.topic_names import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, REMOTE_LOG_METADATA_TOPIC
from backend.engine.config import TOPIC_SETTINGS, BrokerConfig, topic_values

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
DAY_MS: Final = 86_400_000
# local.retention.ms and local.retention.bytes: take the value of retention.ms and retention.bytes.
SAME_AS_TOTAL: Final = -2


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one topic's logs. A field is the topic property of the same name with `_` for `.`.

    The constructor checks nothing, so that tests may build tiny segments; :meth:`from_properties` enforces Kafka's
    limits.
    """

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    index_interval_bytes: int = 4096
    local_retention_bytes: int = SAME_AS_TOTAL
    local_retention_ms: int = SAME_AS_TOTAL
    max_compaction_lag_ms: int = INT64_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    unclean_leader_election_enable: bool = False

    @staticmethod
    def from_properties(properties: Mapping[str, str | None], base: LogConfig | None = None) -> LogConfig:
        """`base` (default: Kafka's defaults) with the topic properties given, such as `topic_values` returns them.

        None means the base's value; names that the log does not read are ignored. Raises ConfigError for a value that
        its setting refuses.
        """
        chosen: dict[str, Any] = {}
        for name, text in properties.items():
            attribute = _ATTRIBUTES.get(name)
            if attribute is not None and text is not None:
                chosen[attribute] = TOPIC_SETTINGS[name].parse(text)
        return dataclasses.replace(base or LogConfig(), **chosen)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def effective_segment_ms(self) -> int:
        """`segment.ms`; a compacted log also rolls in time for `max.compaction.lag.ms` (`LogConfig.maxSegmentMs`)."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.is_compacted else self.segment_ms

    @property
    def deletes(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def effective_local_retention_ms(self) -> int:
        """`local.retention.ms` with -2 resolved; -1 is no limit."""
        return self.retention_ms if self.local_retention_ms == SAME_AS_TOTAL else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        """`local.retention.bytes` with -2 resolved; -1 is no limit."""
        return self.retention_bytes if self.local_retention_bytes == SAME_AS_TOTAL else self.local_retention_bytes


_ATTRIBUTES: Final[Mapping[str, str]] = {
    f.name.replace("_", "."): f.name
    for f in dataclasses.fields(LogConfig)
    if f.name.replace("_", ".") in TOPIC_SETTINGS
}


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """Settings of the log cleaner; all but `enabled` may change while it runs (`CleanerConfig` of Kafka)."""

    enabled: bool = True  # log.cleaner.enable
    threads: int = 1  # log.cleaner.threads
    dedupe_buffer_bytes: int = 128 << 20  # log.cleaner.dedupe.buffer.size, shared by the threads
    io_buffer_bytes: int = 512 << 10  # log.cleaner.io.buffer.size, likewise
    load_factor: float = 0.9  # log.cleaner.io.buffer.load.factor
    io_bytes_per_second_max: float = sys.float_info.max  # log.cleaner.io.max.bytes.per.second
    backoff_ms: int = 15_000  # log.cleaner.backoff.ms

    @staticmethod
    def of(config: BrokerConfig) -> CleanerConfig:
        """The cleaner's part of a broker's settings."""
        return CleanerConfig(
            enabled=config.log_cleaner_enable,
            threads=config.log_cleaner_threads,
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
            io_buffer_bytes=config.log_cleaner_io_buffer_size,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            io_bytes_per_second_max=config.log_cleaner_io_max_bytes_per_second,
            backoff_ms=config.log_cleaner_backoff_ms,
        )


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """Broker-wide settings of the log layer; `default_log` serves logs whose topic's configuration is not known yet."""

    default_log: LogConfig = field(default_factory=LogConfig)
    remote_system_enabled: bool = False  # remote.log.storage.system.enable
    initial_task_delay_ms: int = 30_000  # log.initial.task.delay.ms
    retention_check_interval_ms: int = 300_000  # log.retention.check.interval.ms
    recovery_point_checkpoint_interval_ms: int = 60_000  # log.flush.offset.checkpoint.interval.ms
    log_start_checkpoint_interval_ms: int = 60_000  # log.flush.start.offset.checkpoint.interval.ms
    high_watermark_checkpoint_interval_ms: int = 5_000  # replica.high.watermark.checkpoint.interval.ms
    producer_id_expiration_ms: int = DAY_MS  # producer.id.expiration.ms
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)

    @staticmethod
    def of(config: BrokerConfig) -> LogManagerConfig:
        """Returns the part of a broker's settings that the log layer needs."""
        values = topic_values({}, broker={}, cluster={}, static=config.originals)
        return LogManagerConfig(
            default_log=LogConfig.from_properties(values),
            remote_system_enabled=config.remote_log_storage_system_enable,
            initial_task_delay_ms=config.log_initial_task_delay_ms,
            retention_check_interval_ms=config.log_retention_check_interval_ms,
            recovery_point_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
            log_start_checkpoint_interval_ms=config.log_flush_start_offset_checkpoint_interval_ms,
            high_watermark_checkpoint_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            cleaner=CleanerConfig.of(config),
        )


def is_remote_enabled(topic: str, config: LogConfig) -> bool:
    """Whether the topic's own settings make it tiered; the broker's switch comes on top.

    Kafka: `UnifiedLog.isRemoteLogEnabled`.
    """
    return (
        config.remote_storage_enable
        and not config.is_compacted
        and topic not in INTERNAL_TOPICS
        and topic not in (REMOTE_LOG_METADATA_TOPIC, CLUSTER_METADATA_TOPIC)
    )
